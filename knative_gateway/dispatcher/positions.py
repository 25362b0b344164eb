"""Positions in a partition, as the gateway stores them. Pure.

A position is the offset of the last event before it; the empty text is the position before all events.

The engine's offsets are decimal numbers of one length, so their texts sort like the numbers, and differences
count events. With offsets of another form nothing is counted; everything else works.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

BEGINNING: Final = ""


class Lost(NamedTuple):
    """Events that retention removed before they were delivered: those after one offset, up to and with
    another.
    """

    after: str
    last: str
    events: int


def stored(position: str | None) -> str:
    """The position as the gateway stores it, from the log's form, in which None is before all events."""
    return BEGINNING if position is None else position


def read_from(position: str) -> str | None:
    """The position in the log's form."""
    return position or None


def distance(behind: str, ahead: str) -> int | None:
    """How many events are after `behind`, up to and with `ahead`; at least 0. None: the offsets are not
    numbers.
    """
    first, last = _number(behind), _number(ahead)
    return None if first is None or last is None else max(0, last - first)


def lost(position: str, oldest: str) -> Lost | None:
    """What a subscriber at a position misses if the log now begins after `oldest`."""
    events = distance(position, oldest)
    return Lost(position, oldest, events) if events else None


def gaps(passed: str, offsets: Sequence[str]) -> Sequence[tuple[str, str]]:
    """The gaps in a run of offsets that follows `passed`: each after the first offset, up to and with the
    second.
    """
    if not offsets or distance(passed, offsets[-1]) in {len(offsets), None}:
        return ()
    missing: list[tuple[str, str]] = []
    for offset in offsets:
        if offset <= passed:
            continue
        if (distance(passed, offset) or 0) > 1:
            missing.append((passed, previous(offset)))
        passed = offset
    return missing


def previous(offset: str) -> str:
    """The position just before an event; the beginning if the offset is not a number, so that no event is
    missed.
    """
    number = _number(offset)
    return BEGINNING if not number else f"{number - 1:0{len(offset)}d}"


def given(text: str) -> Mapping[int, str]:
    """The offsets of PARTITION=OFFSET,…, the form of annotations and commands."""
    return {
        int(partition): offset for partition, _, offset in (pair.partition("=") for pair in text.split(","))
    }


def padded(offset: str, like: str) -> str:
    """An offset in the engine's length; people write it without leading zeros."""
    return offset.zfill(len(like)) if offset.isdigit() else offset


def _number(position: str) -> int | None:
    if position == BEGINNING:
        return -1
    return int(position) if position.isascii() and position.isdigit() else None
