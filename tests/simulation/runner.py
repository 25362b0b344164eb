"""`make sim`: many seeds in several processes, with a line that says how far they are.

    python -m tests.simulation.runner --seeds 1000 --jobs 2
    python -m tests.simulation.runner --seed 7

A seed that fails prints the command that repeats it; with `--seed`, the story of the run is printed.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.world import World

TESTS = 20
SEEDS_A_TEST = 5
"""How many seeds `make test` runs, and in how many parts."""
_FRAMES = 3


def run(seed: int, *, stories: bool = False) -> tuple[World, BaseException | None]:
    """One run, and what it raised."""
    world = World(seed, stories=stories)
    try:
        world.run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  some are no Exception, so that the node cannot catch them
        return world, error
    return world, None


def failure_of(seed: int) -> str | None:
    """What is wrong with a seed, and how to repeat it; None: nothing."""
    _, error = run(seed)
    if error is None:
        return None
    return f"seed {seed}: {_words(error)}\n  repeat it: make sim SEED={seed}"


def _words(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:600]} ({where})"


def _work(seeds: range) -> tuple[int, Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        world, error = run(seed)
        counts.update(world.counts())
        if error is not None:
            failures.append(f"seed {seed}: {_words(error)}\n  repeat it: make sim SEED={seed}")
    return len(seeds), counts, failures


def _many(first: int, count: int, jobs: int) -> int:
    began, done = time.monotonic(), 0
    failures: list[str] = []
    counts: Counter[str] = Counter()
    step = max(1, min(50, count // (4 * jobs)))
    parts = [range(at, min(at + step, first + count)) for at in range(first, first + count, step)]
    with ProcessPoolExecutor(jobs) as pool:
        for size, counted, failed in pool.map(_work, parts):
            done += size
            counts.update(counted)
            for words in failed:
                failures.append(words)
                print(f"\n{words}", flush=True)
            rate = done / (time.monotonic() - began)
            line = f"{done} of {count} seeds, {len(failures)} failed, {rate:.1f} seeds/s, "
            line += f"{(count - done) / rate:.0f} s left"
            print(
                f"\r{line:78}" if sys.stdout.isatty() else line,
                end="" if sys.stdout.isatty() else "\n",
                flush=True,
            )
    print("\n" + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)))
    return 1 if failures else 0


def _one(seed: int) -> int:
    world, error = run(seed, stories=True)
    print("\n".join(world.story))
    if error is None:
        print(f"seed {seed}: nothing is wrong")
        return 0
    traceback.print_exception(error)
    return 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Simulate whole nodes, each run from its seed.")
    parser.add_argument("--seeds", type=int, default=TESTS * SEEDS_A_TEST, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run only this one, and tell its story")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    return _one(given.seed) if given.seed is not None else _many(given.first, given.seeds, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
