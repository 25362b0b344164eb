"""Offsets inside the gateway: texts of 16 digits, which sort like the numbers. Pure.

The store has used this form since its first version. Users see numbers: the API, statuses, log lines and
spans convert with `offset_number`. -
"""

from typing import Final, overload

DIGITS: Final = 16


@overload
def offset_text(offset: int) -> str: ...
@overload
def offset_text(offset: int | None) -> str | None: ...
def offset_text(offset: int | None) -> str | None:
    """The text of an offset of the client."""
    return None if offset is None else f"{offset:0{DIGITS}d}"


def offset_number(text: str) -> int | str | None:
    """Return an offset as users see it; None for the position before all events.

    A text of another form, which an earlier version stored, is returned unchanged.
    """
    if len(text) <= DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return text or None
