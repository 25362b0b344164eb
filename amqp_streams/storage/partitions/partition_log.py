"""[io] One partition of the embedded log: its pending, visible and stored records.

Law: durable before visible. `end` moves only in `accept`, which the store calls when the commit of the
records has ended. Always: start <= synced_end <= flushed_end <= end <= the number of the next append.

Records stay in `tail` (memory) from their commit until they are in a segment, and longer for readers at the
end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, overload

from amqp_streams.errors import CorruptionError, LogDeletedError, StorageError
from amqp_streams.storage.catalog import LogRecord
from amqp_streams.storage.formats import producers, record
from amqp_streams.storage.formats.chunks import Appends, cut, join
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.partitions.segment import Segment, Staged
from amqp_streams.storage.partitions.segments import Segments
from amqp_streams.storage.ports import (
    LATER,
    Chunk,
    CommitQueue,
    Formats,
    Later,
    Mark,
    Numbers,
    PartitionFacts,
    ReadRequest,
)
from amqp_streams.wire.batched.packed import total_bytes

Admit = Callable[["PartitionLog", int, int], None]
"""Called by each append with its bytes and the time; raises DiskFullError if the disk has no space."""

_TAIL_PARTS_MAX: Final = 64


class PartitionLog:
    """One ordered sequence of records. Only the loop's thread uses it."""

    times_may_fall: Final = False
    gaps: Final = False

    def __init__(
        self,
        log: LogRecord,
        index: int,
        segments: Segments,
        admit: Admit,
        queue: CommitQueue,
        *,
        start: int,
        end: int,
    ) -> None:
        self.queue: Final = queue
        self.log: Final = log.name
        self.index: Final = index
        self.uid: Final = log.uid
        self.settings = log.settings
        self.segments: Final = segments
        self.start = start
        self.end = end
        self.flushed_end = end
        self.synced_end = end
        # Until the store is opened again.
        self.failure: StorageError | None = None
        # Until the pending records have failed: see `lose`.
        self.refusal: StorageError | None = None
        self.deletion: LogDeletedError | None = None
        """Why appends are refused while the deletion of the log is in flight."""
        self.busy = False
        """A write to its segments is in flight; at most one is."""
        self.syncing = False
        self.pending_bytes = 0
        self.pending_count = 0
        self.unflushed_bytes = 0
        self.unsynced_bytes = 0
        self.tail: list[Chunk] = []
        self._tail_sizes: list[int] = []
        self.pending_producers_bytes = 0
        self.producers: Table = segments.producers.copy()
        """The table of producers up to `end`."""
        self._marks: list[Mark] = []
        self._pending: list[tuple[int, Sequence[bytes], bytes, Formats]] = []
        self._formatted = False
        """A pending message has a message-format that is not 0."""
        self._next = end
        # The active segment may be empty: then the last timestamp is in an earlier one.
        self.last_ms = segments.active.last_timestamp_ms or max(
            (part.last_timestamp_ms for part in segments.row), default=0
        )
        # `last_ms` of the visible records: `give_up_pending` goes back to it.
        self._visible_ms = self.last_ms
        self._admit: Final = admit

    # -- writes and syncs in flight

    def begin_write(self) -> None:
        """A write to the segments begins."""
        assert not self.busy, "at most one write to its segments is in flight"
        self.busy = True

    def end_write(self) -> None:
        """Record that the write to the segments has ended."""
        self.busy = False

    def begin_sync(self) -> None:
        """Record that a sync begins, of everything that was written to the segments so far."""
        self.syncing = True
        self.unsynced_bytes = 0

    def end_sync(self) -> None:
        """Record that the sync has ended."""
        self.syncing = False

    def refuse_appends(self, error: StorageError) -> None:
        """Refuse appends until the pending records have failed in a commit, or are given up."""
        self.refusal = error

    def take_appends(self) -> None:
        """Undo `refuse_appends`."""
        self.refusal = None

    def stop(self, error: StorageError) -> None:
        """Refuse appends until the store is opened again. Durable records stay readable."""
        self.failure = error

    def begin_deletion(self, error: LogDeletedError) -> None:
        """Refuse appends with `error`, fail pending records, and write no segments.

        The deletion of the log has begun. `cancel_deletion` undoes it.
        """
        self.deletion = error

    def cancel_deletion(self) -> list[tuple[int, int]]:
        """Undo `begin_deletion`, because the log could not be deleted.

        Returns base and size of the runs in memory.
        """
        self.deletion = None
        return [(chunk.base, size) for chunk, size in zip(self.tail, self._tail_sizes, strict=True)]

    @property
    def refused(self) -> StorageError | None:
        """Why appends are refused; None if they are not refused."""
        return self.failure or self.refusal or self.deletion

    @property
    def writable(self) -> bool:
        """Whether its records may be written to segments."""
        return self.failure is None and self.deletion is None

    # -- appending

    @property
    def fits_one_batch(self) -> bool:
        """Whether all pending records fit in one batch: the clock may have jumped by months meanwhile."""
        pending = self._pending
        return self.pending_count <= record.RECORDS_MAX and (
            not pending or pending[-1][0] - pending[0][0] <= record.SPAN_MS_MAX
        )

    @property
    def pending_tables_bytes(self) -> int:
        """The most bytes of the tables of a batch with all pending records."""
        return self.pending_count * (
            record.RECORD_BYTES_MAX if self._formatted else record.ORDINARY_RECORD_BYTES_MAX
        )

    def append(
        self,
        messages: Sequence[bytes],
        header_sizes: bytes,
        now_ms: int,
        numbers: Numbers | None = None,
        formats: Formats = None,
    ) -> int:
        """See `Partition.append`."""
        count = len(messages)
        assert count == len(header_sizes) > 0, "each message has one header size"
        if error := self.refused:
            # Without this, the stored error would collect a traceback at each raise, and keep the messages in
            # its frames in memory.
            raise error.with_traceback(None)
        size = total_bytes(messages)
        # May refuse: nothing has changed yet.
        self._admit(self, size, now_ms)
        base = self._next
        self._next += count
        self.pending_bytes += size
        self.pending_count += count
        self.last_ms = max(self.last_ms, now_ms)
        self._pending.append((self.last_ms, messages, header_sizes, formats))
        if formats is not None:
            assert len(formats) == count, "each message has one message-format"
            self._formatted = True
        if numbers is not None:
            assert len(numbers.sequences) == count, "each message has one number"
            self._marks += producers.marks_of(base, numbers)
            self.pending_producers_bytes += producers.bytes_needed(numbers)
        return base

    def take(self) -> Appends:
        """Remove all pending records and return them as one run."""
        base, marks = self._next - self.pending_count, tuple(self._marks)
        taken = Appends(base, self._pending, marks, self.pending_count, is_formatted=self._formatted)
        self._pending, self._formatted = [], False
        self._marks.clear()
        self.pending_bytes = self.pending_count = self.pending_producers_bytes = 0
        return taken

    def give_up_pending(self) -> int:
        """Drop the pending records after a failed commit; returns their count.

        Their numbers are assigned again.
        """
        count = self.pending_count
        self._pending.clear()
        self._marks.clear()
        self._formatted = False
        self.pending_bytes = self.pending_count = self.pending_producers_bytes = 0
        self.refusal = None
        self._next = self.end
        self.last_ms = self._visible_ms
        return count

    def lose(self, error: StorageError) -> bool:
        """A commit with records of this partition failed.

        Returns whether later records are pending. Their numbers follow those of the lost records, so they
        must fail too, in a commit of their own. Until then, appends are refused.
        """
        if self.pending_count:
            self.refuse_appends(error)
            return True
        self.give_up_pending()
        return False

    def accept(self, chunk: Chunk, size: int, *, on_segment: bool) -> None:
        """Make the records of a commit visible."""
        assert chunk.base == self.end, "commits end in the order of their appends"
        self.tail.append(chunk)
        self._tail_sizes.append(size)
        self.end = chunk.base + len(chunk)
        self._visible_ms = chunk.timestamps[-1]
        if chunk.marks:
            producers.apply(self.producers, producers.entries_of(chunk.marks), self._visible_ms)
        if on_segment:
            assert self.flushed_end == self.end, "the write that ended contains the accepted records"
        else:
            self.unflushed_bytes += size

    # -- writing to segments

    def unflushed(self) -> list[Chunk]:
        """Visible records that are not yet in a segment."""
        return self.tail[bisect_left(self.tail, self.flushed_end, key=_base) :]

    def flushed(self, staged: Staged, *, synced: bool) -> list[Segment]:
        """Apply a staged write that has ended; return the segments that it closed."""
        closed = self.segments.apply(staged)
        self.flushed_end = staged.end
        self.unsynced_bytes += sum(placed.length for placed in staged.placed)
        self.unflushed_bytes = 0
        if synced:
            self.synced_end = staged.end
            self.unsynced_bytes = 0
        # A segment is synced before its successor gets its first byte: see the laws of `segments.py`.
        elif closed:
            self.synced_end = max(self.synced_end, self.segments.active.base)
        return closed

    def evict_first(self) -> bool:
        """Drop the oldest run from memory if a segment has it; returns whether it was dropped."""
        if self.tail and self.tail[0].base < self.flushed_end:
            del self.tail[0], self._tail_sizes[0]
            return True
        return False

    def forget_below(self, start: int) -> list[int]:
        """Everything below `start` was removed; returns the bases of the runs that were in memory."""
        count = bisect_left(self.tail, start, key=_base)
        bases = [chunk.base for chunk in self.tail[:count]]
        del self.tail[:count], self._tail_sizes[:count]
        return bases

    # -- reading

    @overload
    def read(self, at: int, bytes_max: int) -> Chunk | None: ...
    @overload
    def read(self, at: int, bytes_max: int, request: ReadRequest | None) -> Chunk | Later | None: ...
    def read(self, at: int, bytes_max: int, request: ReadRequest | None = None) -> Chunk | Later | None:
        """See `Partition.read`."""
        at = max(at, self.start)
        if at >= self.end:
            return None
        tail = self.tail
        if not tail or at < tail[0].base:
            try:
                return self.segments.read(at, bytes_max, tail[0].base if tail else self.end, request)
            except CorruptionError as error:
                raise self._reason(error) from None
        index = bisect_right(tail, at, key=_base) - 1
        chunk, size = tail[index], self._tail_sizes[index]
        if at > chunk.base or size > bytes_max:
            return cut(chunk, at, bytes_max)
        # Join the next runs that fit as well: small runs would cost the reader a call each.
        last = index + 1
        while (
            last < len(tail)
            and last - index < _TAIL_PARTS_MAX
            and (size := size + self._tail_sizes[last]) <= bytes_max
        ):
            last += 1
        return join(tail[index:last])

    @overload
    def seek_timestamp(self, after_ms: int) -> int: ...
    @overload
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None) -> int | Later: ...
    def seek_timestamp(self, after_ms: int, request: ReadRequest | None = None) -> int | Later:
        """See `Partition.seek_timestamp`."""
        tail = self.tail
        # If the first run in memory begins later, the wanted record may be in a segment.
        if not tail or tail[0].timestamps[0] > after_ms:
            try:
                found = self.segments.seek_timestamp(after_ms, request)
            except CorruptionError as error:
                raise self._reason(error) from None
            if found is LATER:
                return LATER
            if found is not None and (not tail or found < tail[0].base):
                return max(found, self.start)
        index = bisect_right(tail, after_ms, key=_last_timestamp)
        if index == len(tail):
            return self.end
        return tail[index].base + bisect_right(tail[index].timestamps, after_ms)

    def _reason(self, error: CorruptionError) -> StorageError:
        """Return `error`, unless the log is deleted: its files are missing then, but not damaged."""
        if isinstance(self.failure, LogDeletedError):
            return self.failure.with_traceback(None)
        return self.deletion.with_traceback(None) if self.deletion else error

    def follow(self) -> None:
        """See `Partition.follow`."""

    def facts(self) -> PartitionFacts:
        """See `Partition.facts`."""
        first: int | None = self.segments.first_timestamp_ms
        if first is None and self.tail:
            first = self.tail[0].timestamps[0]
        return PartitionFacts(
            start=self.start,
            end=self.end,
            bytes=self.segments.bytes + self.unflushed_bytes,
            first_timestamp_ms=first if self.start < self.end else None,
            last_timestamp_ms=self._visible_ms if self.start < self.end else None,
            failure=str(self.failure) if self.failure else None,
        )


def _base(chunk: Chunk) -> int:
    return chunk.base


def _last_timestamp(chunk: Chunk) -> int:
    return chunk.timestamps[-1]
