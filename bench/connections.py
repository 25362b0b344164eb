"""`make connections`: many connections with two links each open at once, what an idle one costs, and that
each still answers.

Exit status 0 when every connection opened, sent an event that was accepted, and received one; 1 otherwise.
"""

import argparse
import asyncio
import json
import resource
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import proton

from bench.idle_peer import IdlePeer
from bench.process import Usage
from bench.server import Server, running

LOG: Final = "events"
OPENING_AT_ONCE: Final = 50
SPARE_FILES: Final = 256


async def measure(server: Server, count: int, idle_seconds: float, patience: float) -> dict[str, float]:
    """Open `count` connections, leave them idle, then have each send and receive; the figures.

    Raises:
        ConnectionError: the node refused or dropped one.
        TimeoutError: one did not answer within `patience` seconds.
    """
    warm = await _open(server, "warm", patience)
    before, began = server.usage(), time.monotonic()
    peers = await _all(_open, [(server, f"idle-{number}", patience) for number in range(count)])
    opened_in = time.monotonic() - began
    await asyncio.sleep(1.0)
    opened, began = server.usage(), time.monotonic()
    await asyncio.sleep(idle_seconds)
    idle, idle_for = server.usage(), time.monotonic() - began
    message = bytes(proton.Message(body=b"are you there?", inferred=True).encode())
    for peer in peers:
        peer.send(message)
    await asyncio.wait_for(asyncio.gather(*(peer.accepted for peer in peers)), patience)
    for peer in peers:
        peer.grant(1)
    answers = await asyncio.wait_for(asyncio.gather(*(peer.received for peer in peers)), patience)
    assert all(b"are you there?" in answer for answer in answers)
    answered = server.usage()
    for peer in [*peers, warm]:
        peer.close()
    await asyncio.sleep(2.0)
    return _figures(count, opened_in, idle_for, (before, opened, idle, answered, server.usage()))


def _figures(
    count: int, opened_in: float, idle_for: float, moments: tuple[Usage, Usage, Usage, Usage, Usage]
) -> dict[str, float]:
    before, opened, idle, answered, closed = moments
    return {
        "connections": count,
        "links": 2 * count,
        "cpu_ms_per_open": round((opened.cpu_seconds - before.cpu_seconds) / count * 1e3, 2),
        "opened_per_second": round(count / opened_in, 1),
        "rss_before_MB": round(before.rss_bytes / 1e6, 1),
        "rss_open_MB": round(opened.rss_bytes / 1e6, 1),
        "KiB_per_idle_connection": round((opened.rss_bytes - before.rss_bytes) / count / 1024, 1),
        "files_per_connection": round((opened.open_files - before.open_files) / count, 3),
        "cpu_percent_while_idle": round(100 * (idle.cpu_seconds - opened.cpu_seconds) / idle_for, 2),
        "rss_after_answers_MB": round(answered.rss_bytes / 1e6, 1),
        "cpu_us_per_answer": round((answered.cpu_seconds - idle.cpu_seconds) / count * 1e6, 1),
        "rss_after_close_MB": round(closed.rss_bytes / 1e6, 1),
        "files_left": closed.open_files - (before.open_files - 1),  # the first connection was there before
    }


async def _open(server: Server, name: str, patience: float) -> IdlePeer:
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: IdlePeer(name, LOG), "127.0.0.1", server.port)
    await asyncio.wait_for(peer.opened, patience)
    return peer


async def _all(
    make: Callable[[Server, str, float], Awaitable[IdlePeer]], arguments: Iterable[tuple[Server, str, float]]
) -> list[IdlePeer]:
    gate = asyncio.Semaphore(OPENING_AT_ONCE)

    async def one(argument: tuple[Server, str, float]) -> IdlePeer:
        async with gate:
            return await make(*argument)

    return list(await asyncio.gather(*(one(argument) for argument in arguments)))


def main() -> int:
    """Start a node, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.connections", description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--idle-seconds", type=float, default=5)
    parser.add_argument("--patience", type=float, default=60, help="seconds that one answer may take")
    parser.add_argument("--work", type=Path, default=Path("/tmp/amqp-bench"))
    options = parser.parse_args()
    allow_files(options.connections + SPARE_FILES)
    folder = options.work / "connections"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with running(folder) as server:
            figures = asyncio.run(
                measure(server, options.connections, options.idle_seconds, options.patience)
            )
    except (ConnectionError, TimeoutError, RuntimeError) as error:
        print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(figures, indent=1))
    return 0


def allow_files(wanted: int) -> None:
    """Let this process open so many files, if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
