"""`amqp-streams verify` and `dump`: a data directory read without the server."""

from pathlib import Path

import click

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(short_help="Check a data directory without the server.")
@click.argument("directory", type=_DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each finding and one for the sum.")
def verify(directory: Path, *, as_json: bool) -> int:
    """Check everything in the data directory DIRECTORY: checksums, order, indexes. Changes nothing; ends 1 when damage is found.

    \b
    Examples:
      amqp-streams verify data
      amqp-streams verify data --json | jq .
    """
    raise NotImplementedError


@click.command(short_help="Show the stored records of a log without the server.")
@click.argument("directory", type=_DIRECTORY)
@click.argument("log")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.  [default: all, one after the other]")
@click.option("--from", "start", metavar="PLACE", help="The first record: an offset or a time.  [default: earliest]")
@click.option("--max", "records_max", type=click.IntRange(min=1), metavar="N", help="Stop after this many records.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line for each record.")
def dump(directory: Path, log: str, *, partition: int | None, start: str | None, records_max: int | None, as_json: bool) -> int:
    """Show the records of LOG in the data directory DIRECTORY as lines.

    \b
    Examples:
      amqp-streams dump data temps --max 10
      amqp-streams dump data temps --partition 0 --from 42 --json | jq .body
    """
    raise NotImplementedError
