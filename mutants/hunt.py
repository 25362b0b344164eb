"""Put one fault at a time into a copy of the checkout, and run the suites that must find it there.

A suite is run once without the fault first: a suite that fails by itself finds nothing.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from mutants.catalogue import ROOT, Mutant, apply
from mutants.suites import SUITES

_LINES_SHOWN: Final = 15


class Verdict(StrEnum):
    """How the run of a suite on a mutant ended."""

    FOUND = "found"
    MISSED = "missed"
    BROKEN = "broken"
    """The suite did not run as it should: not a find."""
    FAILS_WITHOUT = "fails without the mutant"


@dataclass(frozen=True, slots=True)
class Run:
    """A suite run on a mutant. `words`: the last lines of its output."""

    mutant: str
    suite: str
    verdict: Verdict
    seconds: float
    words: str


@dataclass(slots=True)
class Hunt:
    """Runs of suites on mutants, in copies below `folder`."""

    folder: Path
    _sound: dict[tuple[str, str], bool] = field(default_factory=dict)

    def runs(
        self,
        mutants: Iterable[Mutant],
        suites: Sequence[str] = (),
        *,
        cheapest: bool = False,
        done: Collection[tuple[str, str]] = (),
    ) -> Iterator[Run]:
        """Run each mutant's suites, or those of them that are in `suites`.

        `cheapest`: only one suite of each mutant. `done`: mutants and suites that are not run again.
        """
        for mutant in mutants:
            wanted = [suite for suite in SUITES if suite in mutant.found_by]
            wanted = [suite for suite in wanted if not suites or suite in suites]
            for suite in wanted[:1] if cheapest else wanted:
                if (mutant.name, suite) in done:
                    continue
                value = mutant.found_by[suite]
                if not self._is_sound(suite, value):
                    yield Run(mutant.name, suite, Verdict.FAILS_WITHOUT, 0, "")
                    continue
                with self._checkout(mutant) as root:
                    verdict, seconds, words = run(suite, value, root)
                yield Run(mutant.name, suite, verdict, seconds, words)

    def _is_sound(self, suite: str, value: str) -> bool:
        if (suite, value) not in self._sound:
            with self._checkout(None) as root:
                self._sound[suite, value] = run(suite, value, root)[0] is Verdict.MISSED
        return self._sound[suite, value]

    @contextmanager
    def _checkout(self, mutant: Mutant | None) -> Iterator[Path]:
        """A copy of the files that git tracks, with the fault in it."""
        root = self.folder / (mutant.name if mutant else "without")
        shutil.rmtree(root, ignore_errors=True)
        for name in tracked():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)
        if mutant:
            apply(mutant, root)
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)


def run(suite: str, value: str, root: Path) -> tuple[Verdict, float, str]:
    """Run a suite in the checkout at `root`: the verdict, seconds, and the last lines of the output."""
    one = SUITES[suite]
    started = time.monotonic()
    process = subprocess.Popen(
        one.command(value),
        cwd=root,
        env={**os.environ, **one.environment(value), "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        output, _ = process.communicate(timeout=one.limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        return Verdict.BROKEN, time.monotonic() - started, f"took longer than {one.limit_s:g} s"
    seconds = time.monotonic() - started
    words = "\n".join(output.splitlines()[-_LINES_SHOWN:])
    if process.returncode == 0:
        return Verdict.MISSED, seconds, words
    return (Verdict.FOUND if process.returncode in one.found else Verdict.BROKEN), seconds, words


def tracked() -> list[str]:
    """The files of the checkout that git tracks and that exist."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]
