"""Offsets: record number n of a partition <-> its text on the wire, 16 decimal digits padded with zeros.

One law: bytewise order of the texts is log order (Event Streams 5.1.1). The reserved words `@earliest` and
`@latest` are told apart here and nowhere else, because '@' sorts after digits and no comparison of texts
would get them right.
"""

from dataclasses import dataclass
from typing import Final

from amqp_streams.names import OFFSET_EARLIEST, OFFSET_LATEST

OFFSET_DIGITS: Final = 16
OFFSET_MAX: Final = 10**OFFSET_DIGITS - 1
"""At a million events a second a partition gets here after 317 years."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """`@earliest`: before every retained event."""


@dataclass(frozen=True, slots=True)
class Latest:
    """`@latest`: after every event that there is now."""


Position = int | Earliest | Latest


def offset_text(number: int) -> str:
    """The offset of record `number`, 0..OFFSET_MAX, as it goes into a symbol."""
    assert 0 <= number <= OFFSET_MAX, number
    return f"{number:016d}"


def offset_number(value: object) -> int | None:
    """The record number that an annotation or an entry of an answer gives; None if `value` is not a text of
    16 decimal digits.
    """
    if isinstance(value, str) and len(value) == OFFSET_DIGITS and value.isascii() and value.isdigit():
        return int(value)
    return None


def parse_offset(text: str) -> Position:
    """What an offset given by a peer or a person means.

    Raises:
        ValueError: it is neither 16 decimal digits nor a reserved word. The message is fit for the peer.
    """
    if text == OFFSET_EARLIEST:
        return Earliest()
    if text == OFFSET_LATEST:
        return Latest()
    if (number := offset_number(text)) is not None:
        return number
    shown = text if len(text) <= 2 * OFFSET_DIGITS else text[: 2 * OFFSET_DIGITS] + "…"
    message = (
        f"{shown!r} is not a valid offset: use 16 decimal digits as in event-streams-offset,"
        f" {OFFSET_EARLIEST!r} or {OFFSET_LATEST!r}"
    )
    raise ValueError(message)
