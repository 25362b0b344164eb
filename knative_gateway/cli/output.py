"""What commands print: changes that were made, and errors of single resources."""

import click

from service_parts.command_line.wording import json_line, printable_json

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object on each line.")


def report(words: str, *, as_json: bool, **values: object) -> None:
    """Report on stdout that a change was made: as a line for people, or `values` as a line of JSON."""
    click.echo(printable_json(values) if as_json else words)


def complain(what: str, error: Exception, *, as_json: bool) -> None:
    """Report on stderr that one of several resources was refused, and why."""
    words = f"{what}: {error}"
    click.echo(json_line(words, getattr(error, "code", None)) if as_json else words, err=True)
