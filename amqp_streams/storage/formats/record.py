"""The record batch: the layout of a run of records, in segments and in the journal. Pure.

Law: decoding returns exactly what was encoded, or the CRC does not match. All numbers are little-endian. The
columns are byte position, bytes, type and meaning. The tables begin at byte 40; their length depends on the
number of records (n) and on the flags::

     0   4  magic  "AEB1"
     4   4  u32    length of the whole batch in bytes, this header included
     8   4  u32    CRC-32 (zlib) of everything from byte 12 to the end of the batch
    12   4  u32    flags, see below
    16   8  u64    offset of the first record
    24   8  i64    timestamp of the first record, in ms since 1970
    32   4  u32    number of records (n), at least 1
    36   4  u32    bytes of the body

        4n  u32    for each record: ms after the first timestamp, never decreasing   absent with flag 1
        4n  u32    for each record: length of its message                            one u32 with flag 4
         n  u8     for each record: length of the header section at its beginning    absent with flag 2
        4n  u32    for each record: its message-format (AMQP 2.7.5)                  absent without flag 16
                   the table of producers (`producers.py`)                           absent without flag 8
                   the body: the messages, without gaps

    flag  1  all records have the same timestamp
          2  no message has a header section
          4  all messages have the same length
          8  some records have sequences of idempotent producers (data directories of format 2 and 3)
         16  some message-formats are not 0 (data directories of format 3)

Other flags are not set. The CRC begins with the partition's seed (`seed_of`), so that bytes of another
partition, or a message that looks like a batch, are not read as records of this partition.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct
from typing import Final

from amqp_streams.storage.formats import producers
from amqp_streams.storage.formats.checksum import crc32
from amqp_streams.storage.formats.chunks import count_within, formats_at, part
from amqp_streams.storage.ports import Chunk, Formats
from amqp_streams.wire.batched.arrays import are_equal, sizes_of
from amqp_streams.wire.batched.packed import joined, pack

MAGIC: Final = b"AEB1"
HEAD_BYTES: Final = 40
BATCH_BYTES_MAX: Final = 1 << 20
"""The target size of a batch's body, which a reader reads in one piece.

A larger message is a batch of its own.
"""
MESSAGE_BYTES_MAX: Final = 256 << 20
RECORDS_MAX: Final = 1 << 20
"""The most records of a batch. It limits the memory for the tables."""
SPAN_MS_MAX: Final = (1 << 32) - 1
"""The longest time between two timestamps of a batch: about 49.7 days, the maximum of a u32."""
ORDINARY_RECORD_BYTES_MAX: Final = 9
"""Bytes of the tables for a record whose message-format is 0."""
RECORD_BYTES_MAX: Final = ORDINARY_RECORD_BYTES_MAX + 4
LENGTH_MAX: Final = (
    BATCH_BYTES_MAX
    + MESSAGE_BYTES_MAX
    + RECORD_BYTES_MAX * RECORDS_MAX
    + HEAD_BYTES
    + producers.TABLE_BYTES_MAX
)

_ONE_TIMESTAMP: Final = 1
_NO_HEADERS: Final = 2
_ONE_LENGTH: Final = 4
_NUMBERED: Final = 8
_FORMATS: Final = 16
_FLAGS: Final = _ONE_TIMESTAMP | _NO_HEADERS | _ONE_LENGTH | _NUMBERED | _FORMATS
_START: Final = Struct("<4sII")
_REST: Final = Struct("<IQqII")
_HEAD: Final = Struct("<4sIIIQqII")
# On the wire, an offset is a text of 16 decimal digits.
_OFFSET_MAX: Final = 10**16 - 1
# A check of plausibility: with the largest delta added, the value still fits an i64.
_TIMESTAMP_MAX: Final = 1 << 62
_SWAP: Final = sys.byteorder == "big"


@dataclass(frozen=True, slots=True)
class Head:
    """A batch's fixed part. Its values are plausible; only `is_whole` verifies them."""

    length: int
    crc: int
    flags: int
    base: int
    first_timestamp_ms: int
    count: int
    body_bytes: int
    producers_bytes: int = 0

    @property
    def end(self) -> int:
        """One past its last record."""
        return self.base + self.count


