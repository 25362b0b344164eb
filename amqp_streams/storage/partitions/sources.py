"""[io] The bytes of a segment, from its file or from its compressed file.

Laws: a compressed file is read like the segment that it was made of. Bytes that it has lost are zeros, which
are never a batch: so readers find the damage as in a segment that is not compressed. A read needs at most
twice the memory of its result, and that of two blocks.
"""

import threading
from collections import OrderedDict
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from amqp_streams.errors import StorageError
from amqp_streams.storage.disk.files import Files, OpenFile
from amqp_streams.storage.formats import compressed
from amqp_streams.storage.formats.compressed import CODECS, HEAD_BYTES, Layout
from amqp_streams.wire.batched.compression import Codec, available
from service_parts.extras import MissingExtraError

SUFFIX: Final = ".log"
COMPRESSED_SUFFIX: Final = ".logz"
UNFINISHED_SUFFIX: Final = ".logz.new"
"""Of a compressed file that is being written: the next start removes it."""
SEGMENT_SUFFIXES: Final = frozenset({SUFFIX, COMPRESSED_SUFFIX})
_NUMBERS: Final = count()


class Source(Protocol):
    """The bytes of a segment. Positions and sizes are those of the segment when it is not compressed."""

    @property
    def path(self) -> Path:
        """The file."""

    def read(self, count: int, position: int) -> bytes:
        """Up to `count` bytes, fewer only at the end of the segment."""

    def size(self) -> int:
        """The bytes of the segment."""

    def stamp(self) -> tuple[int, int]:
        """See `Files.stamp`."""

    def is_cached(self, count: int, position: int) -> bool | None:
        """See `Files.is_cached`. False also if reading takes long for another reason."""

    def will_need(self, count: int, position: int) -> None:
        """See `Files.will_need`."""

    def wont_need(self, count: int, position: int) -> None:
        """See `Files.wont_need`."""

    def close(self) -> None:
        """Close the file now."""


class Blocks:
    """The blocks that were read last, decompressed: at most `bytes_max` bytes of them, or one block.

    Any thread may use it.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max: Final = bytes_max
        self.bytes = 0
        self._lock: Final = threading.Lock()
        self._kept: Final[OrderedDict[tuple[int, int], bytes]] = OrderedDict()

    def get(self, key: tuple[int, int]) -> bytes | None:
        """The block, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: tuple[int, int], block: bytes) -> None:
        """Keep a block. Drops those that were not used for longest."""
        with self._lock:
            # Two threads may have read the same block.
            self.bytes += len(block) - len(self._kept.pop(key, b""))
            self._kept[key] = block
            while self.bytes > self.bytes_max and len(self._kept) > 1:
                self.bytes -= len(self._kept.popitem(last=False)[1])


