"""[io] What the runs of all times found: `results.json`, which is kept in the repository.

Law: a result counts only for the mutant and the suite as they were when it ran. Whoever changes one of them
must run it again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mutants.catalogue import Mutant
from mutants.hunt import Run, Verdict
from mutants.suites import SUITES

FILE: Final = Path(__file__).parent / "results.json"
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Result:
    """The last run of a suite on a mutant.

    `of` identifies the mutant and what the suite was run with. `on` is the day of the run, as in 2026-11-28.
    """

    mutant: str
    suite: str
    verdict: Verdict
    seconds: float
    of: str
    on: str


Results = Mapping[tuple[str, str], Result]
"""By mutant and suite."""


def identity(mutant: Mutant, suite: str) -> str:
    """A number that changes with the mutant's patch and with what the suite is run with."""
    content = [[change.file, change.old, change.new] for change in mutant.changes]
    text = json.dumps([content, suite, mutant.found_by[suite]])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def read(file: Path = FILE) -> Results:
    """Return the stored results; none if the file does not exist."""
    if not file.exists():
        return {}
    stored = [
        Result(**one | {"verdict": Verdict(one["verdict"])}) for one in json.loads(file.read_text("utf-8"))
    ]
    return {(one.mutant, one.suite): one for one in stored}


def current(results: Results, mutants: Iterable[Mutant]) -> Results:
    """Return the results that count for these mutants, as they are now."""
    return {
        (mutant.name, suite): result
        for mutant in mutants
        for suite in mutant.found_by
        if (result := results.get((mutant.name, suite))) and result.of == identity(mutant, suite)
    }


def with_run(results: Results, mutant: Mutant, run: Run, on: str) -> Results:
    """Return the results with this run in the place of an older one."""
    result = Result(
        run.mutant, run.suite, run.verdict, round(run.seconds, 1), identity(mutant, run.suite), on
    )
    return {**results, (run.mutant, run.suite): result}


def write(results: Results, file: Path = FILE) -> None:
    """Store the results, a line each, in the order of their names."""
    lines = [json.dumps(asdict(results[key])) for key in sorted(results)]
    fresh = file.with_name(file.name + ".new")
    fresh.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    fresh.replace(file)


def table(results: Results, mutants: Sequence[Mutant]) -> str:
    """Found mutants by suite, and the names of those that are missed or were not tried."""
    known = current(results, mutants)
    lines = [f"{'suite':10} {'name it':>8} {'tried':>6} {'found':>6} {'median s':>9}"]
    for suite in SUITES:
        named = [mutant.name for mutant in mutants if suite in mutant.found_by]
        mine = [known[name, suite] for name in named if (name, suite) in known]
        found = sorted(one.seconds for one in mine if one.verdict is Verdict.FOUND)
        median = f"{found[len(found) // 2]:.1f}" if found else "-"
        lines.append(f"{suite:10} {len(named):8} {len(mine):6} {len(found):6} {median:>9}")
    tried = {name for name, _ in known}
    found_names = {name for (name, _), one in known.items() if one.verdict is Verdict.FOUND}
    lines.append(f"{'all':10} {len(mutants):8} {len(tried):6} {len(found_names):6}")
    for words, names in (
        ("tried, but not found", tried - found_names),
        ("not tried", {mutant.name for mutant in mutants} - tried),
    ):
        if names:
            lines.append(f"\n{words}:\n" + "\n".join(f"    {name}" for name in sorted(names)))
    return "\n".join(lines)
