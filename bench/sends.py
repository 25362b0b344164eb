"""What an event costs node and client when it is sent in a batch, and one by one: `python -m bench.sends
[--events N] [--sizes BYTES ...] [--connections N ...]`.

One log with a partition for each connection; the node in a process of its own, all connections in this one.
Every event is accepted after a sync. The table has the ratio to one by one of the same run: on a machine with
other work, CPU seconds and ratios hardly change, rates do. Rounds alternate.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqp_streams.client import connect
from bench.ranges import message
from bench.server import Server, running

LOG: Final = "events"
_WINDOW: Final = 10_000
_BATCH_BYTES: Final = {"one by one": 0, "batched": 256 << 10}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round, for an event: microseconds of CPU; and events a second."""

    node_us: float
    client_us: float
    rate: float


async def sent(server: Server, one: bytes, events: int, connections: int, batch_bytes: int) -> Cost:
    """Send `events` events over all connections, and wait until all are accepted."""
    async with AsyncExitStack() as stack:
        producers = []
        for partition in range(connections):
            client = await stack.enter_async_context(connect(server.url))
            producer = client.producer(LOG, partition=partition, window=_WINDOW, batch_bytes=batch_bytes)
            producers.append(await stack.enter_async_context(producer))
        node_before, before, began = server.usage().cpu_seconds, time.process_time(), time.monotonic()
        share = [one] * (events // connections)
        await asyncio.gather(*[producer.post_batch(share, timeout=None) for producer in producers])
        await asyncio.gather(*[producer.flush(timeout=None) for producer in producers])
        seconds = time.monotonic() - began
        return Cost(
            (server.usage().cpu_seconds - node_before) / events * 1e6,
            (time.process_time() - before) / events * 1e6,
            events / seconds,
        )


def main() -> None:
    """Send by turns, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    logs = [f"{LOG}:{max(arguments.connections)}"]
    print("| size | connections | sent | CPU of the node | CPU of the client | events/s | ratio |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), logs=logs) as server:
        for size in arguments.sizes:
            for connections in arguments.connections:
                costs: dict[str, list[Cost]] = {}
                for _ in range(arguments.rounds):
                    for name, batch_bytes in _BATCH_BYTES.items():
                        cost = asyncio.run(
                            sent(server, message(size), arguments.events, connections, batch_bytes)
                        )
                        costs.setdefault(name, []).append(cost)
                _print(size, connections, costs)


def _print(size: int, connections: int, costs: dict[str, list[Cost]]) -> None:
    base = _median(costs["one by one"]).rate
    for name, rounds in costs.items():
        cost = _median(rounds)
        print(
            f"| {size} | {connections} | {name} | {cost.node_us:.2f} us | {cost.client_us:.2f} us |"
            f" {cost.rate / 1000:,.0f}k | {cost.rate / base:.1f} |"
        )


def _median(rounds: Sequence[Cost]) -> Cost:
    node, client, rate = (
        statistics.median(getattr(cost, field) for cost in rounds)
        for field in ("node_us", "client_us", "rate")
    )
    return Cost(node, client, rate)


if __name__ == "__main__":
    main()
