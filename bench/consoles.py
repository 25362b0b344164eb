"""What an open console costs, and whether its pages stay usable with many logs, partitions and Triggers.

    python -m bench.consoles [--part logs --part tail ...] [--share 0.1] [--seconds 20]

Needs Chromium (`apt-get install chromium`) and a machine without other work. Each page is open in a real
browser, which has the lowest priority for the CPUs, as if it ran on a machine of its own.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, async_playwright

from amqp_streams.client import connect
from bench import load
from bench.process import usage
from bench.scale.crowd import Api, broker, trigger
from examples.node import NodeProcess

LOG: Final = "events"
SEARCHED: Final = "0077"
"""A part of one name among many."""
LOAD_EVENTS: Final = 3_000_000
ROUNDS: Final = 5
READY_S_MAX: Final = 900.0
_FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
_FLAGS_QUIET: Final = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
_TIMEOUT_MS: Final = 120_000
_START_S_MAX: Final = 120.0


@dataclass(frozen=True, slots=True)
class Looked:
    """One page. `percent`: of a core, by process, while the page is open and nobody does anything."""

    part: str
    shown_s: float
    found_s: float | None
    percent: Mapping[str, float]
    percent_without: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tailed:
    """Accepted events a second, in turns without and with a browser at the live tail."""

    without: Sequence[float]
    beside: Sequence[float]

    @property
    def ratio(self) -> float:
        """The median with the tail, divided by the one without."""
        return statistics.median(self.beside) / statistics.median(self.without)


@contextmanager
def console(program: str, flag: str, url: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Start a console of its own; yields its address and its process id.

    Raises:
        RuntimeError: it does not start.
    """
    ready = folder / "console.json"
    command = [str(Path(sys.executable).parent / program), "console", flag, url]
    with (folder / "console.log").open("wb") as words:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--ready-file", str(ready)], stdout=words, stderr=words
        )
    try:
        deadline = time.monotonic() + _START_S_MAX
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                message = f"the console did not start: {(folder / 'console.log').read_text()[-2000:]}"
                raise RuntimeError(message)
            time.sleep(0.05)
        yield f"http://{json.loads(ready.read_text())['console'][0]}", process.pid
    finally:
        process.terminate()
        process.wait(60)


@asynccontextmanager
async def entered(address: str) -> AsyncIterator[Page]:
    """A browser whose person has continued without a login.

    Raises:
        FileNotFoundError: Chromium is not installed.
    """
    executable = shutil.which("chromium")
    if executable is None:
        message = "needs Chromium: apt-get install chromium"
        raise FileNotFoundError(message)
    async with async_playwright() as playwright:
        with tempfile.TemporaryDirectory(prefix="browser-") as folder:
            patient = Path(folder) / "chromium"
            patient.write_text(f'#!/bin/sh\nexec nice -n 19 {executable} "$@"\n')
            patient.chmod(0o700)
            browser: Browser = await playwright.chromium.launch(
                executable_path=patient, args=[*_FLAGS, *_FLAGS_QUIET]
            )
        page = await browser.new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        await page.goto(address)
        await page.get_by_role("button", name="Continue without a login").click()
        await page.get_by_role("heading", level=1).wait_for()
        yield page
        await browser.close()


async def looked(
    part: str, page: Page, url: str, pids: Mapping[str, int], seconds: float, *, search: str | None
) -> Looked:
    """Open a page, search in it, and let it be open for some seconds.

    `search`: the label of the field; None: the page has none.
    """
    await page.goto("about:blank")
    without = await _percent(pids, seconds)
    began = time.monotonic()
    await page.goto(url)
    await page.get_by_role("row").nth(1).wait_for()
    shown_s, found_s = time.monotonic() - began, None
    if search is not None:
        began = time.monotonic()
        await page.get_by_label(search).fill(SEARCHED)
        rows = page.get_by_role("row")
        # The first row is the head of the table.
        while await rows.filter(has_text=SEARCHED).count() != await rows.count() - 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        found_s = time.monotonic() - began
        await page.goto(url)
        await page.get_by_role("row").nth(1).wait_for()
    await asyncio.sleep(3.0)
    return Looked(part, shown_s, found_s, await _percent(pids, seconds), without)


async def _percent(pids: Mapping[str, int], seconds: float) -> dict[str, float]:
    before, began = {name: usage(pid).cpu_seconds for name, pid in pids.items()}, time.monotonic()
    await asyncio.sleep(seconds)
    elapsed = time.monotonic() - began
    return {
        name: round(100 * (usage(pid).cpu_seconds - before[name]) / elapsed, 2) for name, pid in pids.items()
    }


