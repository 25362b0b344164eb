"""What compressing batches saves and costs: `python -m bench.compression [--live] [--events N]`.

Without `--live`: the ratio, and the CPU time of an event, for batches of 256 KiB and for single events of
real input, in this process. With `--live`: the CPU time of node and client for an event that is sent in
batches, and read with `read_range`, and the bytes on the network; rounds alternate.
"""

import argparse
import asyncio
import csv
import json
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Final

import zstandard

from amqp_streams.client import Event, connect
from amqp_streams.wire.batched.compression import CODECS, codec
from amqp_streams.wire.batched.sends import write_sent_batch
from amqp_streams.wire.batches import write_batch
from bench.server import Server, running

LOG: Final = "events"
_ROOT: Final = Path(__file__).parent.parent
_READINGS: Final = _ROOT / "examples" / "temperatures" / "seattle-temps.csv"
_BATCH_BYTES: Final = 256 << 10
_SECONDS: Final = 0.25
_HOURS: Final = 18
"""Readings of one event with about 1 KiB."""


def _readings() -> list[list[str]]:
    with _READINGS.open(newline="") as rows:
        return list(csv.reader(rows))[1:]


def weather() -> Iterator[Event]:
    """A reading each, as JSON: about 100 bytes."""
    for moment, celsius in _readings():
        yield Event({"date": moment, "temp": float(celsius)}, key=moment[:10])


def cloud_events() -> Iterator[Event]:
    """Readings of several hours each, as CloudEvents in binary mode: about 1 KiB."""
    rows = _readings()
    for at in range(0, len(rows), _HOURS):
        part = rows[at : at + _HOURS]
        yield Event(
            json.dumps({"readings": [{"date": moment, "temp": float(value)} for moment, value in part]}),
            content_type="application/json",
            properties={
                "cloudEvents:specversion": "1.0",
                "cloudEvents:id": f"{Random(at).getrandbits(128):032x}",
                "cloudEvents:source": "/sensors/seattle",
                "cloudEvents:type": "com.example.weather",
                "cloudEvents:time": part[0][0].replace("/", "-").replace(" ", "T") + ":00Z",
            },
        )


def prose() -> Iterator[Event]:
    """Pieces of this project's pages: 1 KiB of text that does not repeat."""
    text = "\n".join(page.read_text() for page in sorted((_ROOT / "docs").rglob("*.md")))
    for at in range(0, len(text) - 1024, 1024):
        yield Event(text[at : at + 1024])


def random() -> Iterator[Event]:
    """1 KiB that cannot be compressed, as encrypted bodies."""
    for number in range(300):
        yield Event(Random(number).randbytes(1024))


KINDS: Final[Mapping[str, Callable[[], Iterator[Event]]]] = {
    "weather, JSON": weather,
    "weather, CloudEvents": cloud_events,
    "prose": prose,
    "random": random,
}


def _cpu_us(work: Callable[[], object]) -> float:
    """Microseconds of CPU for one call, the best of several rounds."""
    best = float("inf")
    for _ in range(5):
        calls, began = 0, time.process_time()
        while time.process_time() - began < _SECONDS / 5:
            work()
            calls += 1
        best = min(best, (time.process_time() - began) / calls * 1e6)
    return best


@dataclass(frozen=True, slots=True)
class _Way:
    name: str
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


def _ways() -> Iterator[_Way]:
    for level in (1, 3):
        yield _Way(f"zstd {level}", zstandard.ZstdCompressor(level=level).compress, codec("zstd").decompress)
    lz4 = codec("lz4")
    yield _Way("lz4", lz4.compress, lz4.decompress)


