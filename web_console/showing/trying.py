"""The results of a filter for the events of a page. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from web_console.showing.browsing import Row, Slice

MATCHES: Final = "matches"
FALSE: Final = "false"
UNKNOWN: Final = "unknown"
NO_MATCH: Final = "does not match"

Position = tuple[str, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The events of a page, each with its result."""

    rows: Sequence[tuple[Row, str]]

    @property
    def matches(self) -> int:
        """How many events match."""
        return sum(result == MATCHES for _, result in self.rows)

    @property
    def unknown(self) -> int:
        """For how many events the result is unknown."""
        return sum(result == UNKNOWN for _, result in self.rows)


def slices_of(rows: Sequence[Row]) -> list[Slice]:
    """Return the smallest slice of each partition that has all its rows."""
    offsets: dict[str, list[int]] = {}
    for row in rows:
        offsets.setdefault(row.partition, []).append(row.offset)
    return [Slice(partition, min(found), max(found) + 1) for partition, found in offsets.items()]


def tried(
    rows: Sequence[Row], matching: Collection[Position], opposite: Collection[Position] | None
) -> Tried:
    """Return the rows with their results.

    `matching`: the events that match. `opposite`: the events that match the negation of the filter; None: the
    node does not accept the negation.
    """

    def result(row: Row) -> str:
        position = (row.partition, row.offset)
        if position in matching:
            return MATCHES
        if opposite is None:
            return NO_MATCH
        return FALSE if position in opposite else UNKNOWN

    return Tried([(row, result(row)) for row in rows])