async def many_logs(folder: Path, size: int, seconds: float) -> Looked:
    """The list of `size` logs."""
    with NodeProcess(folder / "node", log=f"{LOG}:1") as node:
        async with connect(node.url) as client:
            for number in range(size):
                await client.management.create_log(f"log{number:05}", partitions=1)
        with console("amqp-streams", "--url", node.url, folder) as (address, pid):
            async with entered(address) as page:
                pids = {"node": node.pid, "console": pid}
                url = f"{address}/logs"
                return await looked(f"{size} logs", page, url, pids, seconds, search="Find a log")


async def many_partitions(folder: Path, size: int, seconds: float) -> Looked:
    """One log with `size` partitions."""
    with (
        NodeProcess(folder / "node", log=f"{LOG}:{size}") as node,
        console("amqp-streams", "--url", node.url, folder) as (address, pid),
    ):
        async with entered(address) as page:
            pids = {"node": node.pid, "console": pid}
            url = f"{address}/logs/{LOG}"
            return await looked(f"{size} partitions", page, url, pids, seconds, search=None)


async def many_triggers(folder: Path, size: int, seconds: float) -> Looked:
    """The map with `size` Triggers of one Broker."""
    from examples.gateway import GatewayProcess  # noqa: PLC0415  only this part needs the gateway

    with GatewayProcess(folder / "gateway") as gateway:
        async with Api(gateway.base_url) as api:
            await api.create([broker("one")])
            await api.create(
                trigger(f"t{number:05}", "one", "http://127.0.0.1:9/none", f"type{number}")
                for number in range(size)
            )
            await api.wait_ready(READY_S_MAX)
        with console("knative-gateway", "--server", gateway.base_url, folder) as (address, pid):
            async with entered(address) as page:
                pids = {"gateway": gateway.pid, "console": pid}
                url = f"{address}/map"
                label = "Find a name or URL"
                return await looked(f"{size} Triggers", page, url, pids, seconds, search=label)


async def tail(folder: Path, size: int, seconds: float) -> Tailed:  # noqa: ARG001  all parts are called alike
    """The speed of a node that gets `size` events as fast as it takes them."""
    load.build()
    without: list[float] = []
    beside: list[float] = []
    with (
        NodeProcess(folder / "node", log=[f"{LOG}{number}:1" for number in range(2 * ROUNDS)]) as node,
        console("amqp-streams", "--url", node.url, folder) as (address, _),
    ):
        async with entered(address) as page:
            for number in range(2 * ROUNDS):
                # Each pair in the other order: the first of two may find a colder machine.
                with_tail = number % 4 in {1, 2}
                log = f"{LOG}{number}"
                await page.goto(f"{address}/logs/{log}/tail" if with_tail else "about:blank")
                await asyncio.sleep(2.0)
                found = await asyncio.to_thread(
                    load.run, "send", node.url, log, count=size, options=["--window", "1000"]
                )
                if not found.ok:
                    message = f"the load failed: {found.error}"
                    raise RuntimeError(message)
                (beside if with_tail else without).append(found.messages_per_second)
    return Tailed(without, beside)


PARTS: Final[Mapping[str, tuple[int, Callable[[Path, int, float], Awaitable[Looked | Tailed]]]]] = {
    "logs": (1000, many_logs),
    "partitions": (1000, many_partitions),
    "triggers": (10_000, many_triggers),
    "tail": (LOAD_EVENTS, tail),
}


def words(found: Looked | Tailed) -> str:
    """One line for people."""
    match found:
        case Looked():
            searched = "" if found.found_s is None else f", found after {found.found_s:.2f} s"
            costs = ", ".join(
                f"{name} {percent:.2f} % (without the page {found.percent_without[name]:.2f} %)"
                for name, percent in found.percent.items()
            )
            return f"{found.part}: shown after {found.shown_s:.2f} s{searched}; of a core: {costs}"
        case Tailed():
            without, beside = (
                " ".join(f"{each:,.0f}" for each in row) for row in (found.without, found.beside)
            )
            return f"accepted/s without the tail {without}; with it {beside}; ratio {found.ratio:.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen parts one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.consoles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this one; may be repeated")
    parser.add_argument("--share", type=float, default=1.0, help="of the full size of each part")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a page is open")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    for name in options.part or PARTS:
        size, part = PARTS[name]
        with tempfile.TemporaryDirectory(prefix="consoles-", ignore_cleanup_errors=True) as folder:
            count = max(1, round(size * options.share))
            found = asyncio.run(_run(part, Path(folder), count, options.seconds))
        print(json.dumps({"part": name, **asdict(found)}) if options.json else words(found), flush=True)
    return 0


async def _run(
    part: Callable[[Path, int, float], Awaitable[Looked | Tailed]], folder: Path, size: int, seconds: float
) -> Looked | Tailed:
    return await part(folder, size, seconds)


if __name__ == "__main__":
    sys.exit(main())
