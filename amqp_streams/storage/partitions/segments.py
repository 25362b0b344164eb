"""[io] The segments of one partition: reading records from disk, and preparing writes.

Laws: bytes of a partition are written in record order; a segment is synced before its successor gets its
first byte. After a crash, therefore, only the last segment can be torn.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from amqp_streams.config import LogSettings
from amqp_streams.errors import CorruptionError, StorageError
from amqp_streams.storage.disk.files import OpenFile
from amqp_streams.storage.disk.work import Call, Replace, Step, SyncFile, SyncFolder, Write
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats import producers, record
from amqp_streams.storage.formats.chunks import Appends, join
from amqp_streams.storage.formats.index import Index
from amqp_streams.storage.formats.producers import Table
from amqp_streams.storage.partitions.reading import Reading, Stretch
from amqp_streams.storage.partitions.segment import Placed, Segment, Staged, segment_path
from amqp_streams.storage.partitions.sources import COMPRESSED_SUFFIX
from amqp_streams.storage.plans.retention import ClosedSegment, aging_from, must_roll, notice
from amqp_streams.storage.ports import LATER, Chunk, Later, ReadRequest
from amqp_streams.wire.batched.packed import total_bytes

_CHUNK_PARTS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Writing:
    """What a write begins with. `closed_file`: see `Segments`."""

    chunks: Sequence[Chunk | Appends]
    size: int
    settings: LogSettings
    sync: bool
    segment: Segment
    file: OpenFile
    closed_file: OpenFile | None


class Segments:
    """All segments of a partition; the last one is active. At least one, whose file may not exist yet."""

    def __init__(
        self, folder: Path, seed: int, reading: Reading, row: list[Segment], reached: Table | None = None
    ) -> None:
        assert row, "a partition has an active segment"
        self.folder: Final = folder
        self.seed: Final = seed
        self.row: Final = row
        self.producers: Final[Table] = reached or {}
        """The table of producers of everything written to these segments."""
        self._reading: Final = reading
        self.bytes = sum(segment.file_bytes for segment in row)
        """The bytes of all files."""
        self._settled = 0
        """Closed segments whose base is lower are compressed, or are not to be compressed."""
        self._closed_file: OpenFile | None = None
        """The segment that `close_active` closed, until it is synced: only then is the next one written."""

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.row[-1]

    @property
    def first_timestamp_ms(self) -> int | None:
        """The timestamp of the first record on disk."""
        return next((segment.first_timestamp_ms for segment in self.row if segment.bytes), None)

    # -- writing

    def stage(
        self, chunks: Sequence[Chunk | Appends], size: int, settings: LogSettings, *, sync: bool
    ) -> Staged:
        """Prepare to write the records of `chunks` (together `size` bytes); `sync` adds a sync.

        Until the write has ended, no other call may change the active segment.

        Raises:
            OSError: the active segment cannot be opened or created.
        """
        segment, staged = self.active, Staged(chunks[-1].end)
        is_new = not segment.bytes and not segment.exists
        file = self._reading.file(segment.path, create=is_new)
        if is_new:
            staged.created.append(segment.path)
        writing = _Writing(chunks, size, settings, sync, segment, file, self._closed_file)
        staged.steps.append(Call(partial(self._encode, staged, writing)))
        return staged

    def _encode(self, staged: Staged, writing: _Writing) -> None:
        """In the thread that writes, because a megabyte takes a millisecond.

        Raises:
            OSError: a new segment cannot be created.
        """
        segment, file, settings = writing.segment, writing.file, writing.settings
        position, first_ms, steps = segment.bytes, segment.first_timestamp_ms, staged.steps
        # All writes to a file in one work have the same `size_before`: a failure undoes all or none.
        began = position
        # A segment is synced before its successor gets its first byte: see the laws of this module.
        if not position and writing.closed_file:
            steps.append(SyncFile(writing.closed_file))
        chunks = [chunk.joined() if isinstance(chunk, Appends) else chunk for chunk in writing.chunks]
        for piece in record.batches(join(chunks), writing.size):
            # First: if a later call fails, each file that was created has its write, which removes it.
            buffers, now_ms = record.encode(piece, self.seed), piece.timestamps[0]
            if position and must_roll(
                first_timestamp_ms=first_ms,
                bytes_=position,
                now_ms=now_ms,
                segment_ms=settings.segment_ms,
                segment_bytes=settings.segment_bytes,
            ):
                # The old segment before the first byte of the new one.
                steps.append(SyncFile(file))
                path, position, began = segment_path(self.folder, piece.base), 0, 0
                segment = Segment(path, piece.base, piece.base)
                # Not by `Reading`, which only the event loop uses.
                file = staged.files[path] = OpenFile(self._reading.files, path, create=True, write=True)
                staged.opened.append(segment)
                staged.created.append(path)
            if not position:
                first_ms = now_ms
                steps.append(SyncFolder(self.folder))  # the file's name must survive a power loss too
            length = len(buffers[0]) + len(buffers[1])
            steps.append(Write(file, buffers, position, began, created=not segment.exists))
            staged.written.append(file)
            entries = producers.entries_of(piece.marks) if piece.marks else None
            end, last_ms = piece.base + len(piece), piece.timestamps[-1]
            staged.placed.append(Placed(segment, position, length, piece.base, end, now_ms, last_ms, entries))
            position += length
        if writing.sync:
            steps.append(SyncFile(file))

    def apply(self, staged: Staged) -> list[Segment]:
        """Apply a write that has ended; return the segments that it closed."""
        closed: list[Segment] = []
        current = self.active
        self._closed_file = None
        for file in staged.files.values():
            self._reading.keep(file)
        for segment in staged.opened:
            # The value is that of the first record. A closed segment ages by its last record.
            self.active.noticed_ms = None
            closed.append(self.active)
            self.row.append(segment)
        for placed in staged.placed:
            segment = placed.segment
            assert segment.bytes == placed.position, "batches follow each other"
            if segment is not current:  # the table of a closed segment has no producers of later segments
                current.producers, current = self.producers.copy(), segment
            if placed.entries:
                producers.apply(self.producers, placed.entries, placed.last_timestamp_ms)
            if segment.index is None:
                segment.index = Index()
            if not segment.bytes:
                segment.first_timestamp_ms = placed.first_timestamp_ms
            segment.exists = True
            segment.index.add(placed.base, placed.first_timestamp_ms, placed.position)
            segment.bytes += placed.length
            segment.end, segment.last_timestamp_ms = placed.end, placed.last_timestamp_ms
            self.bytes += placed.length
        # The first step refers to `staged`: this circle would hold files and batches until Python finds it.
        staged.steps.clear()
        return closed

    def file(self, segment: Segment) -> OpenFile:
        """The segment's file.

        Raises:
            OSError: it cannot be opened.
        """
        return self._reading.file(segment.path)

    def forget(self, staged: Staged) -> None:
        """The write failed, and the files that were created for it are removed."""
        for path in staged.created:
            self._reading.forget(path)
        staged.steps.clear()  # see `apply`

    def index_step(self, segment: Segment) -> Step:
        """A step that writes the segment's index; run it after the segment is synced."""
        segment.covered = segment.bytes
        reached = self.producers if segment is self.active else segment.producers
        step = Replace(
            segment.index_path,
            index_file.encode(segment.coverage(), self._index_at_once(segment), self.seed, reached),
        )
        if segment is not self.active:
            segment.index = segment.producers = None  # a reader that needs the index reads its file
        return step

    def close_active(self, end: int) -> Segment:
        """Begin a new segment at `end`, and return the one that was active.

        Creates the file, whose name keeps the number.

        Raises:
            OSError: it cannot be created.
        """
        closed_file = self.file(self.active)
        closed, opened = self.active, Segment(segment_path(self.folder, end), end, end, exists=True)
        self._reading.file(opened.path, create=True)
        self.row.append(opened)
        closed.producers, closed.noticed_ms = self.producers.copy(), None
        self._closed_file = closed_file
        return closed

    def closed(self, now_ms: int) -> Iterator[ClosedSegment]:
        """The closed segments from the oldest on, as retention sees them."""
        closed = self.row[:-1]
        notice(closed, now_ms)
        for part in closed:
            last_ms, part.noticed_ms = aging_from(part.last_timestamp_ms, part.noticed_ms, now_ms)
            yield ClosedSegment(part.base, part.end, part.file_bytes, last_ms)

    def active_is_due(self, now_ms: int, segment_ms: int) -> bool:
        """Whether the active segment has records and is old enough to be closed."""
        active = self.active
        if not active.bytes:
            return False
        first_ms, active.noticed_ms = aging_from(active.first_timestamp_ms, active.noticed_ms, now_ms)
        return now_ms - first_ms >= segment_ms

    def drop(self, count: int) -> list[Segment]:
        """Remove the first `count` segments from the list; the caller removes their files."""
        dropped = self.row[:count]
        del self.row[:count]
        for segment in dropped:
            self.bytes -= segment.file_bytes
            self._reading.forget(segment.path)
            self.release(segment.path)
        return dropped

    def compressible(self, bytes_min: int) -> Segment | None:
        """The oldest closed segment that is to be compressed: its index on the disk covers all of it."""
        settled = True
        for number in range(bisect_left(self.row, self._settled, key=_base), len(self.row) - 1):
            segment = self.row[number]
            if segment.stored is not None or segment.unfit or segment.bytes < bytes_min:
                if settled:
                    self._settled = segment.base + 1
            elif segment.saved and segment.covered == segment.bytes:
                return segment
            else:
                settled = False  # its index is being written
        return None

    def replace(self, segment: Segment, stored: int) -> None:
        """Read the compressed file of a segment, which has `stored` bytes, from now on."""
        old = segment.path
        self.bytes += stored - segment.file_bytes
        segment.path, segment.other, segment.stored = old.with_suffix(COMPRESSED_SUFFIX), old, stored
        # Reads in flight have the old file.
        self._reading.forget(old)
        self.release(old)

    def release(self, path: Path) -> None:
        """Close the file of a segment that was synced or removed.

        The disk space of a removed file is free only after the file is closed.
        """
        if self._closed_file and self._closed_file.path == path:
            self._closed_file = None

    # -- reading

    def read(self, at: int, bytes_max: int, after: int, request: ReadRequest | None = None) -> Chunk | Later:
        """Record from `at` on. `after` is the number of the first readable record after all segments.

        `LATER` only with a request, see `Partition.read`.

        Raises:
            CorruptionError: the record was stored, but no segment has it.
            StorageError: the disk failed.
        """
        index = max(0, bisect_right(self.row, at, key=_base) - 1)
        segment = self.row[index]
        if at >= segment.end or at < segment.base:
            raise self._corruption(segment, segment.bytes, at, self._next_base(index, at, after))
        segment_index = self._index(segment, at, request)
        if segment_index is LATER:
            return LATER
        position, until = segment_index.extent_of(at, segment.bytes)
        stretch = self._batches(segment, position, until, at, request)
        if stretch is LATER:
            return LATER
        batches, damage = stretch
        found = bisect_right(batches, at, key=_batch_base) - 1
        if found < 0 or at >= batches[found].head.end:
            later = (
                batches[found + 1].head.base
                if found + 1 < len(batches)
                else self._base_behind(segment_index, until, index, at, after)
            )
            raise self._corruption(segment, damage[0].position if damage else position, at, later)
        chunk = batches[found].cut(at, bytes_max)
        return self._more(chunk, batches, found + 1, bytes_max)

    def seek_timestamp(self, after_ms: int, request: ReadRequest | None = None) -> int | Later | None:
        """The number of the first record later than `after_ms`, or of the first damaged record.

        None if neither exists. `LATER` only with a request, see `Partition.read`.

        Raises:
            CorruptionError: a file is missing.
            StorageError: the disk failed.
        """
        index = bisect_right(
            self.row, after_ms, key=lambda segment: segment.last_timestamp_ms if segment.bytes else 1 << 62
        )
        if index == len(self.row) or not self.row[index].bytes:
            return None
        segment = self.row[index]
        if segment.first_timestamp_ms > after_ms:
            return segment.base
        segment_index = self._index(segment, segment.base, request)
        if segment_index is LATER:
            return LATER
        position, until = segment_index.extent_before(after_ms, segment.bytes)
        stretch = self._batches(segment, position, until, segment.base, request)
        if stretch is LATER:
            return LATER
        return _later_than(after_ms, stretch, segment_index)

    def _index_at_once(self, segment: Segment) -> Index:
        index = segment.index or self._reading.index(segment.path, segment.base, self.seed)
        assert index is not LATER, "a read without a request waits"
        return index

    def _index(self, segment: Segment, at: int, request: ReadRequest | None) -> Index | Later:
        """The index of a segment, to find record `at`."""
        try:
            return segment.index or self._reading.index(segment.path, segment.base, self.seed, request)
        # Retention removes a segment from `row` before its file, on this thread. A missing file is damage.
        except FileNotFoundError:
            raise self._corruption(segment, 0, at, segment.end) from None
        except OSError as error:
            raise _failed(segment, error) from error

    def _batches(
        self, segment: Segment, position: int, until: int, at: int, request: ReadRequest | None = None
    ) -> Stretch | Later:
        try:
            # If the system does not tell, the active segment counts as cached.
            recent = segment is self.active
            return self._reading.batches(
                segment.path, segment.base, self.seed, (position, until), request, recent=recent
            )
        except FileNotFoundError:
            raise self._corruption(segment, 0, at, segment.end) from None
        except OSError as error:
            raise _failed(segment, error) from error

    def _more(self, chunk: Chunk, batches: Sequence[record.Batch], index: int, bytes_max: int) -> Chunk:
        """Append the next batches up to `bytes_max`: slowly filled partitions have many small ones."""
        room = bytes_max - total_bytes(chunk.messages)
        parts, end = [chunk], chunk.base + len(chunk)
        for batch in batches[index : index + _CHUNK_PARTS_MAX]:
            room -= batch.head.body_bytes
            # Stop at a gap in the numbers, and where `cut` did not take the whole first batch.
            if room < 0 or batch.head.base != end or parts[-1].base + len(parts[-1]) != end:
                break
            parts.append(batch.all())
            end = batch.head.end
        return join(parts)

    def _base_behind(self, index: Index, until: int, number: int, at: int, after: int) -> int:
        entry = bisect_right(index.positions, until - 1)
        return index.bases[entry] if entry < len(index.bases) else self._next_base(number, at, after)

    def _next_base(self, index: int, at: int, after: int) -> int:
        return next(
            (segment.base for segment in self.row[index:] if segment.bytes and segment.base > at), after
        )

    def _corruption(self, segment: Segment, position: int, first: int, after: int) -> CorruptionError:
        name = "/".join(segment.path.parts[-4:])
        message = f"{name} at byte {position}: records {first} to {after - 1} are damaged or missing"
        return CorruptionError(message, first=first, after=after)


def _failed(segment: Segment, error: OSError) -> StorageError:
    return StorageError(f"cannot read {segment.path}: {error.strerror or error}")


def _base(segment: Segment) -> int:
    return segment.base


def _later_than(after_ms: int, stretch: Stretch, index: Index) -> int:
    """The first record of a stretch later than `after_ms`, the first damaged one, or the one after them."""
    batches, damage = stretch
    expected = batches[0].head.base if batches else index.bases[0]
    for batch in batches:
        # The numbers have a gap: the wanted record may be among the damaged ones.
        if batch.head.base != expected and damage:
            return expected
        if batch.timestamps[-1] > after_ms:
            return batch.head.base + bisect_right(batch.timestamps, after_ms)
        expected = batch.head.end
    return expected


def _batch_base(batch: record.Batch) -> int:
    return batch.head.base
