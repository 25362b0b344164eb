"""The partitions of a `MemoryStore`, and the queues of their commits."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, cycle, islice
from typing import Final, Protocol, overload

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage.formats import producers
from amqp_streams.storage.formats.chunks import cut, part
from amqp_streams.storage.plans.retention import ClosedSegment, aging_from, expired, must_roll, notice
from amqp_streams.storage.ports import (
    Chunk,
    CommitDone,
    Formats,
    Later,
    Numbers,
    Partition,
    PartitionFacts,
    ReadRequest,
)


@dataclass(frozen=True, slots=True)
class Uneven:
    """How the partitions of a store are uneven.

    `skips`: how many numbers belong to no record after each record, in turns. `times_fall`: append times fall
    with the clock.
    """

    skips: Sequence[int] = (0, 0, 2, 0, 1, 0, 0, 0, 3)
    times_fall: bool = True


@dataclass(slots=True, eq=False)
class _MemorySegment:
    base: int
    chunks: list[Chunk] = field(default_factory=list)
    bytes: int = 0
    noticed_ms: int | None = None

    @property
    def end(self) -> int:
        return self.chunks[-1].end if self.chunks else self.base

    @property
    def last_timestamp_ms(self) -> int:
        return self.chunks[-1].timestamps[-1]


class MemoryPartition:
    """One partition of a `MemoryStore`."""

    def __init__(
        self,
        queue: "MemoryCommitQueue",
        log: str,
        index: int,
        settings: LogSettings,
        uneven: Uneven | None = None,
    ) -> None:
        self.queue = queue
        self.gaps: Final = uneven is not None
        self.times_may_fall: Final = uneven is not None and uneven.times_fall
        self._skips: Final = cycle((0,) if uneven is None else uneven.skips)
        self.log: Final = log
        self.index: Final = index
        self.settings = settings
        self.start = 0
        self.end = 0
        self.failure: StorageError | None = None
        self.refusal: StorageError | None = None
        self.producers: producers.Table = {}
        self._next = 0
        self._last_ms = 0
        self._segments = [_MemorySegment(0)]

    def append(
        self,
        messages: Sequence[bytes],
        header_sizes: bytes,
        now_ms: int,
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> int | None:
        """See `Partition.append`."""
        assert len(messages) == len(header_sizes) > 0, "each message has one header size"
        # Before a number is given: a refused append must not leave a gap.
        if error := self.failure or self.refusal:
            raise error
        chunk = self.taken(messages, now_ms, header_sizes, numbers, formats)
        self.queue.append(self, chunk)
        return None if self.gaps else chunk.base

    def taken(
        self,
        messages: Sequence[bytes],
        now_ms: int,
        header_sizes: bytes | None = None,
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> Chunk:
        """Give numbers and times to new records."""
        base = self._next
        if not self.gaps:
            self._next += len(messages)
        # The clock may go back; the timestamps of a partition never decrease.
        self._last_ms = now_ms if self.times_may_fall else max(self._last_ms, now_ms)
        timestamps = array("q", [self._last_ms]) * len(messages)
        marks = producers.marks_of(base, numbers) if numbers else ()
        sizes = bytes(len(messages)) if header_sizes is None else header_sizes
        return Chunk(base, timestamps, sizes, list(messages), marks, formats)

    @overload
    def read(self, at: int, bytes_max: int) -> Chunk | None: ...
    @overload
    def read(self, at: int, bytes_max: int, request: ReadRequest | None) -> Chunk | Later | None: ...
    def read(self, at: int, bytes_max: int, request: ReadRequest | None = None) -> Chunk | Later | None:  # noqa: ARG002  everything is in memory
        """See `Partition.read`."""
        # Retention may have removed what the reader asks for.
        at = max(at, self.start)
        if at >= self.end:
            return None
        if self.gaps:
            chunks = (chunk for segment in self._segments for chunk in segment.chunks if chunk.end > at)
            found = next(chunks, None)
            return None if found is None else cut(found, max(at, found.base), bytes_max)
        segment = self._segments[bisect_right(self._segments, at, key=lambda segment: segment.base) - 1]
        chunk = segment.chunks[bisect_right(segment.chunks, at, key=lambda chunk: chunk.base) - 1]
        return cut(chunk, at, bytes_max)

    @overload
    def seek_timestamp(self, after_ms: int) -> int: ...
    @overload
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None) -> int | Later: ...
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None = None) -> int | Later:  # noqa: ARG002  everything is in memory
        """See `Partition.seek_timestamp`."""
        for segment in self._segments:
            for chunk in segment.chunks:
                # Only the chunk that has the record is searched in detail.
                if chunk.timestamps[-1] > after_ms:
                    return chunk.number(bisect_right(chunk.timestamps, after_ms))
        return self.end

    def facts(self) -> PartitionFacts:
        """See `Partition.facts`."""
        chunks = [chunk for segment in self._segments for chunk in segment.chunks]
        return PartitionFacts(
            start=self.start,
            end=self.end,
            bytes=sum(segment.bytes for segment in self._segments),
            first_timestamp_ms=chunks[0].timestamps[0] if chunks else None,
            last_timestamp_ms=chunks[-1].timestamps[-1] if chunks else None,
            failure=str(self.failure) if self.failure else None,
        )

    def follow(self) -> None:
        """See `Partition.follow`."""

    def make_visible(self, chunk: Chunk) -> None:
        """Take a committed chunk into the log."""
        if self.gaps:
            steps = [1 + skipped for skipped in islice(self._skips, len(chunk))]
            offsets = array("Q", accumulate(steps, initial=self.end))
            self._next = offsets.pop()
            # In one chunk even if no number is missing in between: `offsets` is then left out.
            chunk = part(replace(chunk, base=self.end, offsets=offsets), 0, len(chunk), chunk.marks)
        assert chunk.base == self.end, "commits end in the order of their appends"
        active, settings = self._segments[-1], self.settings
        if active.chunks and must_roll(
            first_timestamp_ms=active.chunks[0].timestamps[0],
            bytes_=active.bytes,
            now_ms=chunk.timestamps[0],
            segment_ms=settings.segment_ms,
            segment_bytes=settings.segment_bytes,
        ):
            active = _MemorySegment(self.end)
            self._segments.append(active)
        # With the records: a producer's sequence counts only when its event is visible.
        if chunk.marks:
            producers.apply(self.producers, producers.entries_of(chunk.marks), chunk.timestamps[-1])
        active.chunks.append(chunk)
        active.bytes += sum(map(len, chunk.messages))
        self.end = self._next if self.gaps else chunk.end

    def forget_uncommitted(self) -> None:
        """The next append gets the number after the last visible record."""
        self._next = self.end

    def retain(self, now_ms: int) -> bool:
        """Drop what retention lets go; whether `start` moved."""
        active, settings = self._segments[-1], self.settings
        if active.chunks:
            first_ms, active.noticed_ms = aging_from(
                active.chunks[0].timestamps[0], active.noticed_ms, now_ms
            )
            if now_ms - first_ms >= settings.segment_ms:
                active.noticed_ms = None
                self._segments.append(_MemorySegment(self.end))
        count = expired(
            self._closed(now_ms),
            total_bytes=sum(segment.bytes for segment in self._segments),
            now_ms=now_ms,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
        )
        # Whole segments, oldest first, as on the disk.
        del self._segments[:count]
        self.start = self._segments[0].base
        return count > 0

    def _closed(self, now_ms: int) -> Iterator[ClosedSegment]:
        closed = self._segments[:-1]
        notice(closed, now_ms)
        for each in closed:
            last_ms, each.noticed_ms = aging_from(each.last_timestamp_ms, each.noticed_ms, now_ms)
            yield ClosedSegment(each.base, each.end, each.bytes, last_ms)


class Committing(Protocol):
    """What a queue needs of its store. `auto`: commits end at once."""

    auto: bool
    on_commit: Callable[[CommitDone], None]


class MemoryCommitQueue:
    """Partitions of a `MemoryStore` whose records become visible together."""

    def __init__(self, store: Committing, *, alone: bool = False) -> None:
        self.alone: Final = alone
        self.sequence = 0
        self._store: Final = store
        self._pending: list[tuple[MemoryPartition, Chunk]] = []
        self._in_flight: list[tuple[MemoryPartition, Chunk]] | None = None
        self._wanted = False
        self._failing: dict[Partition, StorageError] = {}

    @property
    def pending_bytes(self) -> int:
        """See `CommitQueue.pending_bytes`."""
        return _bytes([*self._pending, *(self._in_flight or ())])

    @property
    def in_flight(self) -> bool:
        """Whether a commit waits for `complete`."""
        return self._in_flight is not None

    @property
    def idle(self) -> bool:
        """Whether no append waits for a commit or for its end."""
        return self._in_flight is None and not self._pending

    def append(self, partition: MemoryPartition, chunk: Chunk) -> None:
        """Add records to the next commit."""
        self._pending.append((partition, chunk))

    def commit(self) -> None:
        """See `Store.commit`."""
        if self._in_flight is not None:
            # One commit at a time: the next one starts when this one ends.
            self._wanted = True
        elif self._pending:
            self._start()
            while self._store.auto and self.in_flight:
                self.complete()

    def complete(self) -> CommitDone:
        """End the commit in flight. Its records become visible, except in partitions that `fail` named."""
        assert self._in_flight is not None, "a commit is in flight"
        ended, sequence = self._in_flight, self.sequence - 1
        failures: dict[Partition, StorageError] = {}
        for partition, chunk in ended:
            # Looked at when the commit ends: the partition may have failed after it began.
            if error := partition.failure or partition.refusal or self._failing.get(partition):
                failures[partition] = error
            else:
                partition.make_visible(chunk)
        for failed in failures:
            self._refuse(failed)
        self._failing.clear()
        events = sum(len(chunk) for _, chunk in ended)
        done = CommitDone(self, sequence, events, _bytes(ended), 0.0, failures)
        self._in_flight = None
        if self._wanted and self._pending:
            self._start()
        self._wanted = False
        # Last: the callee may append and commit again.
        self._store.on_commit(done)
        return done

    def fail(self, partition: Partition, error: StorageError) -> None:
        """Make `partition` lose what it has in the commit in flight or, without one, in the next."""
        self._failing[partition] = error

    def _start(self) -> None:
        self._in_flight, self._pending = self._pending, []
        self.sequence += 1

    def _refuse(self, partition: Partition) -> None:
        """Numbers after a lost record cannot stay.

        What is pending fails with its own commit, and until then nothing is taken.
        """
        assert isinstance(partition, MemoryPartition)
        waiting = any(owner is partition for owner, _ in self._pending)
        partition.refusal = (
            (StorageError("the commit before this one failed") if waiting else None)
            if not partition.failure
            else None
        )
        if not waiting:
            partition.forget_uncommitted()


def _bytes(entries: Sequence[tuple[MemoryPartition, Chunk]]) -> int:
    return sum(sum(map(len, chunk.messages)) for _, chunk in entries)
