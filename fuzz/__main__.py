"""`python -m fuzz run | replay | list`: see README.md. Ends with 1 if something was found."""

import argparse
import random
import shutil
import sys
from pathlib import Path
from typing import Final

from fuzz.campaign import Campaign
from fuzz.findings import examine
from fuzz.targets import NAMES, load, quiet

FOLDER: Final = Path("build/fuzz")


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description="Inputs that nobody would send, against all that takes input."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="all targets, or those named")
    run.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    run.add_argument("--seconds", type=float, default=600, help="for all of them together (600)")
    run.add_argument("--seed", type=int, help="the same seed makes the same inputs in the same order")
    run.add_argument("--inputs", type=int, default=0, help="stop each target after so many")
    run.add_argument("--jobs", type=int, default=2, help="targets at a time (2)")
    run.add_argument(
        "--engine",
        choices=("auto", "mutator", "atheris"),
        default="auto",
        help="auto: atheris where it helps and is installed",
    )
    run.add_argument("--folder", type=Path, default=FOLDER)
    run.add_argument(
        "--grow",
        action="store_true",
        help="begin with the inputs that earlier runs kept in FOLDER, and add the counts to its totals.json",
    )
    replay = commands.add_parser("replay", help="run inputs again and say what they do")
    replay.add_argument("target", choices=NAMES)
    replay.add_argument("inputs", nargs="+", type=Path)
    commands.add_parser("list", help="what there is to run")
    given = parser.parse_args(arguments)
    match given.command:
        case "run":
            return _run(given, parser)
        case "replay":
            return _replay(given)
        case _:
            for name in NAMES:
                print(name)
            return 0


def _run(given: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    unknown = set(given.targets) - set(NAMES)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    seed = random.randrange(1 << 31) if given.seed is None else given.seed
    print(f"seed {seed}: --seed {seed} makes the same inputs again", flush=True)
    shutil.rmtree(given.folder / "findings", ignore_errors=True)
    campaign = Campaign(
        given.folder,
        seed=seed,
        jobs=given.jobs,
        inputs=given.inputs,
        engine=given.engine,
        grow=given.grow,
    )
    ended = campaign.run(given.targets or NAMES, given.seconds)
    found = sum(run.findings for run in ended)
    print(
        f"{sum(run.inputs for run in ended):,} inputs, {found or 'nothing'} found"
        + (f": see {given.folder / 'findings'}" if found else "")
    )
    return int(found > 0)


def _replay(given: argparse.Namespace) -> int:
    quiet()
    target = load(given.target)
    failed = False
    for path in given.inputs:
        shown, finding = examine(target, path.read_bytes())
        failed |= finding is not None
        print(
            f"{path}: {f'{finding.kind}{chr(10)}{finding.words}' if finding else f'nothing wrong ({shown})'}"
        )
    if target.close:
        target.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
