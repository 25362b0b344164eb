"""`python -m bench.cold`: what others notice while one link reads a log that is not in the page cache.

A node has a log of many events, whose pages are dropped from the page cache. One link reads them all. At the
same time, events of another log are sent and received at 1,000 a second. Prints their latency with and
without the reading, and how fast that was.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench import load
from bench.backlog import drop_pages
from bench.server import running

SIZE: Final = 1024
LATENCY_EVENTS: Final = 4000


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
        f"{name} {value}" for name, value in done.figures.items() if name.startswith(("p", "max"))
    )


def main() -> None:
    """Print three lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    options = parser.parse_args()
    load.build()
    count = options.mib * (1 << 20) // SIZE
    sized = ("--size", str(SIZE), "--timeout", "300")
    with tempfile.TemporaryDirectory(prefix="cold-") as name:
        folder = Path(name)
        with running(folder, logs=("cold:1", "others:1")) as server:
            load.run("send", server.url, "cold", count=count, run_id=7, options=sized)
        drop_pages(folder / "data")
        with running(folder, logs=("cold:1", "others:1")) as server:
            print("alone:", latency(server.url), flush=True)
            command = load.command(
                "recv", server.url, "cold", count=count, run_id=7, options=(*sized, *load.FROM_EARLIEST)
            )
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
                print("beside the reading:", latency(server.url), flush=True)
                still = reader.poll() is None
                read = load.read(reader.communicate()[0])
            print(f"reading: {read.messages_per_second:,.0f} events/s; until after the others: {still}")


if __name__ == "__main__":
    main()
