"""`python -m bench.loops`: what the compiled loops save, beside the loops in Python, in turns in one run.

One connection sends events to a log of one partition, then one consumer reads them. Prints the events of a
second and the node's CPU time for each event. On a busy machine, compare the CPU times.
"""

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from amqp_streams.proton.compiled import PURE_VARIABLE
from bench import load
from bench.server import running

SIZES: Final = (100, 1024)
RUN_ID: Final = 7
MODES: Final = {"send": (), "recv": load.FROM_EARLIEST}


def measure(size: int, count: int, *, pure: bool) -> dict[str, tuple[float, float]]:
    """Events a second and microseconds of CPU an event, for each direction.

    Raises:
        RuntimeError: events were lost or refused.
    """
    found = {}
    environment = {PURE_VARIABLE: "1" if pure else ""}
    with (
        tempfile.TemporaryDirectory(prefix="loops-") as name,
        running(Path(name), environment=environment) as server,
    ):
        for mode, options in MODES.items():
            before = server.usage().cpu_seconds
            done = load.run(
                mode,
                server.url,
                "events",
                count=count,
                run_id=RUN_ID,
                options=("--size", str(size), *options),
            )
            if not done.ok:
                raise RuntimeError(done.error or str(done.figures))
            cpu = server.usage().cpu_seconds - before
            found[mode] = (done.messages_per_second, cpu / count * 1e6)
    return found


def main() -> None:
    """Print a row for each size and direction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=300_000)
    options = parser.parse_args()
    load.build()
    samples: dict[tuple[int, str, bool], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(options.rounds):
        for size in SIZES:
            for pure in (True, False):
                for mode, sample in measure(size, options.count, pure=pure).items():
                    samples[size, mode, pure].append(sample)
    print(
        "| bytes | direction | Python, events/s | compiled, events/s "
        "| Python, us | compiled, us | CPU ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for size in SIZES:
        for mode in MODES:
            python, compiled = (
                [statistics.median(values) for values in zip(*samples[size, mode, pure], strict=True)]
                for pure in (True, False)
            )
            print(
                f"| {size} | {mode} | {python[0]:,.0f} | {compiled[0]:,.0f} | {python[1]:.2f} |"
                f" {compiled[1]:.2f} | {compiled[1] / python[1]:.2f} |"
            )


if __name__ == "__main__":
    main()
