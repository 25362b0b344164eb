"""Parses starts and ends in a log: `earliest`, an offset, a time. Pure; the current time is an argument.

| written | means |
|---|---|
| `earliest`, `latest`, `end` | the first event, after the last one, the present end |
| `42`, `0000000000000042`, `offset:42` | the event with this offset |
| `2026-11-21T06:30:00Z`, `2026-11-21 06:30`, `2026-11-21` | a time; UTC if it has no zone |
| `1795242600000`, `time:1795242600000` | a time in milliseconds since 1970: a plain number of 13 digits |
| `-1h`, `-90m`, `now` | a time before now |
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from amqp_streams.client import EARLIEST, LATEST, AfterOffset, AfterTime, LogInfo, PartitionInfo, Start
from service_parts.settings.units import duration_ms

_EPOCH_MS_DIGITS: Final = 13
_OFFSET: Final = re.compile(r"(?:offset:)?([0-9]{1,16})")
_EPOCH_MS: Final = re.compile(r"time:([0-9]{1,15})|([0-9]{13})")


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The event with this number, in each partition."""

    number: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A time, in milliseconds since 1970 UTC."""

    ms: int


def parse_bound(text: str, now_ms: int) -> AtOffset | AtTime:
    """Parse an offset or a time.

    Raises:
        ValueError: the text is neither.
    """
    # Before the offset: 13 digits are a time. An offset of 13 digits is written `offset:…`.
    if found := _EPOCH_MS.fullmatch(text):
        return AtTime(int(found[1] or found[2]))
    if found := _OFFSET.fullmatch(text):
        return AtOffset(int(found[1]))
    if text == "now":
        return AtTime(now_ms)
    try:
        if text.startswith("-"):
            return AtTime(max(0, now_ms - duration_ms(text[1:])))
        moment = datetime.fromisoformat(text)
        return AtTime(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        message = (
            f"{text!r} is neither an offset (42, offset:42) nor a time (2026-11-21T06:30:00Z, -1h, now, "
            f"or milliseconds since 1970: {_EPOCH_MS_DIGITS} digits, time:MS)"
        )
        raise ValueError(message) from error


def parse_start(text: str, now_ms: int) -> Start:
    """A consumer's start: `earliest`, `latest`, or the first event at an offset or time, included.

    Raises:
        ValueError: the text is not a valid start.
    """
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    try:
        bound = parse_bound(text, now_ms)
    except ValueError as error:
        message = f"{error}, nor 'earliest' or 'latest'"
        raise ValueError(message) from error
    # On the wire both conditions are exclusive ("greater than"); people name the first event to read.
    if isinstance(bound, AtOffset):
        return AfterOffset(bound.number - 1) if bound.number else EARLIEST
    return AfterTime(bound.ms - 1) if bound.ms else EARLIEST


@dataclass(frozen=True, slots=True)
class Bounds:
    """The end, exclusive: an offset or a time.

    And, unless following, the ends of the partitions at the start.
    """

    end: AtOffset | AtTime | None
    ends: dict[str, int] | None
    """Partition -> one past its latest offset at the start; None: no such bound."""

    def beyond(self, partition: str | None, offset: int | None, timestamp_ms: int | None) -> bool:
        """Whether this event is past the end of its partition: then no later event is wanted."""
        if (
            self.ends is not None
            and partition is not None
            and offset is not None
            and offset >= self.ends.get(partition, 0)
        ):
            return True
        if isinstance(self.end, AtOffset):
            return offset is not None and offset >= self.end.number
        return isinstance(self.end, AtTime) and timestamp_ms is not None and timestamp_ms >= self.end.ms

    def last(self, partition: str, offset: int) -> bool:
        """Whether no wanted event follows in the partition."""
        if self.ends is not None and offset + 1 >= self.ends.get(partition, 0):
            return True
        return isinstance(self.end, AtOffset) and offset + 1 >= self.end.number


def ends_of(info: LogInfo, partition: str | None = None) -> dict[str, int]:
    """One past the latest offset of each partition (or of the named one); 0 for empty partitions."""
    return {
        one.partition: 0 if one.latest_offset is None else one.latest_offset + 1
        for one in info.partitions
        if partition is None or one.partition == partition
    }


class Remaining:
    """The partitions with more wanted events, from the bounds and the start; updated with each event."""

    def __init__(self, bounds: Bounds, info: LogInfo, start: Start, partition: str | None = None) -> None:
        self._bounds: Final = bounds
        wanted = [one for one in info.partitions if partition is None or one.partition == partition]
        self.gaps: Final = any(one.gaps for one in wanted)
        """Whether the last offset of a partition may belong to no event: then only the end of the log ends
        the reading.
        """
        self._open = {one.partition for one in wanted}
        # Only with known ends: while following, a partition without events may get some.
        if bounds.ends is not None:
            self._open = {
                one.partition
                for one in wanted
                if _has_events(one.latest_offset, one.last_timestamp_ms, start)
            }

        counts = [events_from(one, start) for one in wanted]
        self.events: Final = None if None in counts else sum(count or 0 for count in counts)
        """The number of events from the start on; None if the start is a time: unknown."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def wants(self, partition: str | None, offset: int | None, timestamp_ms: int | None) -> bool:
        """Record an event; False if it is past the end of its partition."""
        if self._bounds.beyond(partition, offset, timestamp_ms):
            self._open.discard(partition or "")
            return False
        if partition is not None and offset is not None and self._bounds.last(partition, offset):
            self._open.discard(partition)
        return True


def events_from(one: PartitionInfo, start: Start) -> int | None:
    """The number of events of a partition from `start` on; None: unknown."""
    if one.latest_offset is None or start == LATEST:
        return 0
    if isinstance(start, AfterTime) or one.earliest_offset is None:
        return None
    before = one.earliest_offset - 1
    after = max(start.offset, before) if isinstance(start, AfterOffset) else before
    return max(0, one.latest_offset - after)


def _has_events(latest: int | None, last_timestamp_ms: int | None, start: Start) -> bool:
    """Whether a partition has an event at or after `start`; True if the peer does not report it."""
    if latest is None or start == LATEST:
        return False
    if isinstance(start, AfterTime):
        return last_timestamp_ms is None or last_timestamp_ms > start.timestamp_ms
    return not isinstance(start, AfterOffset) or latest > start.offset
