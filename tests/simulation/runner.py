"""`make sim`: many seeds in several processes, with a line that says how far they are.

    python -m tests.simulation.runner --seeds 1000 --jobs 2
    python -m tests.simulation.runner --seeds 100000 --state seeds.json
    python -m tests.simulation.runner --seed 7
    python -m tests.simulation.runner --homes --seeds 10000
    python -m tests.simulation.runner --numbered --seeds 10000

A seed that fails prints the command that repeats it; with `--seed`, the story of the run is printed. With
`--state`, a call that was stopped leaves what it has counted in a file, and the next call goes on there.
"""

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.simulation.homes.world import World as HomesWorld
from tests.simulation.machine.budget import cpu_budget
from tests.simulation.numbered.world import World as NumberedWorld
from tests.simulation.world import World

TESTS = 20
SEEDS_A_TEST = 15
"""How many seeds `make test` runs, and in how many parts."""
CPU_S = 60.0
"""Of a run. The most expensive ones take some seconds: one that takes more probably never ends."""
_FRAMES = 3


class Simulated(Protocol):
    """One run."""

    story: list[str]

    def run(self) -> None:
        """Carry it out; raises what is wrong."""

    def counts(self) -> Mapping[str, int]:
        """What happened, by name."""


WORLDS: dict[str, Callable[..., Simulated]] = {
    "node": World,
    "homes": HomesWorld,
    "numbered": NumberedWorld,
}
"""A whole node with its clients; several nodes on Kafka that share groups, or idempotent producers."""

Result = tuple[int, Counter[str], list[str]]
"""Of a part: how many seeds, what happened, and the failures."""


def run(
    seed: int, *, kind: str = "node", stories: bool = False, cpu_s: float = CPU_S
) -> tuple[Simulated, BaseException | None]:
    """Carry out one run, and return it with the exception that it raised.

    A run that does not end raises `EndlessError` after `cpu_s` of processor time.
    """
    world = WORLDS[kind](seed, stories=stories)
    try:
        with cpu_budget(cpu_s):
            world.run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  some are no Exception, so that the node cannot catch them
        return world, error
    return world, None


def failure_of(seed: int, kind: str = "node") -> str | None:
    """Return the failure of a seed, and how to repeat it; None: the seed passed."""
    _, error = run(seed, kind=kind)
    return None if error is None else _failure(seed, kind, error)


def _failure(seed: int, kind: str, error: BaseException) -> str:
    target = "sim" if kind == "node" else f"sim{kind}"
    return f"seed {seed}: {_words(error)}\n  repeat it: make {target} SEED={seed}"


def _words(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:600]} ({where})"


def _work(kind: str, seeds: range) -> Result:
    counts: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        world, error = run(seed, kind=kind)
        counts.update(world.counts())
        if error is not None:
            failures.append(_failure(seed, kind, error))
    return len(seeds), counts, failures


@dataclass
class Tally:
    """What has been run: all seeds from `first` up to `next`.

    `state`: the file that keeps this between calls.
    """

    first: int
    next: int
    state: Path | None = None
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def load(cls, state: Path | None, first: int) -> "Tally":
        """Go on where the state ends; without one, begin at `first`."""
        if state is None or not state.exists():
            return cls(first, first, state)
        kept = json.loads(state.read_text())
        return cls(kept["first"], kept["next"], state, kept["failures"], Counter(kept["counts"]))

    def add(self, result: Result) -> None:
        """A part has ended; the parts end in order."""
        size, counts, failures = result
        self.next += size
        self.counts.update(counts)
        self.failures += failures
        if self.state is not None:
            kept = {"first": self.first, "next": self.next, "failures": self.failures, "counts": self.counts}
            fresh = self.state.with_name(self.state.name + ".new")
            fresh.write_text(json.dumps(kept, indent=1) + "\n")
            fresh.replace(self.state)


def many(tally: Tally, count: int, jobs: int, kind: str = "node") -> int:
    """Run the seeds from the first of the tally on, as far as they are not in it. Returns the exit code."""
    began, end, done_before = time.monotonic(), tally.first + count, tally.next
    todo = max(0, end - done_before)
    step = max(1, min(50, todo // (4 * jobs)))
    parts = [range(at, min(at + step, end)) for at in range(tally.next, end, step)]
    with _results(parts, jobs, kind) as results:
        for result in results:
            tally.add(result)
            for words in result[2]:
                print(f"\n{words}", flush=True)
            rate = (tally.next - done_before) / (time.monotonic() - began)
            line = f"{tally.next - tally.first} of {count} seeds, {len(tally.failures)} failed, "
            line += f"{rate:.1f} seeds/s, {(end - tally.next) / rate:.0f} s left"
            _show(line)
    print(f"\nseeds {tally.first} to {tally.next - 1}: {len(tally.failures)} failed")
    print(", ".join(f"{tally.counts[name]} {name}" for name in sorted(tally.counts)))
    for words in tally.failures:
        print(words)
    return 1 if tally.failures else 0


@contextmanager
def _results(parts: list[range], jobs: int, kind: str) -> Iterator[Iterable[Result]]:
    """The results of the parts, in order. What is not begun when the caller ends is left out."""
    if jobs == 1:
        yield map(partial(_work, kind), parts)
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        yield pool.map(partial(_work, kind), parts)
    finally:
        pool.shutdown(cancel_futures=True)


def _show(line: str) -> None:
    """The line of progress: the same line again on a terminal."""
    terminal = sys.stdout.isatty()
    print(f"\r{line:78}" if terminal else line, end="" if terminal else "\n", flush=True)


def _one(seed: int, kind: str) -> int:
    world, error = run(seed, kind=kind, stories=True)
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
    parser.add_argument("--state", type=Path, help="go on from this file, and keep the counts there")
    parser.add_argument("--seed", type=int, help="run only this one, and tell its story")
    parser.add_argument(
        "--homes",
        dest="kind",
        action="store_const",
        const="homes",
        default="node",
        help="several nodes on Kafka that share groups, instead of one whole node",
    )
    parser.add_argument(
        "--numbered",
        dest="kind",
        action="store_const",
        const="numbered",
        help="idempotent producers on several nodes on Kafka, instead of one whole node",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    if given.seed is not None:
        return _one(given.seed, given.kind)
    try:
        return many(Tally.load(given.state, given.first), given.seeds, given.jobs, given.kind)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
