"""Runs of records for a consumer, and the cursor that reads them from a partition.

Spec: Event Streams 1, 4.4, 5.2.

Law: the read unit is not the delivery unit. A cursor keeps a chunk as the store returns it, and returns runs
as small as the credit; it can stop at any record. Filtering stops too: a stretch that a filter skipped is
reported.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, takewhile
from typing import Final

from amqp_streams.filters import Compiled
from amqp_streams.storage.formats.chunks import formats_at, part
from amqp_streams.storage.ports import LATER, Chunk, Formats, Later, Partition, ReadRequest
from amqp_streams.streams.consuming.held import Held
from amqp_streams.wire.batched.packed import Packed

READ_BYTES: Final = 128 << 10
"""Size of a read: large enough to make reading cheap, small enough for thousands of readers."""
MERGE_READ_BYTES: Final = 256 << 10
"""Size of a read if the link has several partitions: the size of the store's batches, so that no batch is
decoded twice.
"""
TURN_EVENTS: Final = 256
"""Events of one partition before the next partition has its turn."""
STRETCH_US: Final = 500
"""Approximate time that a filter may take before the records that it skipped are reported."""
STRETCH_STEPS: Final = 1 << 17
"""The same bound in steps of a filter's work: the cost of a record depends on its content."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Records that the filters skipped: more records may follow."""

    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Records of one partition with consecutive numbers: `count` from index `start` of `chunk`.

    `chunk` has no gaps.

    `skipped`: the records that retention removed before this reader reached them.
    """

    partition: Partition
    chunk: Chunk
    start: int
    count: int
    skipped: int

    @property
    def first(self) -> int:
        """The number of the first record."""
        return self.chunk.base + self.start


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """Records of one partition to be delivered together, in ascending order, not necessarily adjacent.

    `bytes`: includes the overhead of each. `after`: number of the next record to look at. `skipped`: as in
    `Run`. `weighed`: filters evaluated the records' content. `formats`: their message-formats.
    """

    partition: Partition
    offsets: "array[int]"
    timestamps: "array[int]"
    messages: Sequence[bytes]
    bytes: int
    skipped: int
    after: int
    weighed: bool = False
    formats: Formats = None


@dataclass(frozen=True, slots=True)
class Room:
    """How much space records may take: `size` bytes, with an `overhead` for each.

    `one`: the first always fits.

    `formatted`: the additional bytes of a record with a message-format.
    """

    size: int
    overhead: int
    one: bool
    formatted: int = 0

    def counted(self, messages: Sequence[bytes], formats: Formats = None) -> tuple[int, int]:
        """How many of these fit, from the first, and the most bytes that they take.

        `formats`: those of their run.
        """
        overhead = self.overhead + (0 if formats is None else self.formatted)
        if isinstance(messages, Packed):
            count = max(messages.within(self.size, overhead), int(self.one))
            return count, messages.ends[count] - messages.ends[0] + overhead * count
        sizes, count = list(map(len, messages)), len(messages)
        # Hot path: messages of one size need no sum.
        each = sizes[0] + overhead
        if sizes.count(sizes[0]) == count:
            count = min(count, max(self.size // each, int(self.one))) if each else count
            return count, each * count
        ends = list(accumulate(sizes))
        # All fit: the usual case, without a search.
        if ends[-1] + overhead * count > self.size:
            count = bisect_right(
                range(count), self.size, key=lambda index: ends[index] + overhead * (index + 1)
            )
            count = max(count, int(self.one))
        return count, ends[count - 1] + overhead * count if count else 0


class PartitionCursor:
    """Reads one partition."""

    __slots__ = (
        "_unordered",
        "chosen",
        "chunk",
        "end",
        "filters",
        "finished",
        "held",
        "judged",
        "latest",
        "missed",
        "partition",
        "position",
        "read_bytes",
        "request",
        "used",
    )

    def __init__(
        self,
        partition: Partition,
        position: int,
        filters: Compiled | None,
        *,
        latest: int,
        held: Held,
        request: ReadRequest | None = None,
    ) -> None:
        self.partition = partition
        self.position = position
        self.filters = filters
        self.held = held
        self.request = request
        self.used = False
        self._unordered: Final = partition.times_may_fall
        self.read_bytes = READ_BYTES
        self.latest = latest
        self.chunk: Chunk | None = None
        self.chosen: deque[int] = deque()
        """Indices in the chunk that passed the filters, of the records before number `judged`."""
        self.judged = position
        self.missed = 0
        """Records that retention removed before this cursor reached them; the next run reports them."""
        self.finished = False
        """No record from here on can match."""
        self.end: Final = None if filters is None else filters.bounds.end(self.latest)
        """No record from this number on can match."""

    def run(self, count_max: int, now_ms: int | None, bytes_max: int | None) -> Run | Passed | Later | None:
        """The next records; or the records that filters skipped; or None if all durable records were read.

        `LATER`: see `Partition.read`.
        """
        chunk = self._chunk(listed=True)
        if chunk is None or chunk is LATER:
            return chunk
        start = self.position - chunk.base if chunk.offsets is None else chunk.index(self.position)
        # Hot path: without filters, no record is looked at.
        if self.filters is None:
            count = min(count_max, len(chunk) - start)
            if chunk.offsets is not None:
                count = chunk.adjacent(start, start + count) - start
            if bytes_max is not None:
                count = _fitting(chunk.messages[start : start + count], bytes_max)
            # In front of the gap, if one follows: the next run begins behind it.
            self.position = count + (self.position if chunk.offsets is None else chunk.offsets[start])
            return run_of(self.partition, chunk, start, count, self._missed())
        if not self.chosen:
            passed = self._judge(self.filters, chunk, start, now_ms)
            if not self.chosen:
                self.position = self.judged
                return Passed(passed)
        return self._next_chosen(chunk, count_max, bytes_max)

    def pick(self, count_max: int, now_ms: int | None, room: Room) -> Picked | Passed | Later | None:
        """The next records that fit, adjacent or not. Otherwise like `run`."""
        filters = self.filters
        each = filters is not None and (filters.content or (self._unordered and filters.bounds.timed))
        chunk = self._chunk(listed=each)
        if chunk is None or chunk is LATER:
            return chunk
        start = chunk.index(self.position)
        if filters is None or not each:
            return self._pick_within(chunk, filters, count_max, room)
        if not self.chosen:
            passed = self._judge(filters, chunk, start, now_ms)
            if not self.chosen:
                self.position = self.judged
                return Passed(passed)
        indices = list(islice(self.chosen, count_max))
        messages = list(map(chunk.messages.__getitem__, indices))
        count, size = room.counted(messages, chunk.formats)
        # Not even one record fits: the caller sends what it has, and calls again.
        if not count:
            return Passed(0)
        for _ in range(count):
            self.chosen.popleft()
        self.position = chunk.number(self.chosen[0]) if self.chosen else self.judged
        offsets = array("Q", map(chunk.number, indices[:count]))
        stamps = array("q", map(chunk.timestamps.__getitem__, indices[:count]))
        formats = formats_at(chunk.formats, indices[:count])
        return Picked(
            self.partition,
            offsets,
            stamps,
            messages[:count],
            size,
            self._missed(),
            self.position,
            weighed=True,
            formats=formats,
        )

    def _pick_within(
        self, chunk: Chunk, filters: Compiled | None, count_max: int, room: Room
    ) -> Picked | Passed:
        """Like `pick`, for filters that only compare offset and time."""
        start = chunk.index(self.position)
        low, high = start, len(chunk)
        if filters is not None:
            low, high = filters.bounds.indices(
                chunk.base, chunk.timestamps, start, high, self.latest, offsets=chunk.offsets
            )
            if low == high:
                self.position = chunk.end
                self.finished = filters.bounds.done(self.position - 1, chunk.timestamps[-1], self.latest)
                return Passed(len(chunk) - start)
        last = min(high, low + count_max)
        count, size = room.counted(chunk.messages[low:last], chunk.formats)
        if not count:
            return Passed(0)
        last = low + count
        self.position = chunk.number(last - 1) + 1
        # The records from `high` on are beyond a bound, so no later one matches.
        self.finished = last == high < len(chunk)
        first = chunk.number(low)
        numbers = (
            array("Q", range(first, first + count)) if chunk.offsets is None else chunk.offsets[low:last]
        )
        stamps, messages, formats = (
            chunk.timestamps[low:last],
            chunk.messages[low:last],
            formats_at(chunk.formats, slice(low, last)),
        )
        return Picked(
            self.partition, numbers, stamps, messages, size, self._missed(), self.position, formats=formats
        )

    def _chunk(self, *, listed: bool) -> Chunk | Later | None:
        """The chunk at the position; None if there is nothing to read.

        `listed`: its messages are looked at one by one, so they become a list once.
        """
        if self.end is not None and self.position >= self.end:
            self.finished = True
        # Records that were chosen earlier must still be taken.
        if self.finished and not self.chosen:
            return None
        chunk = self.chunk
        self.used = True
        if chunk is None or not chunk.base <= self.position < chunk.end:
            found = self.partition.read(self.position, self.read_bytes, self.request)
            if found is None or found is LATER:
                self.chunk = None
                self.held.release(self)
                # The numbers up to the end belong to no record: a reader that stayed below would look again.
                if found is None and self.position < self.partition.end:
                    self._advance(self.partition.end)
                return found
            chunk = self.chunk = found
            self.held.hold(self, chunk)
        if listed and isinstance(chunk.messages, Packed):
            chunk = self.chunk = replace(chunk, messages=list(chunk.messages))
        if chunk.base > self.position:
            self._advance(chunk.base)
        return chunk

    def _advance(self, number: int) -> None:
        """Continue at `number`: no record in between can be read. Below `start`, retention removed them."""
        self.missed += max(0, min(self.partition.start, number) - self.position)
        self.position = number

    def _judge(self, filters: Compiled, chunk: Chunk, start: int, now_ms: int | None) -> int:
        """Apply the filters to the next records of the chunk; returns the number of records examined."""
        # A filter of content may be slow, so it examines few records at once. Bounds cost one search.
        stretch = max(1, STRETCH_US // max(1, filters.weight)) if filters.content else len(chunk)
        end = min(len(chunk), start + stretch)
        chosen, end = filters.judge(
            chunk.messages,
            chunk.base,
            chunk.timestamps,
            partition=str(self.partition.index),
            latest=self.latest,
            now_ms=now_ms,
            start=start,
            end=end,
            work_max=STRETCH_STEPS,
            offsets=chunk.offsets,
            ordered=not self._unordered,
        )
        self.chosen.extend(chosen)
        self.judged = chunk.number(end - 1) + 1
        bounds = filters.bounds
        if bounds.done(self.judged - 1, None if self._unordered else chunk.timestamps[end - 1], self.latest):
            self.finished = True
        elif (
            self.chosen
            and not filters.content
            and not bounds.before
            and bounds.before_ms is None
            and not (self._unordered and bounds.timed)
        ):
            # Offsets and timestamps never decrease: after the first match, all records match.
            self.filters = None
        return end - start

    def _next_chosen(self, chunk: Chunk, count_max: int, bytes_max: int | None) -> Run:
        """The first adjacent records that matched."""
        first = self.chosen.popleft()
        if bytes_max is not None:
            count_max = _fitting(chunk.messages[first : first + count_max], bytes_max)
        count = 1
        while count < count_max and self.chosen and self.chosen[0] == first + count:
            if chunk.offsets is not None and chunk.adjacent(first, first + count + 1) == first + count:
                break
            self.chosen.popleft()
            count += 1
        # Without filters, records behind `judged` match as well, and `chosen` has only those before it.
        if self.chosen or self.filters is None:
            self.position = chunk.number(first + count - 1) + 1
        else:
            self.position = self.judged
        if self.filters is None:
            self.chosen.clear()
        return run_of(self.partition, chunk, first, count, self._missed())

    def _missed(self) -> int:
        missed, self.missed = self.missed, 0
        return missed

    def forget(self) -> None:
        """Drop the chunk, and a read that is not answered.

        Records that matched and were not taken are filtered again.
        """
        if self.request is not None:
            self.request.cancel()
        self.held.release(self)
        self.chunk = None
        # The indices belong to the dropped chunk.
        if self.chosen:
            self.chosen.clear()
            self.finished = False


def run_of(partition: Partition, chunk: Chunk, start: int, count: int, skipped: int) -> Run:
    """The run of records whose numbers follow each other, in a chunk without gaps."""
    if chunk.offsets is not None:
        chunk, start = part(chunk, start, start + count), 0
    return Run(partition, chunk, start, count, skipped)


def _fitting(messages: Sequence[bytes], bytes_max: int) -> int:
    """How many of these messages fit into so many bytes, from the first; at least one."""
    sizes = accumulate(map(len, messages))
    return max(1, sum(1 for _ in takewhile(lambda size: size <= bytes_max, sizes)))
