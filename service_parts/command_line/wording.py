"""What programs print: errors as one sentence, without numbers of errors, and tables. Pure."""

import json
from collections.abc import Sequence

import click


def plain_sentence(error: BaseException) -> str:
    """Return the text of an error for people. For one of the operating system: file and reason."""
    # click's text names the option.
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return reason if error.filename is None else f"{error.filename}: {reason}"
    return str(error) or str(type(error).__doc__)


def json_line(sentence: str, condition: str | int | None) -> str:
    """Return an error as programs read it.

    `condition` is the code that they can compare: an AMQP condition or an HTTP status or null.
    """
    return json.dumps({"error": sentence, "condition": condition})


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table whose columns are as wide as their longest cells."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (columns, *rows)
    ]