def seed_of(uid: int, partition: int) -> int:
    """The initial value of a partition's CRCs. `uid` is the random number of its log."""
    return crc32(uid.to_bytes(8, "little") + partition.to_bytes(4, "little"))


def encode(chunk: Chunk, seed: int) -> tuple[bytes, bytes | memoryview]:
    """Encode a batch as two buffers: head with tables, and body.

    Hot path: all loops over messages run in C.
    """
    messages, stamps, headers, count = (
        chunk.messages,
        chunk.timestamps,
        chunk.header_sizes,
        len(chunk.messages),
    )
    assert len(headers) == len(stamps) == count, "each record has a timestamp and a header size"
    assert 0 < count <= RECORDS_MAX, "a batch has at least one record and at most its limit"
    first_ms = stamps[0]
    assert 0 <= stamps[-1] - first_ms <= SPAN_MS_MAX, (
        "timestamps never decrease, and a batch spans less than 50 days"
    )
    lengths, body = sizes_of(messages), joined(messages)
    flags, tables = 0, []
    if stamps[-1] == first_ms:
        flags |= _ONE_TIMESTAMP
    else:
        tables.append(_bytes(array("I", [stamp - first_ms for stamp in stamps])))
    # The product is cheap and rules out most batches.
    if lengths[0] * count == len(body) and are_equal(lengths):
        flags |= _ONE_LENGTH
        lengths = lengths[:1]
    tables.append(_bytes(lengths))
    if headers.count(0) == count:
        flags |= _NO_HEADERS
    else:
        tables.append(headers)
    if chunk.formats is not None:
        assert len(chunk.formats) == count, "each record has a message-format"
        flags |= _FORMATS
        tables.append(_bytes(chunk.formats))
    if chunk.marks:
        flags |= _NUMBERED
        tables.append(producers.encode_entries(producers.entries_of(chunk.marks)))
    rest = _REST.pack(flags, chunk.base, first_ms, count, len(body)) + b"".join(tables)
    length = _START.size + len(rest) + len(body)
    assert length <= LENGTH_MAX, "a batch is not larger than its limit"
    # The CRC continues from one buffer to the other: joining them would copy the body.
    return _START.pack(MAGIC, length, crc32(body, crc32(rest, seed))) + rest, body


def batches(chunk: Chunk, size: int) -> Iterator[Chunk]:
    """Split a run of records, of `size` bytes, into pieces that each fit into one batch.

    A piece has at most about BATCH_BYTES_MAX bytes or one message, at most RECORDS_MAX records, and spans at
    most SPAN_MS_MAX.
    """
    if (
        size <= BATCH_BYTES_MAX
        and chunk.timestamps[-1] - chunk.timestamps[0] <= SPAN_MS_MAX
        and len(chunk) <= RECORDS_MAX
    ):
        yield chunk
        return
    first, stamps, marks = 0, chunk.timestamps, chunk.marks
    while first < len(chunk):
        last = first + min(count_within(chunk.messages, BATCH_BYTES_MAX, first), RECORDS_MAX)
        last_ms = stamps[first] + SPAN_MS_MAX
        if stamps[last - 1] > last_ms:
            last = bisect_right(stamps, last_ms, first, last)
        cut = chunk.base + last
        within = producers.within(marks, chunk.base + first, cut) if marks else ()
        # From the whole run each time: what is left is not copied for each piece.
        yield part(chunk, first, last, within)
        first, marks = last, producers.within(marks, cut, chunk.end) if marks else ()


def head_at(buffer: bytes, position: int) -> Head | None:
    """The head at `position`, or None if no batch can begin there: its numbers must be consistent."""
    if len(buffer) - position < HEAD_BYTES:
        return None
    magic, length, crc, flags, base, first_ms, count, body_bytes = _HEAD.unpack_from(buffer, position)
    if magic != MAGIC or flags & ~_FLAGS or not 0 < count <= RECORDS_MAX or length > LENGTH_MAX:
        return None
    producers_bytes = length - HEAD_BYTES - _tables_bytes(flags, count) - body_bytes
    if (
        base + count > _OFFSET_MAX
        or not 0 <= first_ms < _TIMESTAMP_MAX
        or producers_bytes < 0
        or (producers_bytes > 0) != (flags & _NUMBERED > 0)
    ):
        return None
    return Head(length, crc, flags, base, first_ms, count, body_bytes, producers_bytes)


