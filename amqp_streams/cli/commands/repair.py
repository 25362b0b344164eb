"""`amqp-streams repair`: make a damaged data directory open again, without a node."""

from dataclasses import asdict
from itertools import chain, count
from pathlib import Path
from time import strftime

import click

from amqp_streams.cli.terminal.console import confirmed, declined, print_json
from amqp_streams.storage import repairing
from amqp_streams.storage.catalog import QUARANTINE
from amqp_streams.storage.repairing import Plan

_FAILED = 1


@click.command(short_help="Make a damaged data directory open again.")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def repair(directory: Path, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Repair the data directory DIRECTORY while no node uses it. Exits with 1 if data is lost.

    Most damage needs no repair: a start of the node cuts torn tails and rebuilds indexes. Run this
    if the node refuses to start, or if 'verify' finds damage.

    Nothing is guessed and nothing is deleted. Files that prevent a start are moved to DIRECTORY/quarantine.
    Damaged files are copied there. Damaged records stay refused: a reader gets an error that names the next
    readable offset.

    \b
    Examples:
      amqp-streams repair data --dry-run
      amqp-streams repair data --yes
      amqp-streams repair data --yes --json | jq '.lost[]'
    """
    planned = repairing.plan(directory)
    # Before the question, because nothing is changed.
    if dry_run:
        return _show_plan(planned, as_json=as_json)
    # Without steps nothing changes, so nothing needs to be confirmed.
    if planned.steps and not yes:
        # On stderr, like the question: stdout has only the result.
        _print_steps(planned, err=True)
        if not confirmed(f"Repair {directory}?"):
            return declined("nothing was changed", as_json=as_json)
    done = repairing.repair(planned, name=_unused(directory / QUARANTINE, strftime("%Y%m%d-%H%M%S")))
    if as_json:
        print_json(
            {
                "ok": not done.lost,
                "quarantine": str(done.quarantine) if done.quarantine else None,
                "steps": [asdict(step) for step in done.steps],
                "lost": list(done.lost),
            }
        )
        return _FAILED if done.lost else 0
    _print_steps(planned)
    for words in done.lost:
        click.echo(f"lost: {words}")
    where = f"; see {done.quarantine}" if done.quarantine else ""
    verdict = f"{len(done.lost)} losses" if done.lost else "nothing is lost"
    click.echo(f"the directory opens; {verdict}{where}")
    return _FAILED if done.lost else 0


def _unused(folder: Path, name: str) -> str:
    """`name`, with a number behind it if an earlier repair of the same second has it."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(one for one in names if not (folder / one).exists())


def _show_plan(planned: Plan, *, as_json: bool) -> int:
    lost = [step for step in planned.steps if step.lost] or planned.findings
    if as_json:
        print_json(
            {
                "ok": not lost,
                "steps": [asdict(step) for step in planned.steps],
                "findings": [asdict(finding) for finding in planned.findings],
            }
        )
        return _FAILED if lost else 0
    _print_steps(planned)
    for finding in planned.findings:
        click.echo(str(finding))
    if not planned.steps and not planned.findings:
        click.echo("no damage; the next start needs no repair")
    return _FAILED if lost else 0


def _print_steps(planned: Plan, *, err: bool = False) -> None:
    for step in planned.steps:
        click.echo(str(step), err=err)
