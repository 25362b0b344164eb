"""`python -m bench.brokers.homes_chaos`: brokers and homes are killed and stopped; do the laws of homes hold?

Three brokers, and three processes that are homes (`home_process`). What is disturbed is chosen from the seed.
In the end, no home has decided after a home with a greater term (all processes read one clock), no term and
no cursor has fallen in the state topic, and each bucket has a home again.

    python -m bench.brokers.homes_chaos [--seconds 300] [--seed 1]

Exit status 0 when all of that holds; 1 otherwise.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from amqp_streams.homes.records import KEY
from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.taking import is_end
from amqp_streams.kafka.topics import TopicNames
from bench.brokers.home_process import PREFIX, boot_ms
from bench.products import kafka_cluster
from bench.products.kafka_cluster import Cluster

BUCKETS: Final = 4
NODES: Final = 3
RECENT_MS: Final = 600
CALM_S_MAX: Final = 60.0
END_S_MAX: Final = 15.0


class Decides(NamedTuple):
    """A home may decide at this time."""

    at_ms: int
    bucket: int
    term: int
    node: str


def overlaps(seen: Iterable[Decides]) -> list[str]:
    """When a home could decide although a later home could, too."""
    found, last = list[str](), dict[int, Decides]()
    for each in sorted(seen):
        before = last.get(each.bucket)
        if before is not None and each.term < before.term:
            found.append(f"{each} after {before}")
        else:
            last[each.bucket] = each
    return found


def falls(records: Iterable[tuple[str, bytes]]) -> list[str]:
    """What fell in the records of one bucket: the term of the home, or the position of a cursor."""
    found, reached = list[str](), dict[str, int]()
    for key, value in records:
        fields = json.loads(value)
        if key == KEY:
            number = int(fields["term"])
        elif "next" in fields:
            number = int(fields["next"]["0"])
        else:
            continue
        if number < reached.get(key, 0):
            found.append(f"{key} fell from {reached[key]} to {number}")
        reached[key] = max(number, reached.get(key, 0))
    return found


class Chaos:
    """The processes, and what they said."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster: Final = cluster
        self.seen: Final[list[Decides]] = []
        self.counts: Final[Counter[str]] = Counter()
        self._random: Final = random.Random(seed)
        self._nodes: Final[dict[int, subprocess.Popen[str]]] = {}

    def start(self, slot: int) -> None:
        """Start a process."""
        self.counts["processes"] += 1
        name = f"n.{self.counts['processes']}"
        self._nodes[slot] = subprocess.Popen(
            [sys.executable, "-m", "bench.brokers.home_process", self.cluster.servers, name, str(BUCKETS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, args=(self._nodes[slot],), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.seen.append(Decides(**json.loads(line)))

    def disturb(self) -> None:
        """One disturbance, from its begin to its end."""
        kinds: tuple[Callable[[int], None], ...] = (
            self._kill, self._stop, self._stop, self._terminate, self._kill_broker, self._stop_broker,
        )  # fmt: skip
        kind = self._random.choice(kinds)
        self.counts[kind.__name__.removeprefix("_").replace("_", " ")] += 1
        kind(self._random.randrange(NODES))
        time.sleep(self._random.uniform(1, 6))

    def _kill(self, slot: int) -> None:
        self._nodes[slot].kill()
        self._nodes[slot].wait()
        time.sleep(self._random.uniform(0, 3))
        self.start(slot)

    def _stop(self, slot: int) -> None:
        self._nodes[slot].send_signal(signal.SIGSTOP)
        # Shorter than the lease, about the lease, longer than the session.
        time.sleep(self._random.choice((1, 2.6, 3.3, 5, 7, 9)))
        self._nodes[slot].send_signal(signal.SIGCONT)

    def _terminate(self, slot: int) -> None:
        self._nodes[slot].terminate()
        try:
            self._nodes[slot].wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self.counts["processes that did not end in order"] += 1
            self._nodes[slot].kill()
        self.start(slot)

    def _kill_broker(self, slot: int) -> None:
        broker = self.cluster.brokers[slot]
        broker.signal(signal.SIGKILL)
        time.sleep(self._random.uniform(2, 14))
        broker.start(with_parent=True)
        self.cluster.await_ready()

    def _stop_broker(self, slot: int) -> None:
        self.cluster.brokers[slot].signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(1, 12))
        self.cluster.brokers[slot].signal(signal.SIGCONT)

    def await_calm(self) -> bool:
        """Wait until each bucket has a home."""
        until = time.monotonic() + CALM_S_MAX
        while time.monotonic() < until:
            since = boot_ms() - RECENT_MS
            if len({each.bucket for each in self.seen[-500:] if each.at_ms > since}) == BUCKETS:
                return True
            time.sleep(0.2)
        return False

    def end(self) -> None:
        """Kill all processes."""
        for process in self._nodes.values():
            process.kill()
            process.wait()


def stored(servers: str, bucket: int) -> list[tuple[str, bytes]]:
    """The committed records of a bucket that have a value."""
    reader = Consumer({**CONSUMING, "bootstrap.servers": servers, "log_level": 0})
    reader.assign([TopicPartition(TopicNames(PREFIX).state, bucket, 0)])
    found = []
    while (message := reader.poll(30)) is not None:
        error, key, value = message.error(), message.key(), message.value()
        if error is not None and is_end(error):
            break
        if error is None and isinstance(key, bytes) and value is not None:
            found.append((key.decode(), bytes(value)))
    reader.close()
    return found


def main() -> int:
    """Disturb, and judge."""
    parser = argparse.ArgumentParser(prog="python -m bench.brokers.homes_chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if why := kafka_cluster.why_not():
        print(f"Kafka: {why}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="homes-") as name:
        cluster = kafka_cluster.made(Path(name) / "cluster")
        chaos = Chaos(cluster, options.seed)
        try:
            for broker in cluster.brokers:
                broker.start(with_parent=True)
            cluster.await_ready()
            return judged(chaos, options.seconds)
        finally:
            chaos.end()
            cluster.stop()


def judged(chaos: Chaos, seconds: float) -> int:
    """Run the processes on brokers that are ready; the exit status."""
    for slot in range(NODES):
        chaos.start(slot)
    wrong = [] if chaos.await_calm() else ["a bucket had no home before the first disturbance"]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        chaos.disturb()
    began = time.monotonic()
    if not chaos.await_calm():
        wrong.append(f"a bucket had no home {CALM_S_MAX:g} s after the last disturbance")
    chaos.counts["ms until each bucket had a home"] = int((time.monotonic() - began) * 1000)
    wrong += overlaps(chaos.seen)
    for bucket in range(BUCKETS):
        records = stored(chaos.cluster.servers, bucket)
        chaos.counts["records"] += len(records)
        chaos.counts["homes"] += len({json.loads(value)["term"] for key, value in records if key == KEY})
        wrong += [f"bucket {bucket}: {each}" for each in falls(records)]
    for what, count in sorted(chaos.counts.items()):
        print(f"{what}: {count}")
    print(f"violations: {len(wrong)}", *wrong[:20], sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
