"""Which events a page of a log reads, and where the pages before and after it begin. Pure.

Laws: a page shows at most `COUNT_MAX` events, and with a filter looks at no more than `SCAN_MAX`.
Pages that follow one another have every event of a partition once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from amqp_streams.client import PartitionExtent

COUNT_DEFAULT: Final = 50
COUNT_MAX: Final = 200
SCAN_MAX: Final = 200_000
"""Events that a page with a filter looks at, in all partitions together."""
PARTITIONS_MAX: Final = 32
"""Partitions that are read for one page."""


class From(StrEnum):
    """Where a page begins."""

    LATEST = "latest"
    EARLIEST = "earliest"
    OFFSET = "offset"
    TIME = "time"
    AFTER = "after"
    """At the offsets of a mark, and on."""
    BEFORE = "before"
    """Back from the offsets of a mark."""


class Slice(NamedTuple):
    """Events to read of a partition, from offset `start` to before `end`."""

    partition: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Row:
    """An event in a list."""

    partition: str
    offset: int
    timestamp_ms: int
    size: int
    key: str
    content_type: str
    preview: str


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a slice.

    `rows` are all events that match from its start to before `position`; read back, those from `position` to
    its end.
    """

    slice: Slice
    rows: Sequence[Row]
    position: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of events. `older`, `newer`: the marks of the pages before and after it; None: none follows."""

    rows: Sequence[Row]
    older: str | None
    newer: str | None
    looked_at: int


def read_together(partitions: Sequence[PartitionExtent], starts: Mapping[str, int]) -> list[PartitionExtent]:
    """Return the partitions of one page: all, or at most `PARTITIONS_MAX` with the latest events.

    `starts`: the offsets of a mark. The pages after the first one have the same partitions.
    """
    if len(partitions) <= PARTITIONS_MAX:
        return list(partitions)
    if starts:
        return [each for each in partitions if each.partition in starts]
    newest = sorted(partitions, key=lambda each: each.last_timestamp_ms or 0, reverse=True)[:PARTITIONS_MAX]
    return [each for each in partitions if each in newest]


def slices(
    extents: Sequence[PartitionExtent],
    where: From,
    starts: Mapping[str, int],
    *,
    count: int,
    filtered: bool,
) -> list[Slice]:
    """Return what to read. `starts`: the offsets of an offset, a time or a mark, by partition."""
    window = max(count, SCAN_MAX // max(1, len(extents))) if filtered else count
    found = []
    for extent in extents:
        low, high = extent.earliest, extent.next
        at = min(max(starts.get(extent.partition, high if _is_back(where) else low), low), high)
        found.append(
            Slice(extent.partition, max(low, at - window), at)
            if _is_back(where)
            else Slice(extent.partition, at, min(high, at + window))
        )
    return found


def listing(reads: Sequence[Read], extents: Sequence[PartitionExtent], where: From, *, count: int) -> Listing:
    """Return the page of what was read: the events that are nearest to its beginning."""
    rows = sorted((row for read in reads for row in read.rows), key=_time)
    shown = rows[-count:] if _is_back(where) else rows[:count]
    bounds = {extent.partition: extent for extent in extents}
    low, high = {}, {}
    for read in reads:
        part = read.slice.partition
        ours = [row.offset for row in shown if row.partition == part]
        left = [row.offset for row in read.rows if row.offset not in ours]
        # What was read and is not shown belongs to the next page.
        if _is_back(where):
            low[part] = max(left) + 1 if left else read.position
            high[part] = read.slice.end
        else:
            low[part] = read.slice.start
            high[part] = min(left) if left else read.position
    is_older = any(low[part] > bounds[part].earliest for part in low)
    is_newer = any(high[part] < bounds[part].next for part in high)
    looked_at = sum(high[part] - low[part] for part in low)
    return Listing(shown, mark(low) if is_older else None, mark(high) if is_newer else None, looked_at)


def mark(offsets: Mapping[str, int]) -> str:
    """Return offsets by partition as a text for a link."""
    return ",".join(f"{partition}:{offset}" for partition, offset in offsets.items())


def offsets_of(given: str) -> dict[str, int]:
    """Return the offsets of a mark. Parts that are not valid are left out."""
    found = {}
    for part in given[:4096].split(",")[:PARTITIONS_MAX]:
        partition, _, offset = part.rpartition(":")
        if partition and offset.isascii() and offset.isdigit() and len(offset) <= 16:
            found[partition] = int(offset)
    return found


def _is_back(where: From) -> bool:
    return where in {From.LATEST, From.BEFORE}


def _time(row: Row) -> tuple[int, str, int]:
    return row.timestamp_ms, row.partition, row.offset
