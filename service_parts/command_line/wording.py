"""What programs print: JSON, errors as one sentence, without numbers of errors, and tables. Pure."""

import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import click

_ESCAPED: Final = {
    code: f"\\u{code:04x}"
    for code in chain(
        range(0x7F, 0xA0),
        (0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
        range(0x202A, 0x202F),
        range(0x2066, 0x206A),
    )
}
"""JSON leaves these characters as they are, but terminals interpret them or change the order of the text, or
line readers treat them as line ends.
"""


def plain_sentence(error: BaseException) -> str:
    """Return the text of an error for people. For one of the operating system: file and reason."""
    # click's text names the option.
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return reason if error.filename is None else f"{error.filename}: {reason}"
    return str(error) or str(type(error).__doc__)


def printable_json(
    value: object,
    *,
    indent: int | None = None,
    ascii_only: bool = True,
    default: Callable[[Any], object] | None = None,
) -> str:
    """Return a value as JSON for stdout or stderr, without characters that act on a terminal.

    `default`: see `json.dumps`. Numbers that are not finite raise a ValueError.
    """
    return escaped(
        json.dumps(value, indent=indent, ensure_ascii=ascii_only, allow_nan=False, default=default)
    )


def escaped(text: str) -> str:
    """Return JSON with escapes in place of the characters that act on a terminal."""
    # All of them but one are not ASCII. Most texts are.
    return text if text.isascii() and "\x7f" not in text else text.translate(_ESCAPED)


def json_line(sentence: str, condition: str | int | None) -> str:
    """Return an error as programs read it.

    `condition` is the code that they can compare: an AMQP condition or an HTTP status or null.
    """
    return printable_json({"error": sentence, "condition": condition})


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table whose columns are as wide as their longest cells."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (columns, *rows)
    ]
