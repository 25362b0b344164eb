"""What was read of partitions, in memory: spans of numbers, each with all records in it. Pure.

Kafka has numbers that belong to no record, so a read must know more than its records: which numbers it
covered. A span covers the numbers from `start` to `end`; its chunk has all records in between, or is None if
no number belongs to a record. Spans of a partition do not overlap. The cache holds a bounded number of bytes;
what was used the longest time ago goes first.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from amqp_streams.storage.formats.chunks import cut, part
from amqp_streams.storage.ports import Chunk
from amqp_streams.wire.batched.packed import Packed, pack, total_bytes

RECORD_BYTES: Final = 64
"""What a record in memory takes in addition to its message."""
SPAN_BYTES: Final = 512
"""What a span takes in addition to its records."""


class Missing(Enum):
    """The answer for a number that no span covers."""

    MISSING = auto()


MISSING: Final = Missing.MISSING


@dataclass(slots=True, eq=False)
class Span:
    """The records with numbers from `start` (included) to `end` (excluded)."""

    start: int
    end: int
    chunk: Chunk | None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        assert self.start < self.end, "a span covers numbers"
        records = 0
        if self.chunk is not None:
            assert self.start <= self.chunk.base < self.chunk.end <= self.end, "the records are in the span"
            records = total_bytes(self.chunk.messages) + RECORD_BYTES * len(self.chunk)
        self.size = SPAN_BYTES + records


class Spans:
    """The spans of all partitions. `bytes_max`: how much of them is kept; one span may be larger."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max: Final = bytes_max
        self._spans: Final[dict[Hashable, list[Span]]] = {}
        """By partition, in the order of their numbers."""
        self._used: Final[OrderedDict[Span, Hashable]] = OrderedDict()

    def add(self, partition: Hashable, span: Span) -> None:
        """Keep a span. What it covers already is replaced: numbers never get other records."""
        spans = self._spans.setdefault(partition, [])
        low = bisect_right(spans, span.start, key=lambda each: each.end)
        high = low
        while high < len(spans) and spans[high].start < span.end:
            self._forget(spans[high])
            high += 1
        # Numbers without records stay with the records after them: a reader needs both at once, and would
        # otherwise ask again for what made room for the other.
        if low and spans[low - 1].end == span.start and spans[low - 1].chunk is None:
            low -= 1
            self._forget(spans[low])
            span = Span(spans[low].start, span.end, span.chunk)
        spans[low:high] = [span]
        self._used[span] = partition
        self.bytes += span.size
        while self.bytes > self._bytes_max and len(self._used) > 1:
            oldest = next(iter(self._used))
            self._drop(oldest)

    def find(self, partition: Hashable, at: int, end: int, bytes_max: int) -> Chunk | Missing | None:
        """The records with numbers from `at` to before `end`, at least one, about `bytes_max` bytes.

        None: no number from `at` to before `end` belongs to a record. `MISSING`: no span covers the number
        `uncovered`.
        """
        spans = self._spans.get(partition, [])
        index = bisect_right(spans, at, key=lambda span: span.end)
        while at < end:
            if index == len(spans) or spans[index].start > at:
                return MISSING
            span = spans[index]
            self._used.move_to_end(span)
            chunk = span.chunk
            if chunk is not None and at < chunk.end:
                return _compact(_before(end, cut(chunk, max(at, chunk.base), bytes_max)))
            at, index = span.end, index + 1
        return None

    def uncovered(self, partition: Hashable, at: int) -> int:
        """The first number from `at` on that no span covers."""
        spans = self._spans.get(partition, [])
        for span in spans[bisect_right(spans, at, key=lambda each: each.end) :]:
            if span.start > at:
                break
            at = span.end
        return at

    def last(self, partition: Hashable, at: int) -> Span | None:
        """The span that covers a number, if no span covers the number after that span."""
        spans = self._spans.get(partition, [])
        index = bisect_right(spans, at, key=lambda span: span.end)
        if index == len(spans) or spans[index].start > at:
            return None
        span = spans[index]
        return None if index + 1 < len(spans) and spans[index + 1].start == span.end else span

    def forget(self, partition: Hashable, below: int | None = None) -> None:
        """Drop the spans of a partition, or only those that end at `below` or earlier."""
        for span in tuple(self._spans.get(partition, ())):
            if below is None or span.end <= below:
                self._drop(span)

    def _drop(self, span: Span) -> None:
        partition = self._used[span]
        spans = self._spans[partition]
        # A partition may have many thousand spans, and one step may drop hundreds of them.
        index = bisect_left(spans, span.start, key=lambda each: each.start)
        assert spans[index] is span, "the spans are in the order of their numbers"
        del spans[index]
        if not spans:
            del self._spans[partition]
        self._forget(span)

    def _forget(self, span: Span) -> None:
        del self._used[span]
        self.bytes -= span.size


def _before(end: int, chunk: Chunk) -> Chunk | None:
    """The records in front of `end`: a span may have been read when the partition had more records."""
    if chunk.end <= end:
        return chunk
    count = chunk.index(end)
    return part(chunk, 0, count) if count > 0 else None


def _compact(chunk: Chunk | None) -> Chunk | None:
    """The same chunk. Who keeps a small part of a buffer must not keep the whole buffer in memory."""
    if chunk is None or not isinstance(messages := chunk.messages, Packed):
        return chunk
    if 2 * messages.body_bytes >= len(messages.buffer):
        return chunk
    return replace(chunk, messages=pack(messages.buffer, messages.ends))
