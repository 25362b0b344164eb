"""`make flat`: whether the cost of an event stays the same while the number of something grows.

    python -m bench.scale.flat [--axis links --axis partitions ...] [--most 1000]

One table: the CPU time of the serving process for an event (user and system), and its ratio to the smallest
number of the same axis. CPU times change less with other work on the machine than rates do. The last axis is
the time to open a data directory after a kill, with an empty page cache. Exit status 0 when everything ran.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from amqp_streams.client import LATEST, connect
from bench import load
from bench.deliveries import Bench
from bench.server import Server, running
from examples.gateway import GatewayProcess

LOG: Final = "events"
LINKS: Final = (1, 100, 1000, 10_000)
PARTITIONS: Final = (1, 16, 64, 256, 1024)
TRIGGERS: Final = (1, 10, 100, 1000)
OPENED: Final = (1, 4, 16, 64)
LINKS_OF_A_CONNECTION: Final = 250
ATTACHING_AT_ONCE: Final = 32
COUNT: Final = 300_000
EVENTS: Final = 8000
WARM_UP: Final = 20_000
REST_S: Final = 0.5
REST_SHARE: Final = 0.06
REST_S_MAX: Final = 60.0
_OPENED: Final = re.compile(r"^(.+?) +opened in ([\d.]+) s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """One number of one axis. `costs`: the figures by name; the first of an axis is what others relate to."""

    axis: str
    size: int
    costs: dict[str, float]


def table(rows: Sequence[Row]) -> str:
    """The table, with the ratios to the first row of each axis."""
    lines = ["| what grows | number | figure | measured | ratio to the first |", "|---|---|---|---|---|"]
    first: dict[tuple[str, str], float] = {}
    for row in rows:
        for name, value in row.costs.items():
            base = first.setdefault((row.axis, name), value)
            ratio = f"{value / base:.2f}" if base else "-"
            lines.append(f"| {row.axis} | {row.size:,} | {name} | {value:.2f} | {ratio} |")
    return "\n".join(lines)


def opened(text: str) -> dict[str, float]:
    """The seconds that `bench.reopen` printed, by the way in which the store ended."""
    return {f"s to open, {what}": float(seconds) for what, seconds in _OPENED.findall(text)}


def links(sizes: Sequence[int]) -> Iterator[Row]:
    """Consumers without credit of the log that a connection sends to and another one reads."""
    logs = [f"{LOG}{number}:1" for number in range(len(sizes))]
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), logs=logs) as server:
        _costs(server, f"{LOG}0", WARM_UP)
        for number, size in enumerate(sizes):
            yield Row("links of the log", size, asyncio.run(_with_links(server, f"{LOG}{number}", size)))


def partitions(sizes: Sequence[int]) -> Iterator[Row]:
    """Partitions of the log: events without keys, and one link that reads all partitions."""
    for size in sizes:
        logs = [f"warm:{size}", f"{LOG}:{size}"]
        with tempfile.TemporaryDirectory() as folder, running(Path(folder), logs=logs) as server:
            _costs(server, "warm", WARM_UP, "--by-partition")
            yield Row("partitions of the log", size, _costs(server, LOG, COUNT, "--by-partition"))


def triggers(sizes: Sequence[int]) -> Iterator[Row]:
    """Triggers of a Broker, each with an exact filter; each event is for one of them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        GatewayProcess(Path(folder), "--log-level", "warning") as gateway,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        bench = Bench(gateway)
        runner.run(bench.run(EVENTS // 4))
        for size in sizes:
            run = runner.run(bench.run(EVENTS, triggers=size))
            costs = {"gateway us": run.cpu_us, "node us": run.node_us, "events/s": run.per_second}
            yield Row("Triggers of a Broker", size, costs)
        gateway.stop()


def opening(sizes: Sequence[int]) -> Iterator[Row]:
    """Partitions of a data directory of 1 GiB that is opened."""
    for size in sizes:
        command = [sys.executable, "-m", "bench.reopen", "--gigabytes", "1", "--partitions", str(size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        yield Row("partitions in 1 GiB", size, opened(done.stdout))


AXES: Final[dict[str, tuple[Callable[[Sequence[int]], Iterator[Row]], Sequence[int]]]] = {
    "links": (links, LINKS),
    "partitions": (partitions, PARTITIONS),
    "triggers": (triggers, TRIGGERS),
    "opening": (opening, OPENED),
}


def main() -> int:
    """Measure the chosen axes, print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale.flat",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--axis", action="append", choices=list(AXES), help="only this one; may be repeated")
    parser.add_argument("--most", type=int, default=10_000, help="leave out larger numbers (default 10,000)")
    options = parser.parse_args()
    load.build()
    rows: list[Row] = []
    for name in options.axis or AXES:
        measure, sizes = AXES[name]
        for row in measure([size for size in sizes if size <= options.most]):
            costs = ", ".join(f"{figure} {value:.2f}" for figure, value in row.costs.items())
            print(f"{row.axis}, {row.size:,}: {costs}", file=sys.stderr, flush=True)
            rows.append(row)
    print(table(rows))
    return 0


async def _with_links(server: Server, log: str, count: int) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        per_connection = -(-count // LINKS_OF_A_CONNECTION)
        clients = [await stack.enter_async_context(connect(server.url)) for _ in range(per_connection)]
        waiting = iter(
            clients[number // LINKS_OF_A_CONNECTION].consumer(log, start=LATEST, credit=1)
            for number in range(count)
        )

        async def some() -> None:
            for consumer in waiting:
                await stack.enter_async_context(consumer)

        await asyncio.gather(*(some() for _ in range(ATTACHING_AT_ONCE)))
        await asyncio.to_thread(_costs, server, log, 1000)  # each consumer uses its credit
        await _at_rest(server)
        return await asyncio.to_thread(_costs, server, log, COUNT)


async def _at_rest(server: Server) -> None:
    """Wait until the node has sent what the consumers have credit for."""
    latest = time.monotonic() + REST_S_MAX
    while time.monotonic() < latest:
        before = server.usage().cpu_seconds
        await asyncio.sleep(REST_S)
        if server.usage().cpu_seconds - before < REST_SHARE * REST_S:
            return


def _costs(server: Server, log: str, count: int, *more: str) -> dict[str, float]:
    """CPU of the node for an event in and out."""
    run_id, before = next(_run_ids), server.usage().cpu_seconds
    sent = load.run("send", server.url, log, count=count, run_id=run_id, options=["--timeout", "200"])
    between = server.usage().cpu_seconds
    options = ["--timeout", "200", "--no-credit-cap", *load.FROM_EARLIEST, *more]
    got = load.run("recv", server.url, log, count=count, run_id=run_id, options=options)
    after = server.usage().cpu_seconds
    for one in (sent, got):
        if not one.ok:
            raise RuntimeError(one.error)
    return {"us in": (between - before) / count * 1e6, "us out": (after - between) / count * 1e6}


_run_ids: Final = iter(range(1, 1 << 30))


if __name__ == "__main__":
    sys.exit(main())
