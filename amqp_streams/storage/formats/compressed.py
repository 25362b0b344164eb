"""The compressed file of a closed segment: `<base>.logz`, instead of `<base>.log`. Pure.

Laws: a position is one of the uncompressed segment, so the index, its readers and damage reports need no
other numbers. Each byte of the file is covered by a checksum that begins with the partition's seed. Damage to
a block costs what is in the block: without the table, the blocks are found by their heads.

A head, the blocks, a table and a tail follow each other without gaps. All numbers are little-endian. The
columns are byte position, bytes, type and meaning. The head::

     0   4  magic  "AEZ1"
     4   4  u32    CRC-32 (zlib) of the head from byte 8 on
     8   4  u32    the codec: 1 zstd, 2 LZ4
    12   4  u32    0
    16   8  u64    offset of the segment's first record, as in the file's name
    24   8  u64    bytes of the uncompressed segment

A block::

     0   4  magic  "AEZB"
     4   4  u32    CRC-32 of the block from byte 8 to its end
     8   8  u64    position of its bytes in the uncompressed segment
    16   4  u32    bytes of the block when it is decompressed (n): at most 512 KiB
    20   4  u32    bytes of the data (m): at most n
    24   m         the data: one frame with n bytes of content, or with m = n the bytes as they are

A block begins at an entry of the segment's index. A stretch of the index that is longer than a block can be
has several blocks. The table, and the tail, which ends the file::

     0  16k  u64   for each block: its position in the uncompressed segment, its position in the file

     0   4  magic  "AEZT"
     4   4  u32    CRC-32 of the table, and of the tail from byte 8 on
     8   4  u32    the codec
    12   4  u32    number of blocks (k)
    16   8  u64    offset of the segment's first record
    24   8  u64    bytes of the uncompressed segment
    32   8  u64    position of the table in the file
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.storage.formats.checksum import crc32
from amqp_streams.wire.batched.compression import LZ4, ZSTD, Codec

MAGIC: Final = b"AEZ1"
BLOCK_MAGIC: Final = b"AEZB"
TAIL_MAGIC: Final = b"AEZT"
HEAD_BYTES: Final = 32
BLOCK_HEAD_BYTES: Final = 24
TAIL_BYTES: Final = 40
BLOCK_BYTES_MAX: Final = 512 << 10
"""The most bytes of a block when it is decompressed: they bound the memory of a read."""
BLOCKS_MAX: Final = 1 << 20
CODECS: Final = {1: ZSTD, 2: LZ4}
NUMBERS: Final = {name: number for number, name in CODECS.items()}

_HEAD: Final = Struct("<4sIIIQQ")
_BLOCK: Final = Struct("<4sIQII")
_TAIL: Final = Struct("<4sIIIQQQ")
_SCANNED_BYTES: Final = 4 << 20
Read = Callable[[int, int], bytes]
"""`read(count, position)` returns bytes of the file, fewer only at its end."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the blocks are. Their positions in the uncompressed segment begin with 0 and have no gaps.

    `places`: position in the file; 0: the block is lost. `lengths`: bytes in the file, with the block's head.
    `is_whole`: the table was read. Otherwise the file is damaged, and these are the blocks that were found.
    """

    codec: int
    size: int
    starts: "array[int]"
    places: "array[int]"
    lengths: "array[int]"
    is_whole: bool

    def block_at(self, position: int) -> int:
        """The number of the block that has this byte of the segment."""
        return bisect_right(self.starts, position) - 1

    def extent(self, number: int) -> tuple[int, int]:
        """The bytes (first, after) of the segment that a block has."""
        after = self.starts[number + 1] if number + 1 < len(self.starts) else self.size
        return self.starts[number], after


def blocks(positions: Sequence[int], size: int, *, target: int) -> list[int]:
    """Where blocks of about `target` bytes begin. `positions`: the entries of the index of a segment."""
    starts: list[int] = []
    for number, first in enumerate(positions):
        after = positions[number + 1] if number + 1 < len(positions) else size
        if not starts or after - starts[-1] > min(target, BLOCK_BYTES_MAX):
            # Parts of the same size: a full block and a short rest would save less.
            count = -(-(after - first) // BLOCK_BYTES_MAX)
            starts += [first + (after - first) * part // count for part in range(count)]
    return starts


def encode_head(codec: int, base: int, size: int, seed: int) -> bytes:
    """The head of the file."""
    rest = _HEAD.pack(MAGIC, 0, codec, 0, base, size)[8:]
    return MAGIC + _number(crc32(rest, seed)) + rest


def head_is_whole(data: bytes, layout: Layout, base: int, seed: int) -> bool:
    """Whether these bytes are the head of the file with this layout."""
    return data == encode_head(layout.codec, base, layout.size, seed)


def encode_block(data: bytes, position: int, codec: Codec, seed: int) -> list[bytes]:
    """A block with this part of the segment, as two buffers."""
    assert 0 < len(data) <= BLOCK_BYTES_MAX, "a block is not larger than its limit"
    frame = codec.compress(data)
    if len(frame) >= len(data):
        frame = data
    rest = _BLOCK.pack(BLOCK_MAGIC, 0, position, len(data), len(frame))[8:]
    return [BLOCK_MAGIC + _number(crc32(frame, crc32(rest, seed))) + rest, frame]


def decode_block(block: bytes, position: int, size: int, codec: Codec, seed: int) -> bytes | None:
    """The bytes of a block, or None if these bytes of the file are not this block."""
    if _block_at(block, 0, seed) != (position, size, len(block)):
        return None
    frame = block[BLOCK_HEAD_BYTES:]
    if len(frame) == size:
        return frame
    try:
        return codec.decompress(frame, size)
    except WireError:
        # The checksum is right, so the library wrote what it cannot read.
        return None


def encode_end(layout: Layout, base: int, seed: int) -> bytes:
    """The table and the tail."""
    pairs = array("Q")
    for start, place in zip(layout.starts, layout.places, strict=True):
        pairs.extend((start, place))
    if sys.byteorder == "big":
        pairs.byteswap()
    table = pairs.tobytes()
    at = layout.places[-1] + layout.lengths[-1] if layout.places else HEAD_BYTES
    rest = _TAIL.pack(TAIL_MAGIC, 0, layout.codec, len(layout.starts), base, layout.size, at)[8:]
    return table + TAIL_MAGIC + _number(crc32(rest, crc32(table, seed))) + rest


def read_layout(read: Read, file_bytes: int, base: int, seed: int) -> Layout:
    """The layout of a file: from its table, or if that is damaged, from the heads of its blocks."""
    return _from_table(read, file_bytes, base, seed) or _from_blocks(read, file_bytes, base, seed)


def _from_table(read: Read, file_bytes: int, base: int, seed: int) -> Layout | None:
    tail = read(TAIL_BYTES, max(0, file_bytes - TAIL_BYTES))
    if len(tail) < TAIL_BYTES:
        return None
    magic, crc, codec, count, found_base, size, at = _TAIL.unpack(tail)
    length = 16 * count
    if magic != TAIL_MAGIC or found_base != base or not 0 < count <= BLOCKS_MAX:
        return None
    if at + length + TAIL_BYTES != file_bytes:
        return None
    table = read(length, at)
    if len(table) < length or crc32(tail[8:], crc32(table, seed)) != crc:
        return None
    pairs = array("Q", table)
    if sys.byteorder == "big":
        pairs.byteswap()
    starts, places = pairs[::2], pairs[1::2]
    lengths = array("I", [after - first for first, after in zip(places, [*places[1:], at], strict=True)])
    return Layout(codec, size, starts, places, lengths, is_whole=True)


def _from_blocks(read: Read, file_bytes: int, base: int, seed: int) -> Layout:
    """Look for whole blocks. The size is that of the head, or the end of the last block if that is lost."""
    starts, places, lengths = array("Q"), array("Q"), array("I")
    end = 0
    for place, (position, size, length) in _whole_blocks(read, file_bytes, seed):
        if position < end:
            continue
        if position > end:
            _add_lost(starts, places, lengths, end, position)
        starts.append(position)
        places.append(place)
        lengths.append(length)
        end = position + size
    codec, known = _head(read(HEAD_BYTES, 0), base, seed)
    if known > end:
        _add_lost(starts, places, lengths, end, known)
    return Layout(codec, max(end, known), starts, places, lengths, is_whole=False)


def _add_lost(
    starts: "array[int]", places: "array[int]", lengths: "array[int]", first: int, after: int
) -> None:
    """Add blocks for bytes that no block has: the memory of a read of them is bounded, too."""
    for start in range(first, after, BLOCK_BYTES_MAX):
        starts.append(start)
        places.append(0)
        lengths.append(0)


def _head(data: bytes, base: int, seed: int) -> tuple[int, int]:
    """Codec and size; 0 if they are not known."""
    if len(data) == HEAD_BYTES:
        magic, crc, codec, _, found_base, size = _HEAD.unpack(data)
        if magic == MAGIC and found_base == base and crc32(data[8:], seed) == crc:
            return codec, size
    return 0, 0


def _whole_blocks(read: Read, file_bytes: int, seed: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Place, and position, size and length, of each block whose checksum is right."""
    place = start = 0
    data = read(_SCANNED_BYTES, 0)
    while place + BLOCK_HEAD_BYTES <= file_bytes:
        # A block that begins here is in `data` as a whole, however often the magic is in the bytes before it.
        if place > start and place + BLOCK_HEAD_BYTES + BLOCK_BYTES_MAX > start + len(data):
            start, data = place, read(_SCANNED_BYTES, place)
        at = data.find(BLOCK_MAGIC, place - start)
        if at < 0:
            # The magic may begin with the last three bytes.
            place = max(place + 1, start + len(data) - 3)
            continue
        if start + at > place:
            place = start + at
            continue
        found = _block_at(data, at, seed)
        if found is not None:
            yield place, found
        place += found[2] if found else 1


def _block_at(data: bytes, at: int, seed: int) -> tuple[int, int, int] | None:
    """Position, size and length of the whole block that begins at a byte of `data`."""
    if len(data) - at < BLOCK_HEAD_BYTES:
        return None
    magic, crc, position, size, count = _BLOCK.unpack_from(data, at)
    length = BLOCK_HEAD_BYTES + count
    if magic != BLOCK_MAGIC or not 0 < count <= size <= BLOCK_BYTES_MAX or at + length > len(data):
        return None
    if crc32(memoryview(data)[at + 8 : at + length], seed) != crc:
        return None
    return position, size, length


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")
