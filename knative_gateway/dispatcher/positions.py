"""Positions in a partition, in the form that the gateway stores. Pure.

A position is the offset of the last event before it. The empty text is the position before all events. The
engine's offsets are decimal numbers of one length: they sort as texts like the numbers, and a difference is a
number of events. Offsets of another form work, too, but are not counted.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

BEGINNING: Final = ""


class Lost(NamedTuple):
    """Events that retention removed before they were delivered: the offsets after `after`, up to and
    including `last`.
    """

    after: str
    last: str
    events: int


def stored(position: str | None) -> str:
    """Return a position in the form of the gateway. In the form of the log, None is before all events."""
    return BEGINNING if position is None else position


def read_from(position: str) -> str | None:
    """Return a position in the form of the log."""
    return position or None


def distance(behind: str, ahead: str) -> int | None:
    """Return how many events are after `behind`, up to and including `ahead`; at least 0.

    None: the offsets are not numbers.
    """
    first, last = _number(behind), _number(ahead)
    return None if first is None or last is None else max(0, last - first)


def behind(reached: str, read: str, *, gone: str, end: str) -> int:
    """Return how many events a subscriber that completed all events up to `reached` will still get.

    `read`: the position of its reader, which has the events before it. `gone`: the position up to which
    retention has removed the events of the log. `end`: the position after the last event.
    """
    # The reader learns of events that were removed before it read them with the next event, which may never
    # come.
    never_read = distance(max(reached, read), min(gone, end)) or 0
    return (distance(reached, end) or 0) - never_read


def lost(position: str, oldest: str) -> Lost | None:
    """Return the events that a subscriber at `position` misses if the log now begins after `oldest`."""
    events = distance(position, oldest)
    return Lost(position, oldest, events) if events else None


def gaps(passed: str, offsets: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return the gaps in a run of offsets that follows `passed`.

    Each gap begins after its first offset and includes its second one.
    """
    # Nearly all batches have no gap: one subtraction is enough for them.
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
    """Return the position just before an event. If the offset is not a number: the beginning, so that no
    event is missed.
    """
    number = _number(offset)
    # The width stays the same, because positions are compared as texts.
    return BEGINNING if not number else f"{number - 1:0{len(offset)}d}"


def given(text: str) -> Mapping[int, str]:
    """Return the offsets in `PARTITION=OFFSET,…`, the form of annotations and commands."""
    return {
        int(partition): offset for partition, _, offset in (pair.partition("=") for pair in text.split(","))
    }


def padded(offset: str, like: str) -> str:
    """Return an offset with the leading zeros of the engine. Users write offsets without them."""
    return offset.zfill(len(like)) if offset.isdigit() else offset


def _number(position: str) -> int | None:
    if position == BEGINNING:
        return -1
    return int(position) if position.isascii() and position.isdigit() else None
