"""Positions in a partition: the offset of the last event that is behind one; the empty text is before all. Pure.

Offsets of the engine are decimal numbers of one length: their texts sort like them, and a difference counts events. With those of another
engine nothing is counted, and everything else works.
"""

from collections.abc import Mapping, Sequence
from typing import Final

BEGINNING: Final = ""


def stored(position: str | None) -> str:
    """A position of the log's as it is kept."""
    return BEGINNING if position is None else position


def read_from(position: str) -> str | None:
    """A kept position as the log takes it."""
    return position or None


def distance(behind: str, ahead: str) -> int | None:
    """How many events lie after `behind` up to `ahead`; 0 if it is not ahead; None: nobody can tell."""
    first, last = _number(behind), _number(ahead)
    return None if first is None or last is None else max(0, last - first)


def gaps(passed: str, offsets: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Where events are missing between a position and the offsets that follow it: after the first, up to and with the second offset."""
    if not offsets or distance(passed, offsets[-1]) in {len(offsets), None}:
        return ()
    found: list[tuple[str, str]] = []
    for offset in offsets:
        if offset <= passed:
            continue
        if (distance(passed, offset) or 0) > 1:
            found.append((passed, previous(offset)))
        passed = offset
    return found


def previous(offset: str) -> str:
    """The position just before an event; None of another engine's is known, so that all before is read, too."""
    number = _number(offset)
    return BEGINNING if not number else f"{number - 1:0{len(offset)}d}"


def given(text: str) -> Mapping[int, str]:
    """Positions as annotations and commands write them: PARTITION=OFFSET,… ."""
    return {int(partition): offset for partition, _, offset in (entry.partition("=") for entry in text.split(","))}


def padded(offset: str, like: str) -> str:
    """An offset as people write it, without zeros in front, as the engine does."""
    return offset.zfill(len(like)) if offset.isdigit() else offset


def _number(position: str) -> int | None:
    if position == BEGINNING:
        return -1
    return int(position) if position.isascii() and position.isdigit() else None
