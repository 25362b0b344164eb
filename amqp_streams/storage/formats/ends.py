"""The file `ends`: how far the partitions that were written last are synced, and the journal. Pure.

A commit is written here after its sync and before it is accepted, without a sync of its own. So after a kill
of the process the file names each accepted commit: a last record that is not whole was damaged if the file
names it, and was being written otherwise. After a power loss the file may be older than the commits. It
never names a record that was not synced.

Law: every number here is a lower bound, at any later time. So an old file, or an old copy in it, is harmless.

All numbers are little-endian. The file has two copies, at 0 and at `COPY_BYTES`, which are written in turn.
The columns are byte position, bytes, type and meaning::

     0   4  magic  "AEE1"
     4   4  u32    CRC-32 (zlib) of everything from byte 8 to the end of the entries
     8   8  u64    count: one more at each write; the copy with the higher count is used
    16   8  u64    generation of the last synced record of the journal; 0 if there was none
    24   8  u64    sequence of that record
    32   4  u32    number of entries
    36   4  u32    0
    40             the entries: u64 uid of the log, u32 partition, u64 number after its last synced record

The CRC begins with the seed of the directory's journal (`journal_record.seed_of`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from amqp_streams.storage.formats.checksum import crc32

MAGIC: Final = b"AEE1"
COPY_BYTES: Final = 16 << 10
COPIES: Final = 2
HEAD_BYTES: Final = 40
ENTRY_BYTES: Final = 20
ENTRIES_MAX: Final = (COPY_BYTES - HEAD_BYTES) // ENTRY_BYTES

_HEAD: Final = Struct("<4sIQQQII")
_ENTRY: Final = Struct("<QIQ")
_CRC: Final = Struct("<I")

Key = tuple[int, int]
"""uid of the log, partition."""


@dataclass(frozen=True, slots=True)
class Place:
    """A record of the journal."""

    generation: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The content of a copy. `journal` is the last synced record, `ends` the number after it by partition."""

    count: int = 0
    journal: Place = Place(0, 0)
    ends: Mapping[Key, int] = field(default_factory=dict)


class Copy:
    """The next copy to write. It has the `ENTRIES_MAX` partitions that were written last."""

    def __init__(self, known: Ends, seed: int) -> None:
        self.count = known.count
        self.journal = known.journal
        self._seed: Final = seed
        self._data: Final = bytearray(COPY_BYTES)
        self._places: Final[dict[Key, int]] = {}
        """The partition that was written longest ago is first."""
        for key, end in known.ends.items():
            self.put(key, end)

    def put(self, key: Key, end: int) -> None:
        """The records of a partition below `end` are synced."""
        place = self._places.pop(key, None)
        if place is None:
            place = self._free_place()
        self._places[key] = place
        _ENTRY.pack_into(self._data, HEAD_BYTES + ENTRY_BYTES * place, *key, end)

    def encode(self) -> bytes:
        """The copy, with a count of its own."""
        self.count += 1
        data, entries = self._data, len(self._places)
        after = HEAD_BYTES + ENTRY_BYTES * entries
        journal = self.journal
        _HEAD.pack_into(data, 0, MAGIC, 0, self.count, journal.generation, journal.sequence, entries, 0)
        with memoryview(data) as view:
            _CRC.pack_into(data, 4, crc32(view[8:after], self._seed))
        return bytes(data[:after])

    def _free_place(self) -> int:
        if len(self._places) < ENTRIES_MAX:
            return len(self._places)
        return self._places.pop(next(iter(self._places)))


def decode(data: bytes, seed: int) -> Ends | None:
    """A copy, or None if the CRC does not match."""
    if len(data) < HEAD_BYTES or data[:4] != MAGIC:
        return None
    _, crc, count, generation, sequence, entries, _ = _HEAD.unpack_from(data)
    after = HEAD_BYTES + ENTRY_BYTES * entries
    if len(data) < after or crc32(memoryview(data)[8:after], seed) != crc:
        return None
    table = _ENTRY.iter_unpack(memoryview(data)[HEAD_BYTES:after])
    return Ends(count, Place(generation, sequence), {(uid, partition): end for uid, partition, end in table})


def read(data: bytes, seed: int) -> Ends | None:
    """The latest readable copy of a file; None if no copy is readable."""
    copies = [decode(data[at : at + COPY_BYTES], seed) for at in range(0, COPIES * COPY_BYTES, COPY_BYTES)]
    return max((one for one in copies if one), key=lambda one: one.count, default=None)
