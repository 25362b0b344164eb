"""What an event costs node and client when it is read in batches, and one by one: `python -m bench.ranges
[--events N] [--size BYTES]`.

One log of one partition, messages of one size; the node in a process of its own, the client in this one, both
read by one link from the earliest. CPU seconds of each process are what counts: on a machine with other work
they hardly change, rates do. Rounds alternate.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqp_streams.client import EARLIEST
from amqp_streams.client.blocking import Client, connect
from bench.server import Server, running

LOG: Final = "events"
_WINDOW: Final = 8000
_CREDIT: Final = 4000


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one reading of everything, for an event: microseconds of CPU; and events a second."""

    node_us: float
    client_us: float
    rate: float


def message(size: int) -> bytes:
    """An AMQP message of so many bytes: a data section."""
    return b"\x00\x53\x75\xb0" + (size - 8).to_bytes(4) + bytes(size - 8)


def in_batches(client: Client, events: int) -> int:
    """Read everything by `read_range`."""
    return sum(len(run) for run in client.read_range(LOG, 0, 0, events))


def one_by_one(client: Client, events: int) -> int:
    """Read everything by an ordinary consumer, the fastest way it has."""
    count = 0
    with client.consumer(LOG, partition=0, start=EARLIEST, credit=_CREDIT, settle="none") as consumer:
        while count < events:
            count += len(consumer.receive_raw(_CREDIT // 2))
    return count


def measured(server: Server, client: Client, read: Callable[[Client, int], int], events: int) -> Cost:
    """One reading."""
    node_before, before, began = server.usage().cpu_seconds, time.process_time(), time.monotonic()
    assert read(client, events) == events, "every event came"
    seconds = time.monotonic() - began
    return Cost(
        (server.usage().cpu_seconds - node_before) / events * 1e6,
        (time.process_time() - before) / events * 1e6,
        events / seconds,
    )


def main() -> None:
    """Fill a log, read it by turns, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    costs: dict[str, list[Cost]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), logs=[f"{LOG}:1"], options=["--sync=never"]) as server,
        connect(server.url) as client,
    ):
        _fill(client, arguments.events, arguments.size)
        for _ in range(arguments.rounds):
            for name, read in (("read_range", in_batches), ("receive_raw", one_by_one)):
                costs.setdefault(name, []).append(measured(server, client, read, arguments.events))
    print(f"{arguments.events:,} events of {arguments.size} B, median of {arguments.rounds}")
    print("| read by | CPU of the node | CPU of the client | events/s |\n|---|---|---|---|")
    for name, all_of in costs.items():
        node, own, rate = (
            statistics.median(getattr(cost, field) for cost in all_of)
            for field in ("node_us", "client_us", "rate")
        )
        print(f"| `{name}` | {node:.2f} us | {own:.2f} us | {rate / 1000:,.0f}k |")


def _fill(client: Client, events: int, size: int) -> None:
    one = message(size)
    with client.producer(LOG, window=_WINDOW) as producer:
        for start in range(0, events, _WINDOW // 2):
            producer.post_batch([one] * min(_WINDOW // 2, events - start))


if __name__ == "__main__":
    main()
