"""The sparse index of a segment, by offset and by time. Pure.

Law: an index is derived data: losing it costs a scan, never events. It also holds the highest sequence of
each idempotent producer up to its end, in this segment and all earlier ones. This part is derived as well,
from the segments that retention has left.

Each segment has one file `<base>.idx` next to it, which is replaced as a whole. All numbers are
little-endian. The columns are byte position, bytes, type and meaning::

     0   4  magic  "AEI1", or "AEI2" with producers (in data directories of format 2 and 3)
     4   4  u32    CRC-32 (zlib) of everything from byte 8 on, begun with the partition's seed
     8   8  u64    offset of the segment's first record, as in the file's name
    16   8  u64    one past the last record covered
    24   8  i64    timestamp of the first record, in ms since 1970
    32   8  i64    timestamp of the last record covered, in ms since 1970
    40   8  u64    bytes of the segment that are covered: synced, verified, and not scanned again
    48   4  u32    number of entries (n)
    52   4  u32    bytes of the table of producers; 0 without a table
    56  8n  u64    for each entry: offset of the first record of a batch
        8n  i64    for each entry: its timestamp, in ms since 1970
        8n  u64    for each entry: byte position of the batch in the segment
                   the table of producers (`producers.py`)
"""

import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from amqp_streams.storage.formats import producers
from amqp_streams.storage.formats.checksum import crc32

MAGIC: Final = b"AEI1"
MAGIC_NUMBERED: Final = b"AEI2"
SPACING_BYTES: Final = 16 << 10
"""The least distance of two entries in the segment: bounds the index to 0.15 % of the segment."""
HEAD_BYTES: Final = 56

_HEAD: Final = Struct("<4sIQQqqQII")


@dataclass(slots=True, eq=False)
class Index:
    """Where to begin the search for a record. All three columns are in ascending order."""

    bases: "array[int]" = field(default_factory=lambda: array("Q"))
    stamps: "array[int]" = field(default_factory=lambda: array("q"))
    positions: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, base: int, first_timestamp_ms: int, position: int) -> None:
        """Add an entry for a batch, unless the last entry is less than `SPACING_BYTES` before it."""
        if not self.positions or position - self.positions[-1] >= SPACING_BYTES:
            self.bases.append(base)
            self.stamps.append(first_timestamp_ms)
            self.positions.append(position)

    def extent_of(self, number: int, segment_bytes: int) -> tuple[int, int]:
        """The stretch (position, until) of the segment that holds the record, if the segment has it."""
        return self._extent(bisect_right(self.bases, number) - 1, segment_bytes)

    def extent_before(self, after_ms: int, segment_bytes: int) -> tuple[int, int]:
        """The stretch that holds the first record later than `after_ms`, or that ends directly before it."""
        return self._extent(bisect_right(self.stamps, after_ms) - 1, segment_bytes)

    def _extent(self, entry: int, segment_bytes: int) -> tuple[int, int]:
        if not self.positions:
            return 0, segment_bytes
        until = self.positions[entry + 1] if entry + 1 < len(self.positions) else segment_bytes
        return (0 if entry < 0 else self.positions[entry]), until


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of its segment that an index file covers."""

    base: int
    end: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    bytes: int


class Decoded(NamedTuple):
    """The content of an index file."""

    coverage: Coverage
    sparse: Index
    producers: producers.Table


def encode(coverage: Coverage, index: Index, seed: int, reached: producers.Table | None = None) -> bytes:
    """The content of an index file."""
    table = producers.encode_table(reached) if reached else b""
    magic = MAGIC_NUMBERED if table else MAGIC
    # Copies: `byteswap` changes an array in place.
    columns = [index.bases[:], index.stamps[:], index.positions[:]]
    if sys.byteorder == "big":
        for column in columns:
            column.byteswap()
    rest = _HEAD.pack(
        magic,
        0,
        coverage.base,
        coverage.end,
        coverage.first_timestamp_ms,
        coverage.last_timestamp_ms,
        coverage.bytes,
        len(index.bases),
        len(table),
    )[8:]
    rest += b"".join(column.tobytes() for column in columns) + table
    return magic + crc32(rest, seed).to_bytes(4, "little") + rest


def decode(data: bytes, base: int, seed: int) -> Decoded | None:
    """The content, or None if the data is not an intact index of the segment that begins with `base`."""
    if len(data) < HEAD_BYTES:
        return None
    magic, crc, found_base, end, first_ms, last_ms, bytes_, count, table_bytes = _HEAD.unpack_from(data)
    columns_end = HEAD_BYTES + 24 * count
    if magic not in {MAGIC, MAGIC_NUMBERED} or len(data) != columns_end + table_bytes or found_base != base:
        return None
    if crc32(memoryview(data)[8:], seed) != crc:
        return None
    index = Index()
    for number, column in enumerate((index.bases, index.stamps, index.positions)):
        column.frombytes(data[HEAD_BYTES + 8 * count * number : HEAD_BYTES + 8 * count * (number + 1)])
        if sys.byteorder == "big":
            column.byteswap()
    return Decoded(
        Coverage(base, end, first_ms, last_ms, bytes_), index, producers.decode_table(data[columns_end:])
    )
