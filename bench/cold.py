"""`python -m bench.cold`: what others notice while one link reads a log that is not in the page cache.

A node has a log of many events, whose pages are dropped from the page cache. One link reads them all. At the
same time, events of another log are sent and received at 1,000 a second. Prints their latency with and
without the reading, and how fast that was; then the same for a log that is in the page cache, which shows
how much of the delay is not the disk's.

A fast local disk hides most of the effect. `--delay-ms` stands for a slow one: each read whose first byte is
not in the page cache waits so much longer.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench import load
from bench.backlog import drop_pages
from bench.server import running

SIZE: Final = 1024
SIZED: Final = ("--size", str(SIZE), "--timeout", "300")
ROOT: Final = Path(__file__).resolve().parents[1]
LOGS: Final = ("cold:1", "others:1")
LATENCY_EVENTS: Final = 4000
SLOW_DISK: Final = """
import os, time
from amqp_streams.storage.disk.files import RealFiles

read, probe = RealFiles.pread, bytearray(1)

def pread(self, fd, count, position):
    try:
        os.preadv(fd, (probe,), position, os.RWF_NOWAIT)
    except BlockingIOError:
        time.sleep({seconds})
    return read(self, fd, count, position)

RealFiles.pread = pread
"""


def latency(url: str) -> str:
    """Send and receive at 1,000 a second; returns the figures.

    Raises:
        RuntimeError: events were lost.
    """
    options = ("--rate", "1000", *load.FROM_LATEST)
    done = load.run("latency", url, "others", count=LATENCY_EVENTS, options=options)
    if not done.ok:
        raise RuntimeError(done.error or str(done.figures))
    return ", ".join(
        f"{name} {value} ms" for name, value in done.figures["latency_ms"].items() if name != "n"
    )


def measure(name: str, folder: Path, *, count: int, environment: Mapping[str, str], cached: bool) -> None:
    """Print the figures of one node. `cached`: an earlier reader left the log in the page cache."""
    if not cached:
        drop_pages(folder / "data")
    with running(folder, logs=LOGS, environment=environment) as server:
        print(f"{name}, alone: {latency(server.url)}", flush=True)
        command = load.command(
            "recv", server.url, "cold", count=count, run_id=7, options=(*SIZED, *load.FROM_EARLIEST)
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            print(f"{name}, beside the reading: {latency(server.url)}", flush=True)
            still = reader.poll() is None
            read = load.read(reader.communicate()[0])
        print(f"{name}, reading: {read.messages_per_second:,.0f} events/s; longer than the others: {still}")


def main() -> None:
    """Print six lines for each node."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another source tree, measured first in each round")
    parser.add_argument("--delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    load.build()
    count = options.mib * (1 << 20) // SIZE
    trees = {"this": ROOT} if options.against is None else {"other": options.against, "this": ROOT}
    with tempfile.TemporaryDirectory(prefix="cold-") as name:
        folder = Path(name)
        with running(folder, logs=LOGS) as server:
            load.run("send", server.url, "cold", count=count, run_id=7, options=SIZED)
        if options.delay_ms:
            # Python imports this module at its start.
            (folder / "sitecustomize.py").write_text(SLOW_DISK.format(seconds=options.delay_ms / 1000))
        for _ in range(options.rounds):
            for tree, path in trees.items():
                environment = {"PYTHONPATH": f"{folder}:{path}"}
                measure(tree, folder, count=count, environment=environment, cached=False)
                measure(f"{tree}, cached", folder, count=count, environment=environment, cached=True)


if __name__ == "__main__":
    main()