def tabulate() -> None:
    """Print the table of ratios."""
    print("| events | bytes each | compressed | codec | ratio | compress an event | decompress an event |")
    print("|---|---|---|---|---|---|---|")
    for kind, events in KINDS.items():
        messages, size = [], 0
        for event in chain.from_iterable(iter(events, None)):
            messages.append(event.encode())
            size += len(messages[-1])
            if size >= _BATCH_BYTES:
                break
        for what, count, data in (
            ("batch", len(messages), write_sent_batch(messages)),
            ("single", 1, messages[-1]),
        ):
            for way in _ways():
                made = way.compress(data)
                print(
                    f"| {kind} | {size / len(messages):,.0f} | {what} | {way.name} |"
                    f" {len(data) / len(made):.1f} |"
                    f" {_cpu_us(partial(way.compress, data)) / count:.2f} us |"
                    f" {_cpu_us(partial(way.decompress, made, len(data))) / count:.2f} us |",
                    flush=True,
                )
    _print_own_cost()


def _print_own_cost() -> None:
    """What making a batch costs without compression, for comparison."""
    messages = [event.encode() for event in islice(weather(), 2500)]
    numbers, stamps = array("Q", range(len(messages))), array("q", range(len(messages)))
    sent = _cpu_us(lambda: write_sent_batch(messages)) / len(messages)
    read = _cpu_us(lambda: write_batch("0", numbers, stamps, messages, next_offset=1)) / len(messages)
    print(
        f"\nAn event of `weather, JSON` costs {sent:.2f} us to write into a batch, {read:.2f} us to deliver."
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round, for an event: microseconds of CPU, and bytes on the network."""

    node_us: float
    client_us: float
    wire_bytes: float


async def _round(server: Server, log: str, messages: Sequence[bytes], compression: str | None) -> list[Cost]:
    """Send all events, then read them."""
    costs = []
    async with connect(server.url) as client:
        await client.management.create_log(log)

        async def send() -> None:
            async with client.producer(log, window=10_000, compression=compression) as producer:
                await producer.post_batch(messages, timeout=None)
                await producer.flush(timeout=None)

        async def read() -> None:
            count = 0
            async for run in client.read_range(log, 0, compression=compression):
                count += len(run)
            assert count == len(messages), "every event came"

        for work in (send, read):
            before, client_before, wire_before = server.usage().cpu_seconds, time.process_time(), _loopback()
            await work()
            costs.append(
                Cost(
                    (server.usage().cpu_seconds - before) / len(messages) * 1e6,
                    (time.process_time() - client_before) / len(messages) * 1e6,
                    (_loopback() - wire_before) / len(messages),
                )
            )
        await client.management.delete_log(log)
    return costs


def _loopback() -> int:
    """The bytes that the loopback interface has carried; 0 if the system does not say."""
    with suppress(OSError):
        for line in Path("/proc/net/dev").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name.strip() == "lo":
                return int(rest.split()[0])
    return 0


def run_live(events: int, rounds: int) -> None:
    """Print the table of costs through a node."""
    print("| events | work | codec | CPU of the node | CPU of the client | bytes on the network |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), logs=[]) as server:
        for kind, source in KINDS.items():
            some = [event.encode() for event in islice(source(), 5000)]
            count = events if len(some[0]) < 500 else events // 4
            messages = (some * (count // len(some) + 1))[:count]
            costs: dict[tuple[str, str], list[Cost]] = {}
            for number in range(rounds):
                for name in ("none", *CODECS):
                    log = f"log-{kind[:3]}-{number}-{name}{abs(hash(kind)) % 999}"
                    found = asyncio.run(_round(server, log, messages, None if name == "none" else name))
                    for work, cost in zip(("send", "read"), found, strict=True):
                        costs.setdefault((work, name), []).append(cost)
            for (work, name), each in sorted(costs.items(), reverse=True):
                node, client, wire = (
                    statistics.median(getattr(cost, field) for cost in each)
                    for field in ("node_us", "client_us", "wire_bytes")
                )
                print(
                    f"| {kind} | {work} | {name} | {node:.2f} us | {client:.2f} us | {wire:,.0f} |",
                    flush=True,
                )


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", action="store_true", help="through a node")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.live:
        run_live(arguments.events, arguments.rounds)
    else:
        tabulate()


if __name__ == "__main__":
    main()
