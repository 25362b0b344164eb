"""[io] Writes the compressed file of a closed segment, in small pieces. A thread of the store calls them.

Laws: the segment is only read. The new file has a name that no start uses. When it is done, it is synced, and
was read back: all its batches are whole, have the numbers of the segment, and are the bytes that were read.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path
from typing import Final

from amqp_streams.errors import StorageError
from amqp_streams.storage.disk.files import Files, OpenFile, read_file
from amqp_streams.storage.formats import compressed
from amqp_streams.storage.formats import index as index_file
from amqp_streams.storage.formats.checksum import crc32
from amqp_streams.storage.formats.compressed import HEAD_BYTES, NUMBERS, Layout
from amqp_streams.storage.formats.index import Index
from amqp_streams.storage.partitions.sources import UNFINISHED_SUFFIX, CompressedFile
from amqp_streams.storage.plans import recovery
from amqp_streams.storage.plans.recovery import Scan
from amqp_streams.wire.batched.compression import Codec

STRETCH_BYTES_MAX: Final = 32 << 20
"""A segment with a longer stretch of its index, which is one batch, is not compressed: it is read back in the
memory.
"""
_TRIAL_BLOCKS: Final = 16
"""After so many blocks it is decided whether compression saves enough."""
_SAVED_SHARE: Final = 16
"""It must save one byte of so many."""


class Verdict(Enum):
    """Why a piece was the last one."""

    DONE = auto()
    """The file is complete."""
    UNFIT = auto()
    """The segment is not to be compressed: this would save nothing, or the segment is damaged."""
    NO_SPACE = auto()
    """The disk is nearly full."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`piece_bytes`: of a segment in one piece. `block_bytes`: of a block. `reserve_bytes`: stay free."""

    piece_bytes: int
    block_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A closed segment with `size` bytes: records `base` to before `end`."""

    path: Path
    base: int
    end: int
    size: int


class SegmentWriter:
    """Compresses one segment. `source`: its file. Each call of `piece` does some of the work.

    After a call: `verdict`, if it was the last one, and `done_bytes`, the bytes that it read. If a call
    raised, no other follows.
    """

    def __init__(
        self, files: Files, wanted: Wanted, source: OpenFile, *, codec: Codec, seed: int, limits: Limits
    ) -> None:
        self.path: Final = wanted.path.with_suffix(UNFINISHED_SUFFIX)
        self.verdict: Verdict | None = None
        self.done_bytes = 0
        self.file_bytes = 0
        """Of the complete file."""
        self._files: Final = files
        self._wanted: Final = wanted
        self._source: Final = source
        self._codec: Final = codec
        self._seed: Final = seed
        self._limits: Final = limits
        self._target: OpenFile | None = None
        self._index = Index()
        self._starts: list[int] = []
        self._places, self._lengths = array("Q"), array("I")
        self._read_crc = self._written_crc = 0
        self._unsynced = 0
        self._back: CompressedFile | None = None
        self._scan = Scan(wanted.size)
        self._checked = 0

    def piece(self) -> None:
        """Do the next piece of the work.

        Raises:
            OSError: a disk failed, or the disk is full.
        """
        self.done_bytes = 0
        free = self._files.free_bytes(self._wanted.path.parent) - self._limits.reserve_bytes
        if self._back is None and free < 2 * self._limits.piece_bytes:
            self.verdict = Verdict.NO_SPACE
        elif self._target is None:
            self._begin()
        elif self._back is None:
            self._write()
        else:
            self._check()

    # -- inside

    def _begin(self) -> None:
        """Decide where the blocks begin, and create the file."""
        wanted = self._wanted
        try:
            data = read_file(self._files, wanted.path.with_suffix(".idx"))
        except FileNotFoundError:
            data = b""
        found = index_file.decode(data, wanted.base, self._seed)
        # An index that covers the segment was written after a sync of the segment.
        if found is None or found.coverage.bytes != wanted.size or found.coverage.end != wanted.end:
            self.verdict = Verdict.UNFIT
            return
        self._index = found.sparse
        edges = [*found.sparse.positions, wanted.size]
        longest = max(after - first for first, after in pairwise(edges))
        if edges[0] or longest > STRETCH_BYTES_MAX:
            self.verdict = Verdict.UNFIT
            return
        self._starts = compressed.blocks(found.sparse.positions, wanted.size, target=self._limits.block_bytes)
        self._target = OpenFile(self._files, self.path, create=True)
        # A crash or a failure may have left a longer file of this name.
        self._target.truncate(0)
        number = NUMBERS[self._codec.name]
        head = compressed.encode_head(number, wanted.base, wanted.size, self._seed)
        self._target.write([head], 0)
        self.file_bytes = HEAD_BYTES

    def _write(self) -> None:
        """Compress some blocks; after the last one, write the table and sync the file."""
        assert self._target is not None, "the first piece has created it"
        while self.done_bytes < self._limits.piece_bytes and len(self._places) < len(self._starts):
            self._block(self._target, len(self._places))
            if self._saves_nothing():
                self.verdict = Verdict.UNFIT
                return
        if len(self._places) < len(self._starts):
            if self._unsynced >= self._limits.piece_bytes:
                # More unsynced bytes would make commits wait longer for their own syncs.
                self._target.sync()
                self._unsynced = 0
            return
        number = NUMBERS[self._codec.name]
        starts = array("Q", self._starts)
        layout = Layout(number, self._wanted.size, starts, self._places, self._lengths, is_whole=True)
        end = compressed.encode_end(layout, self._wanted.base, self._seed)
        self._target.write([end], self.file_bytes)
        self.file_bytes += len(end)
        self._target.sync()
        self._back = CompressedFile(self._files, self.path, self._wanted.base, self._seed)
        # What is read back comes from the disk, if the system allows it.
        self._back.forget_cached()

    def _block(self, target: OpenFile, number: int) -> None:
        first = self._starts[number]
        after = self._starts[number + 1] if number + 1 < len(self._starts) else self._wanted.size
        cached = self._source.is_cached(after - first, first)
        data = self._source.read(after - first, first)
        if len(data) < after - first:
            self.verdict = Verdict.UNFIT  # the file was cut
            return
        if cached is False:
            # Only what this read has brought into the system's cache: readers may use the rest.
            self._source.wont_need(len(data), first)
        buffers = compressed.encode_block(data, first, self._codec, self._seed)
        target.write(buffers, self.file_bytes)
        length = sum(map(len, buffers))
        self._places.append(self.file_bytes)
        self._lengths.append(length)
        self._read_crc = crc32(data, self._read_crc)
        self.file_bytes += length
        self._unsynced += length
        self.done_bytes += len(data)

    def _saves_nothing(self) -> bool:
        """Whether the blocks so far show that compression saves too little. Asked after each block."""
        if self.verdict is not None:
            return True
        count = len(self._places)
        if count != _TRIAL_BLOCKS and count != len(self._starts):
            return False
        read = self._starts[count] if count < len(self._starts) else self._wanted.size
        return self.file_bytes > read - read // _SAVED_SHARE

    def _check(self) -> None:
        """Read a piece back; after the last one, the file is complete."""
        assert self._back is not None, "the file was written"
        positions, wanted = self._index.positions, self._wanted
        first = self._checked
        entry = bisect_left(positions, first + self._limits.piece_bytes)
        after = positions[entry] if entry < len(positions) else wanted.size
        try:
            data = self._back.read(after - first, first)
        except StorageError:
            self.verdict = Verdict.UNFIT
            return
        self._written_crc = crc32(data, self._written_crc)
        recovery.scan(
            lambda count, position: data[position - first : position - first + count],
            after,
            seed=self._seed,
            into=self._scan,
            expected=self._scan.stretches[-1].end if self._scan.stretches else wanted.base,
            position=first,
        )
        self.done_bytes = len(data)
        self._checked = after
        if self._scan.until != after or self._scan.damage:
            self.verdict = Verdict.UNFIT
        elif after == wanted.size:
            self.verdict = Verdict.DONE if self._is_same() else Verdict.UNFIT

    def _is_same(self) -> bool:
        """Whether what was read back is the segment."""
        assert self._back is not None, "the file was written"
        scan, wanted = self._scan, self._wanted
        return (
            self._written_crc == self._read_crc
            and scan.stretches == [recovery.Stretch(0, wanted.size, wanted.base, wanted.end)]
            and scan.index.positions == self._index.positions
            and not self._back.faults()
        )