class CompressedFile:
    """A compressed file: see `Source`. `base`: the number of the segment's first record.

    The layout is read with the first call that needs it. Any number of threads may read.
    """

    def __init__(self, files: Files, path: Path, base: int, seed: int, blocks: Blocks | None = None) -> None:
        """Open the file.

        Raises:
            OSError: it cannot be opened.
        """
        self._file: Final = OpenFile(files, path)
        self._base: Final = base
        self._seed: Final = seed
        self._blocks: Final = blocks or Blocks(0)
        # Not the path: a deleted log of the same name had the same paths.
        self._number: Final = next(_NUMBERS)
        self._found: Layout | None = None
        self._codec: Codec | None = None

    @property
    def path(self) -> Path:
        """See `Source`."""
        return self._file.path

    def read(self, count: int, position: int) -> bytes:
        """See `Source`.

        Raises:
            OSError: the disk failed.
            StorageError: the library of the codec is missing.
        """
        layout = self.layout()
        after = min(position + count, layout.size)
        parts: list[memoryview] = []
        number = layout.block_at(position)
        while position < after:
            first, end = layout.extent(number)
            parts.append(memoryview(self._block(layout, number))[position - first : after - first])
            position, number = end, number + 1
        return b"".join(parts)

    def size(self) -> int:
        """See `Source`. If the end of the file is lost, the bytes that are still known."""
        return self.layout().size

    def file_bytes(self) -> int:
        """The bytes of the file."""
        return self._file.size()

    def stamp(self) -> tuple[int, int]:
        """See `Source`."""
        return self._file.stamp()

    def is_cached(self, count: int, position: int) -> bool | None:
        """Whether these bytes are among the decompressed blocks: the event loop decompresses nothing."""
        layout = self._found
        if layout is None or not count:
            return False
        first, last = layout.block_at(position), layout.block_at(min(position + count, layout.size) - 1)
        return all(self._blocks.get((self._number, number)) for number in range(first, last + 1))

    def will_need(self, count: int, position: int) -> None:
        """See `Source`."""
        for place, length in self._places(count, position):
            self._file.will_need(length, place)

    def wont_need(self, count: int, position: int) -> None:
        """See `Source`."""
        for place, length in self._places(count, position):
            self._file.wont_need(length, place)

    def forget_cached(self) -> None:
        """Let the system drop all bytes from its cache: the next reads show what the disk has."""
        self._file.wont_need(0, 0)

    def close(self) -> None:
        """See `Source`."""
        self._file.close()

    def layout(self) -> Layout:
        """Where the blocks are.

        Raises:
            OSError: the disk failed.
            StorageError: the library of the codec is missing, or a later version wrote the file.
        """
        found = self._found
        if found is None:
            found = compressed.read_layout(self._file.read, self._file.size(), self._base, self._seed)
            self._codec = _codec(found.codec, self.path)
            self._found = found
        return found

    def faults(self) -> list[str]:
        """What is damaged besides blocks. Such damage loses no records.

        Raises: as `layout`.
        """
        layout = self.layout()
        if not layout.is_whole:
            return ["its table is damaged; the blocks that are whole were found without it"]
        if not compressed.head_is_whole(self._file.read(HEAD_BYTES, 0), layout, self._base, self._seed):
            return ["its head is damaged"]
        return []

    def _places(self, count: int, position: int) -> list[tuple[int, int]]:
        layout = self.layout()
        after = min(position + count, layout.size)
        if position >= after:
            return []
        numbers = range(layout.block_at(position), layout.block_at(after - 1) + 1)
        return [(layout.places[number], layout.lengths[number]) for number in numbers]

    def _block(self, layout: Layout, number: int) -> bytes:
        key = (self._number, number)
        found = self._blocks.get(key)
        if found is None:
            first, after = layout.extent(number)
            found = self._decoded(layout, number, first, after - first) or bytes(after - first)
            self._blocks.put(key, found)
        return found

    def _decoded(self, layout: Layout, number: int, position: int, size: int) -> bytes | None:
        if not layout.places[number] or self._codec is None:
            return None
        block = self._file.read(layout.lengths[number], layout.places[number])
        return compressed.decode_block(block, position, size, self._codec, self._seed)


def stored_path(path: Path) -> Path:
    """The file that has the records of the segment with this uncompressed `path`."""
    packed = path.with_suffix(COMPRESSED_SUFFIX)
    # Both exist while the node replaces one by the other: then they have the same records.
    return packed if packed.exists() and not path.exists() else path


def open_source(
    files: Files, path: Path, base: int, seed: int, blocks: Blocks | None = None
) -> OpenFile | CompressedFile:
    """The bytes of a segment. `path`: its file.

    Raises:
        OSError: the file cannot be opened.
    """
    if path.suffix == COMPRESSED_SUFFIX:
        return CompressedFile(files, path, base, seed, blocks)
    return OpenFile(files, path)


def open_while_replaced(files: Files, path: Path, base: int, seed: int) -> OpenFile | CompressedFile:
    """The bytes of a segment of a node that may run: if it has just compressed the segment, the new file.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        return open_source(files, path, base, seed)
    except FileNotFoundError:
        if path.suffix == COMPRESSED_SUFFIX:
            raise
        return CompressedFile(files, path.with_suffix(COMPRESSED_SUFFIX), base, seed)


def _codec(number: int, path: Path) -> Codec | None:
    """The codec with this number of the format; None if it is not known, because of damage.

    Raises:
        StorageError: its library is missing, or a later version wrote the file.
    """
    if not number:
        return None
    name = CODECS.get(number)
    if name is None:
        message = (
            f"{path} has codec {number}, which this version does not know: use the version that wrote it"
        )
        raise StorageError(message)
    found = available(name)
    if found is None:
        raise StorageError(f"{path}: {MissingExtraError(f'a segment with {name}', 'compression')}")
    return found
