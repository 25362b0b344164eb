"""Converts between the number of a record in its partition and its offset on the wire.

16 decimal digits, padded with zeros.

Law: the bytewise order of the texts is the order in the log (Event Streams 5.1.1). The reserved words
`@earliest` and `@latest` are recognized here only: '@' sorts after digits, so comparing texts would give
wrong results.
"""

from dataclasses import dataclass
from typing import Final

from amqp_streams.names import OFFSET_EARLIEST, OFFSET_LATEST

OFFSET_DIGITS: Final = 16
OFFSET_MAX: Final = 10**OFFSET_DIGITS - 1
"""At a million events a second, a partition reaches this number after 317 years."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """`@earliest`: before the earliest retained event."""


@dataclass(frozen=True, slots=True)
class Latest:
    """`@latest`: after the last event at the time of the request."""


Position = int | Earliest | Latest


def offset_text(number: int) -> str:
    """Return the offset of record `number` (0..OFFSET_MAX) as text for a symbol."""
    assert 0 <= number <= OFFSET_MAX, number
    return f"{number:016d}"


def offset_number(value: object) -> int | None:
    """The record number that an annotation or an entry of an answer gives.

    None if `value` is not a text of 16 decimal digits.
    """
    if isinstance(value, str) and len(value) == OFFSET_DIGITS and value.isascii() and value.isdigit():
        return int(value)
    return None


def parse_offset(text: str) -> Position:
    """Parse an offset from a client or a user.

    Raises:
        ValueError: it is neither 16 decimal digits nor a reserved word. The message may be shown to the
        client.
    """
    if text == OFFSET_EARLIEST:
        return Earliest()
    if text == OFFSET_LATEST:
        return Latest()
    if (number := offset_number(text)) is not None:
        return number
    # The text comes from a peer, so the message shows a bounded part of it.
    shown = text if len(text) <= 2 * OFFSET_DIGITS else text[: 2 * OFFSET_DIGITS] + "…"
    message = (
        f"{shown!r} is not a valid offset: use 16 decimal digits as in event-streams-offset,"
        f" {OFFSET_EARLIEST!r} or {OFFSET_LATEST!r}"
    )
    raise ValueError(message)
