"""What a node of a large cluster does regularly costs: see docs/cluster.md.

    python -m bench.brokers.sizing [--topics 2500] [--rounds 5]

1. A look at all partitions, against librdkafka's mock brokers, which live in this process, need no Java, and
   give each topic 4 partitions: medians of its time, and of the CPU time of its thread. That thread holds the
   interpreter, which the event loop needs as well.
2. The report of a link in a group of a log with 100 partitions: the CPU time to encode and to decode it.
"""

import argparse
import os
import sys
import time
from statistics import median
from typing import Final

from confluent_kafka import Producer

from amqp_streams.homes.messages import Report, Reported
from amqp_streams.homes.protocol import reports
from amqp_streams.kafka.brokers.administration import Administration
from amqp_streams.kafka.brokers.fetching import Place
from amqp_streams.kafka.looking import LOOK_S, pause_after
from amqp_streams.streams.groups.claims import Claim, Wanted

PARTITIONS: Final = 4
_ANSWER_S: Final = 60.0


def looks(topics: int, rounds: int) -> tuple[int, float, float]:
    """How many partitions answered, and the seconds of a look: the whole, and the CPU time of the thread."""
    owner = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=_ANSWER_S).brokers.values()
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        owner.produce(name, b"x", partition=0)
    owner.flush(_ANSWER_S)
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    administration = Administration({"bootstrap.servers": servers, "log_level": 0})
    places = [Place(name, index) for name in names for index in range(PARTITIONS)]
    found, whole, own = 0, list[float](), list[float]()
    for _ in range(rounds):
        began, cpu = time.monotonic(), time.thread_time()
        found = len(administration.extents(places))
        whole.append(time.monotonic() - began)
        own.append(time.thread_time() - cpu)
    return found, median(whole), median(own)


def report(partitions: int, links: int = 200) -> Report:
    """The report of a node with links in a group, with names as our clients make them."""
    member = "0" * 32
    container, link = f"amqp-streams-{member}", f"group-{member}-10"
    claim = Claim("group-01", None, None, f"{container}/{link}")
    starts = tuple(10**9 + index for index in range(partitions))
    wanted = Wanted("A" * 22, "user", container, link, claim, durable=True, starts=starts)
    at = ((partitions // 2, 10**9),)
    every = (Reported(number, wanted, (5, number), partitions // 2, None, at, at) for number in range(links))
    return Report(member, 3, 7, 9, tuple(every))


def report_us(rounds: int) -> tuple[float, float]:
    """The microseconds of CPU time to encode and to decode the report of a link."""
    made, coded, decoded = report(100), list[float](), list[float]()
    for _ in range(rounds):
        began = time.process_time()
        frames = list(reports.parts(made))
        coded.append(time.process_time() - began)
        began, taking = time.process_time(), reports.Reports()
        for frame in frames:
            taking.take(frame)
        decoded.append(time.process_time() - began)
    count = len(made.links)
    return median(coded) / count * 1e6, median(decoded) / count * 1e6


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.brokers.sizing", description=__doc__)
    parser.add_argument("--topics", type=int, default=2500)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found, whole_s, cpu_s = looks(given.topics, given.rounds)
    pause_s = pause_after(cpu_s, LOOK_S)
    share = cpu_s / (whole_s + pause_s)
    print(f"{found} partitions: a look takes {whole_s:.2f} s, {cpu_s:.2f} s of them the interpreter's;")
    print(f"the next one begins {pause_s:.1f} s later, so looks take {share:.0%} of the interpreter")
    coded_us, decoded_us = report_us(given.rounds)
    print(f"the report of a link: {coded_us:.0f} us to encode, {decoded_us:.0f} us to decode")
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Threads of librdkafka must not delay the end.
    os._exit(status)
