"""Which segments are past their log's retention: a decision, no action. Law: only whole closed segments, only from the oldest on."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """What retention has to know of a segment that gets no more records. `end` is exclusive."""

    base: int
    end: int
    bytes: int
    last_timestamp_ms: int


def expired(
    closed: Sequence[ClosedSegment], *, active_bytes: int, now_ms: int, retention_ms: int | None, retention_bytes: int | None
) -> int:
    """How many of the `closed` segments, counted from the oldest, may go.

    By age: its latest record is older than `retention_ms`. By size: what is left without it still holds `retention_bytes`.
    The first segment that must stay ends the count, so that the retained records are always one contiguous run.
    """
    total = active_bytes + sum(segment.bytes for segment in closed)
    for count, segment in enumerate(closed):
        too_old = retention_ms is not None and segment.last_timestamp_ms < now_ms - retention_ms
        too_much = retention_bytes is not None and total - segment.bytes >= retention_bytes
        if not (too_old or too_much):
            return count
        total -= segment.bytes
    return len(closed)


def must_roll(*, first_timestamp_ms: int, bytes_: int, now_ms: int, segment_ms: int, segment_bytes: int) -> bool:
    """Whether the active segment, which holds at least one record, is to be closed before the next one is written."""
    return bytes_ >= segment_bytes or now_ms - first_timestamp_ms >= segment_ms
