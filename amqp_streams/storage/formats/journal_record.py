"""One record of the journal: all data of one commit for partitions whose segments are written later. Pure.

Law: stale bytes of the file's previous use are never replayed. A record counts only if it has the generation
of the file's first record and the next sequence number. Records begin at multiples of 4096 bytes, so that a
write never touches a disk block of another record.

All numbers are little-endian. The columns are byte position, bytes, type and meaning::

     0   4  magic  "AEJ1"
     4   4  u32    CRC-32 (zlib) of everything from byte 8 to the end of the table of entries
     8   8  u64    generation: one more each time a journal file is reused
    16   8  u64    sequence: 0, 1, 2, … within the generation
    24   8  u64    length of the whole record in bytes, this header included
    32   4  u32    number of entries; 0 only in the first record of a new file, which has generation 0
    36   4  u32    0
    40             the entries: for each batch u64 uid of the log, u32 partition, u32 length of the batch
                   the batches, without gaps, as in segments; each has its own CRC

The CRC begins with the data directory's seed (`seed_of`), so that a message that looks like a record is never
read as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from amqp_streams.storage.formats import record
from amqp_streams.storage.formats.checksum import crc32

MAGIC: Final = b"AEJ1"
ALIGN: Final = 4096
HEAD_BYTES: Final = 40
ENTRY_BYTES: Final = 16
# Bounds what recovery reads if the count is damaged: 16 MiB.
ENTRIES_MAX: Final = 1 << 20

_HEAD: Final = Struct("<4sIQQQII")
_ENTRY: Final = Struct("<QII")


@dataclass(frozen=True, slots=True)
class JournalHead:
    """A record's header, verified by its CRC. The batches have CRCs of their own."""

    generation: int
    sequence: int
    length: int
    entries: tuple[tuple[int, int, int], ...]
    """uid, partition, bytes of the batch."""

    @property
    def batches_at(self) -> int:
        """Where in the record the first batch begins."""
        return HEAD_BYTES + ENTRY_BYTES * len(self.entries)


def seed_of(directory_id: int) -> int:
    """The initial value of the CRCs of a data directory's journal."""
    return crc32(directory_id.to_bytes(8, "little"))


def encode(
    generation: int, sequence: int, entries: Sequence[tuple[int, int, int]], *, batches_bytes: int, seed: int
) -> bytes:
    """Header and table; the batches follow."""
    table = b"".join([_ENTRY.pack(*entry) for entry in entries])
    length = HEAD_BYTES + len(table) + batches_bytes
    rest = _HEAD.pack(MAGIC, 0, generation, sequence, length, len(entries), 0)[8:] + table
    return MAGIC + crc32(rest, seed).to_bytes(4, "little") + rest


def bytes_needed(entries: int, batches_bytes: int) -> int:
    """Bytes that a record occupies in the file, alignment included."""
    return -(-(HEAD_BYTES + ENTRY_BYTES * entries + batches_bytes) // ALIGN) * ALIGN


def head_size(data: bytes) -> int | None:
    """Bytes of header and table according to an unverified header; None if no header begins here."""
    if len(data) < HEAD_BYTES or data[:4] != MAGIC:
        return None
    count = _HEAD.unpack_from(data)[5]
    return HEAD_BYTES + ENTRY_BYTES * count if count <= ENTRIES_MAX else None


def decode(data: bytes, seed: int) -> JournalHead | None:
    """Header and table, or None if the CRC does not match."""
    size = head_size(data)
    if size is None or len(data) < size:
        return None
    _, crc, generation, sequence, length, count, _ = _HEAD.unpack_from(data)
    if crc32(memoryview(data)[8:size], seed) != crc:
        return None
    entries = tuple(_ENTRY.iter_unpack(memoryview(data)[HEAD_BYTES:size]))
    assert len(entries) == count, "the table is whole"
    assert size + sum(entry[2] for entry in entries) == length, "the CRC matched, so the lengths add up"
    return JournalHead(generation, sequence, length, entries)


def batches_are_whole(data: bytes, head: JournalHead) -> bool:
    """Whether each batch of the record `data` is complete and matches its CRC."""
    position = head.batches_at
    for uid, partition, length in head.entries:
        batch = record.head_at(data, position)
        if (
            batch is None
            or batch.length != length
            or not record.is_whole(data, position, batch, record.seed_of(uid, partition))
        ):
            return False
        position += length
    return True