def is_whole(buffer: bytes, position: int, head: Head, seed: int) -> bool:
    """Whether the batch is complete and matches its CRC."""
    return (
        len(buffer) - position >= head.length
        and crc32(memoryview(buffer)[position + 12 : position + head.length], seed) == head.crc
    )


def last_timestamp_ms(buffer: bytes, position: int, head: Head) -> int:
    """Timestamp of the last record of a whole batch."""
    if head.flags & _ONE_TIMESTAMP:
        return head.first_timestamp_ms
    return head.first_timestamp_ms + _array(buffer, position + HEAD_BYTES + 4 * (head.count - 1), 1)[0]


def entries_at(buffer: bytes, position: int, head: Head) -> producers.Entries:
    """The table of producers of a whole batch."""
    if not head.producers_bytes:
        return {}
    at = position + HEAD_BYTES + _tables_bytes(head.flags, head.count)
    return producers.decode_entries(bytes(memoryview(buffer)[at : at + head.producers_bytes]))


@dataclass(slots=True, eq=False)
class Batch:
    """A decoded batch.

    Keeps the buffer that it was read from, and copies messages only when they are requested.
    """

    head: Head
    buffer: bytes
    timestamps: "array[int]"
    header_sizes: bytes
    ends: range | list[int]
    """As in `Packed`."""
    formats: Formats = None

    def cut(self, at: int, bytes_max: int) -> Chunk:
        """Record from number `at` on: at least one, at most about `bytes_max` bytes."""
        first, count = at - self.head.base, self.head.count
        assert 0 <= first < count, "the wanted record is in the batch"
        ends = self.ends
        last = max(first + 1, min(count, bisect_right(ends, ends[first] + bytes_max) - 1))
        return Chunk(
            at,
            self.timestamps[first:last],
            self.header_sizes[first:last],
            pack(self.buffer, ends[first : last + 1]),
            formats=formats_at(self.formats, slice(first, last)),
        )

    def all(self) -> Chunk:
        """Every record."""
        return self.cut(self.head.base, self.head.length)


def decode(buffer: bytes, position: int, head: Head, seed: int) -> Batch | None:
    """The batch at `position`, or None if the CRC does not match."""
    if not is_whole(buffer, position, head, seed):
        return None
    at, count = position + HEAD_BYTES, head.count
    if head.flags & _ONE_TIMESTAMP:
        stamps = array("q", [head.first_timestamp_ms]) * count
    else:
        first_ms = head.first_timestamp_ms
        stamps = array("q", [first_ms + delta for delta in _array(buffer, at, count)])
        at += 4 * count
    one_length = None
    lengths = _array(buffer, at, 1 if head.flags & _ONE_LENGTH else count)
    at += 4 * len(lengths)
    if head.flags & _ONE_LENGTH:
        one_length = lengths[0]
    headers = bytes(count) if head.flags & _NO_HEADERS else buffer[at : at + count]
    at += 0 if head.flags & _NO_HEADERS else count
    formats = _array(buffer, at, count) if head.flags & _FORMATS else None
    at += (4 * count if head.flags & _FORMATS else 0) + head.producers_bytes
    ends: range | list[int] = (
        range(at, at + count * one_length + 1, one_length)
        if one_length
        else list(accumulate(lengths if one_length is None else [0] * count, initial=at))
    )
    assert ends[-1] == position + head.length, "the CRC matched, so the lengths add up"
    return Batch(head, buffer, stamps, headers, ends, formats)


def _tables_bytes(flags: int, count: int) -> int:
    stamps = 0 if flags & _ONE_TIMESTAMP else 4 * count
    lengths = 4 if flags & _ONE_LENGTH else 4 * count
    return stamps + lengths + (0 if flags & _NO_HEADERS else count) + (4 * count if flags & _FORMATS else 0)


def _array(buffer: bytes, at: int, count: int) -> "array[int]":
    numbers = array("I")
    numbers.frombytes(memoryview(buffer)[at : at + 4 * count])
    if _SWAP:
        numbers.byteswap()
    return numbers


def _bytes(numbers: "array[int]") -> bytes:
    if _SWAP:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
