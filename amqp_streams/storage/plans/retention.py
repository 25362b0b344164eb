"""Which segments are past their log's retention: a decision, no action. Law: only whole closed segments, only from the oldest on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

AHEAD_MS: Final = 60_000
"""A timestamp further ahead of the clock than this was written by a wrong clock: no age can be judged by it."""
HOLD_MS: Final = 3_600_000
"""How long a jump of the clock must last before retention believes it."""


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """What retention has to know of a segment that gets no more records. `end` is exclusive."""

    base: int
    end: int
    bytes: int
    last_timestamp_ms: int


def expired(
    closed: Iterable[ClosedSegment], *, total_bytes: int, now_ms: int, retention_ms: int | None, retention_bytes: int | None
) -> int:
    """How many of the `closed` segments, counted from the oldest, may go. `total_bytes`: of all segments, the active one included.

    By age: its latest record is older than `retention_ms`. By size: what is left without it still holds `retention_bytes`.
    The first segment that must stay ends the count, so that the retained records are always one contiguous run; later ones are not
    looked at.
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
    """From when on a record's age counts, and when it was noticed that its timestamp lies in the future (None: it does not).

    One that lies in the future counts from the moment at which that was noticed first.
    """
    if timestamp_ms <= now_ms + AHEAD_MS:
        return timestamp_ms, None
    noticed = now_ms if noticed_ms is None else min(noticed_ms, now_ms)
    return noticed, noticed


class Aging(Protocol):
    """A segment that gets no more records. `noticed_ms`: when it was noticed that its last timestamp lies in the future."""

    noticed_ms: int | None

    @property
    def last_timestamp_ms(self) -> int:
        """Of its last record."""


def notice(segments: Sequence[Aging], now_ms: int) -> None:
    """Notice which of these, oldest first, have timestamps in the future: the latest ones, because timestamps never decrease."""
    for segment in reversed(segments):
        if segment.noticed_ms is not None:
            return
        _, segment.noticed_ms = aging_from(segment.last_timestamp_ms, None, now_ms)
        if segment.noticed_ms is None:
            return


class SteadyClock:
    """The wall clock as retention sees it: a jump forward counts only after it has lasted `HOLD_MS`.

    What is removed by a clock that was wrong for a moment does not come back. A step back is believed at once: it removes nothing.
    """

    def __init__(self) -> None:
        self._wall_ms: int | None = None
        self._monotonic_ms = 0
        self._jumped_ms: int | None = None
        self.ahead_ms = 0
        """By how much the wall clock is ahead of what is believed."""

    def now_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """The time to judge ages by."""
        believed = wall_ms if self._wall_ms is None else self._wall_ms + monotonic_ms - self._monotonic_ms
        self.ahead_ms = max(0, wall_ms - believed)
        if self.ahead_ms <= AHEAD_MS:
            self.ahead_ms, self._jumped_ms = 0, None
        elif self._jumped_ms is None:
            self._jumped_ms = monotonic_ms
        if self._jumped_ms is not None and monotonic_ms - self._jumped_ms < HOLD_MS:
            return believed
        self._jumped_ms = None
        self._wall_ms, self._monotonic_ms, self.ahead_ms = wall_ms, monotonic_ms, 0
        return wall_ms


def must_roll(*, first_timestamp_ms: int, bytes_: int, now_ms: int, segment_ms: int, segment_bytes: int) -> bool:
    """Whether the active segment, which holds at least one record, is to be closed before the next one is written."""
    return bytes_ >= segment_bytes or now_ms - first_timestamp_ms >= segment_ms
