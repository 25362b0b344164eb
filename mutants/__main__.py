"""`python -m mutants run | report | list`: see docs/reliability.md.

`run` ends with 1 unless every mutant was found.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mutants import results
from mutants.catalogue import Mutant, read
from mutants.hunt import Hunt, Verdict
from mutants.suites import SUITES

FOLDER: Final = Path("build/mutants")


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m mutants", description="Put fixed faults back, one at a time: which suite finds each?"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="all mutants, or those named")
    run.add_argument("mutants", nargs="*", metavar="MUTANT")
    run.add_argument("--suite", action="append", choices=list(SUITES), default=[], help="only this suite")
    run.add_argument("--cheapest", action="store_true", help="only the cheapest suite of each mutant")
    run.add_argument("--missing", action="store_true", help="only what has no result yet for today's mutant")
    run.add_argument("--results", type=Path, default=results.FILE, help="where the results are kept")
    run.add_argument("--folder", type=Path, default=FOLDER, help="for the copies of the checkout")
    report = commands.add_parser("report", help="what was found in all runs so far")
    report.add_argument("--results", type=Path, default=results.FILE)
    commands.add_parser("list", help="the mutants and the suites that must find them")
    given = parser.parse_args(arguments)
    mutants = read()
    if given.command == "list":
        for one in mutants:
            print(f"{one.name}  [{', '.join(one.found_by)}]\n    {one.fault}")
        print(f"{len(mutants)} mutants")
        return 0
    if given.command == "report":
        print(results.table(results.read(given.results), mutants))
        return 0
    unknown = set(given.mutants) - {one.name for one in mutants}
    if unknown:
        parser.error(f"no mutant named {', '.join(sorted(unknown))}: `python -m mutants list` lists them")
    return _run([one for one in mutants if not given.mutants or one.name in given.mutants], given)


def _run(mutants: list[Mutant], given: argparse.Namespace) -> int:
    kept, by_name = results.read(given.results), {one.name: one for one in mutants}
    done = set(results.current(kept, mutants)) if given.missing else set()
    hunt, verdicts = Hunt(given.folder.absolute()), set[Verdict]()
    for one in hunt.runs(mutants, given.suite, cheapest=given.cheapest, done=done):
        print(f"{one.mutant:55} {one.suite:10} {one.verdict:24} {one.seconds:6.1f} s", flush=True)
        if one.verdict is not Verdict.FOUND and one.words:
            print("    " + one.words.replace("\n", "\n    "), flush=True)
        verdicts.add(one.verdict)
        # A run that did not work says nothing about the mutant.
        if one.verdict in {Verdict.FOUND, Verdict.MISSED}:
            kept = results.with_run(kept, by_name[one.mutant], one, f"{datetime.now(UTC):%Y-%m-%d}")
            results.write(kept, given.results)
    print("\n" + results.table(kept, mutants))
    return int(bool(verdicts - {Verdict.FOUND}))


if __name__ == "__main__":
    sys.exit(main())
