"""Which segments are past their log's retention: a pure decision.

Law: only closed segments, from the oldest on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

AHEAD_MS: Final = 60_000
"""A timestamp this far ahead of the clock came from a wrong clock: it does not show the age."""
HOLD_MS: Final = 3_600_000
"""How long a jump of the clock must last before retention uses the new time."""


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that gets no more records, as retention sees it. `end` is exclusive."""

    base: int
    end: int
    bytes: int
    last_timestamp_ms: int


def expired(
    closed: Iterable[ClosedSegment],
    *,
    total_bytes: int,
    now_ms: int,
    retention_ms: int | None,
    retention_bytes: int | None,
) -> int:
    """How many of the `closed` segments to drop, from the oldest on.

    `total_bytes` includes the active segment.

    By age: the latest record is older than `retention_ms`. By size: the other segments still hold
    `retention_bytes`. Counting ends at the first segment to keep, so that the retained records are always one
    contiguous run.
    """
    count = 0
    for segment in closed:
        too_old = retention_ms is not None and segment.last_timestamp_ms < now_ms - retention_ms
        too_much = retention_bytes is not None and total_bytes - segment.bytes >= retention_bytes
        if not (too_old or too_much):
            break
        total_bytes -= segment.bytes
        count += 1
    return count


def aging_from(timestamp_ms: int, noticed_ms: int | None, now_ms: int) -> tuple[int, int | None]:
    """The time from which a record's age counts, and when its future timestamp was noticed, if it has one.

    The age of a record with a future timestamp counts from the moment at which that was noticed.
    """
    if timestamp_ms <= now_ms + AHEAD_MS:
        return timestamp_ms, None
    # min: the clock may have stepped back since.
    noticed = now_ms if noticed_ms is None else min(noticed_ms, now_ms)
    return noticed, noticed


class Aging(Protocol):
    """A segment that gets no more records. `noticed_ms`: when a last timestamp in the future was noticed."""

    noticed_ms: int | None

    @property
    def last_timestamp_ms(self) -> int:
        """The timestamp of its last record."""


def notice(segments: Sequence[Aging], now_ms: int) -> None:
    """Mark the segments with future timestamps: the last ones, because timestamps never decrease."""
    for segment in reversed(segments):
        # The segments before it were marked in an earlier call.
        if segment.noticed_ms is not None:
            return
        _, segment.noticed_ms = aging_from(segment.last_timestamp_ms, None, now_ms)
        if segment.noticed_ms is None:
            return


class SteadyClock:
    """The wall clock as retention uses it: a jump forward counts only after it has lasted `HOLD_MS`.

    A clock that is wrong for a moment would remove events irrecoverably. A step back counts at once: it
    removes nothing.
    """

    def __init__(self) -> None:
        self._wall_ms: int | None = None
        self._monotonic_ms = 0
        self._jumped_ms: int | None = None
        self.ahead_ms = 0
        """How far the wall clock is ahead of the time in use."""

    def now_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """The time to compute ages with."""
        believed = wall_ms if self._wall_ms is None else self._wall_ms + monotonic_ms - self._monotonic_ms
        self.ahead_ms = max(0, wall_ms - believed)
        if self.ahead_ms <= AHEAD_MS:
            self.ahead_ms, self._jumped_ms = 0, None
        elif self._jumped_ms is None:
            self._jumped_ms = monotonic_ms
        # Not believed yet: if the clock steps back within this time, nothing was removed.
        if self._jumped_ms is not None and monotonic_ms - self._jumped_ms < HOLD_MS:
            return believed
        self._jumped_ms = None
        self._wall_ms, self._monotonic_ms, self.ahead_ms = wall_ms, monotonic_ms, 0
        return wall_ms


def must_roll(
    *, first_timestamp_ms: int, bytes_: int, now_ms: int, segment_ms: int, segment_bytes: int
) -> bool:
    """Whether the active segment, which has at least one record, must be closed before the next write."""
    return bytes_ >= segment_bytes or now_ms - first_timestamp_ms >= segment_ms
