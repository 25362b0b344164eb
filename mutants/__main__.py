"""`python -m mutants run | list`: see docs/reliability.md. Ends with 1 unless every mutant was found."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from mutants.catalogue import Mutant, read
from mutants.hunt import Hunt, Run, Verdict
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
    run.add_argument("--json", type=Path, help="write the runs to this file as well")
    run.add_argument("--cheapest", action="store_true", help="only the cheapest suite of each mutant")
    run.add_argument("--state", type=Path, help="go on from this file, and keep the runs there")
    run.add_argument("--folder", type=Path, default=FOLDER, help="for the copies of the checkout")
    commands.add_parser("list", help="the mutants and the suites that must find them")
    given = parser.parse_args(arguments)
    mutants = read()
    if given.command == "list":
        for one in mutants:
            print(f"{one.name}  [{', '.join(one.found_by)}]\n    {one.fault}")
        print(f"{len(mutants)} mutants")
        return 0
    unknown = set(given.mutants) - {one.name for one in mutants}
    if unknown:
        parser.error(f"no mutant named {', '.join(sorted(unknown))}: `python -m mutants list` lists them")
    return _run([one for one in mutants if not given.mutants or one.name in given.mutants], given)


def _run(mutants: list[Mutant], given: argparse.Namespace) -> int:
    runs = _stored(given.state)
    done = {(one.mutant, one.suite) for one in runs}
    hunt = Hunt(given.folder.absolute())
    for one in hunt.runs(mutants, given.suite, cheapest=given.cheapest, done=done):
        runs.append(one)
        if given.state:
            _write(given.state, runs)
        print(f"{one.mutant:55} {one.suite:10} {one.verdict:24} {one.seconds:6.1f} s", flush=True)
        if one.verdict is not Verdict.FOUND and one.words:
            print("    " + one.words.replace("\n", "\n    "), flush=True)
    if given.json:
        _write(given.json, runs)
    print()
    for suite in SUITES:
        mine = [one for one in runs if one.suite == suite]
        if mine:
            found = sum(one.verdict is Verdict.FOUND for one in mine)
            print(f"{suite:10} found {found} of {len(mine)}: {SUITES[suite].what}")
    tried = {one.mutant for one in runs}
    found_names = {one.mutant for one in runs if one.verdict is Verdict.FOUND}
    print(f"{'all':10} found {len(found_names)} of {len(tried)}")
    return int(tried != found_names or any(one.verdict is not Verdict.FOUND for one in runs))


def _stored(state: Path | None) -> list[Run]:
    """The runs that an earlier call has stored, but those that did not run as they should."""
    if state is None or not state.exists():
        return []
    runs = [Run(**one | {"verdict": Verdict(one["verdict"])}) for one in json.loads(state.read_text("utf-8"))]
    return [one for one in runs if one.verdict in (Verdict.FOUND, Verdict.MISSED)]


def _write(file: Path, runs: list[Run]) -> None:
    fresh = file.with_name(file.name + ".new")
    fresh.write_text(json.dumps([asdict(one) for one in runs], indent=2) + "\n", encoding="utf-8")
    fresh.replace(file)


if __name__ == "__main__":
    sys.exit(main())
