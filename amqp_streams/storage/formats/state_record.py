"""The record of one write of states in the file `states`. Pure.

Law: decoding returns exactly what was encoded, or a CRC does not match. A record counts as a whole or not at
all. All numbers are little-endian. The columns are byte position, bytes, type and meaning.

The file::

     0   4  magic  "AES1"
     4   8  u64    the data directory's id
    12   4  u32    CRC-32 (zlib) of bytes 0 to 11
    16             the records, without gaps

A record::

     0   4  magic  "AER1"
     4   4  u32    length of the changes in bytes
     8   8  u64    bytes of this file that were synced at this write: damage below is not a torn tail
    16   4  u32    CRC-32 of the changes
    20   4  u32    CRC-32 of bytes 0 to 19
    24             the changes, without gaps

A change::

     0   2  u16    length of the key
     2   4  u32    length of the value, or 0xFFFFFFFF: the key is removed
     6             the key in UTF-8, then the value

Both CRCs of a record begin with the directory's seed (`seed_of`), so that a value that looks like a record is
not read as one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from amqp_streams.storage.formats.checksum import crc32
from amqp_streams.storage.ports import STATE_KEY_BYTES_MAX, STATE_KEYS_MAX, STATE_VALUE_BYTES_MAX

FILE_MAGIC: Final = b"AES1"
MAGIC: Final = b"AER1"
FILE_HEAD_BYTES: Final = 16
HEAD_BYTES: Final = 24
_FILE_HEAD: Final = Struct("<4sQ")
_HEAD: Final = Struct("<4sIQI")
_CRC: Final = Struct("<I")
_CHANGE: Final = Struct("<HI")
_REMOVED: Final = 0xFFFFFFFF
_SNAPSHOT_BYTES: Final = 16 << 10
"""The approximate record size when all values are written: the most that a damaged byte destroys."""

Changes = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Hole:
    """A stretch of the file that is not a whole record. `torn`: no later record says that it was synced."""

    position: int
    after: int
    torn: bool


@dataclass(slots=True, eq=False)
class Read:
    """The content of a file.

    `directory_id` is None if the head is damaged. Bytes after `end` are a torn tail.
    """

    directory_id: int | None
    values: dict[str, bytes]
    holes: list[Hole]
    end: int
    size: int

    @property
    def head_damaged(self) -> bool:
        """Whether the file's head is unreadable."""
        return self.directory_id is None


def seed_of(directory_id: int) -> int:
    """The initial value of the CRCs of a data directory's states."""
    return crc32(b"states" + directory_id.to_bytes(8, "little"))


def checked(changes: Changes, values: Mapping[str, bytes]) -> Changes:
    """Return the changes if they are within bounds.

    Raises:
        ValueError: a key or a value is too long, or the number of keys exceeds the limit.
    """
    more = 0
    for key, value in changes.items():
        if not 1 <= len(key.encode()) <= STATE_KEY_BYTES_MAX:
            message = f"a key must have 1 to {STATE_KEY_BYTES_MAX} bytes (got {len(key.encode())})"
            raise ValueError(message)
        if value is not None and len(value) > STATE_VALUE_BYTES_MAX:
            message = (
                f"the value of {key[:80]!r} must have at most {STATE_VALUE_BYTES_MAX} bytes (got"
                f" {len(value)})"
            )
            raise ValueError(message)
        more += value is not None and key not in values
    # Only new keys are refused: a change and a removal always work.
    if more and len(values) + more > STATE_KEYS_MAX:
        message = f"the data directory may have at most {STATE_KEYS_MAX} keys"
        raise ValueError(message)
    return changes


def encode_head(directory_id: int) -> bytes:
    """Return the bytes at the beginning of a state file."""
    head = _FILE_HEAD.pack(FILE_MAGIC, directory_id)
    return head + _CRC.pack(crc32(head))


def encode(changes: Changes, *, synced: int, seed: int) -> bytes:
    """Encode one record. `synced`: see the layout."""
    parts: list[bytes] = []
    for key, value in changes.items():
        name = key.encode()
        parts += (_CHANGE.pack(len(name), _REMOVED if value is None else len(value)), name, value or b"")
    body = b"".join(parts)
    head = _HEAD.pack(MAGIC, len(body), synced, crc32(body, seed))
    return head + _CRC.pack(crc32(head, seed)) + body


def encode_file(values: Mapping[str, bytes], directory_id: int) -> bytes:
    """A whole file with these values.

    The caller puts it in place by a rename, so that all of them count or none.
    """
    parts, some, size, seed = [encode_head(directory_id)], dict[str, bytes | None](), 0, seed_of(directory_id)
    for key, value in values.items():
        some[key] = value
        size += len(key) + len(value) + _CHANGE.size
        if size >= _SNAPSHOT_BYTES:
            parts.append(encode(some, synced=0, seed=seed))
            some, size = {}, 0
    if some:
        parts.append(encode(some, synced=0, seed=seed))
    return b"".join(parts)


def live_bytes(key: str, value: bytes) -> int:
    """Approximate bytes of a value in a file that holds only current values."""
    return len(key) + len(value) + _CHANGE.size


def id_in_head(data: bytes) -> int | None:
    """The id of the data directory that a file names; None if the head is damaged."""
    head = data[:FILE_HEAD_BYTES]
    whole = (
        len(head) == FILE_HEAD_BYTES
        and head[:4] == FILE_MAGIC
        and crc32(head[:12]) == _CRC.unpack_from(head, 12)[0]
    )
    return int(_FILE_HEAD.unpack_from(head)[1]) if whole else None


def read(data: bytes, directory_id: int) -> Read:
    """Every readable record of a file, even if the file is damaged."""
    seed, known = seed_of(directory_id), id_in_head(data)
    found = Read(known, {}, [], 0 if known is None else FILE_HEAD_BYTES, len(data))
    for position, after, synced in _records(data, found.end, seed):
        if position > found.end:
            # A record says what was synced when it was written. If that is more than what is before the
            # hole, the hole was synced once: it is damage.
            found.holes.append(Hole(found.end, position, torn=synced <= found.end))
        elif found.holes:
            _harden(found.holes, synced)
        _apply(found.values, data, position + HEAD_BYTES, after)
        found.end = after
    return found


def _harden(holes: list[Hole], synced: int) -> None:
    for index, hole in enumerate(holes):
        if hole.torn and synced > hole.position:
            holes[index] = Hole(hole.position, hole.after, torn=False)


def _records(data: bytes, position: int, seed: int) -> Iterator[tuple[int, int, int]]:
    """Position, end and `synced` of each whole record from `position` on.

    Skips bytes that are not a record.
    """
    while (position := data.find(MAGIC, position)) >= 0:
        after = synced = 0
        if position + HEAD_BYTES <= len(data):
            _, length, synced, crc = _HEAD.unpack_from(data, position)
            after = position + HEAD_BYTES + length
            if (
                _CRC.unpack_from(data, position + 20)[0] != crc32(data[position : position + 20], seed)
                or after > len(data)
                or crc32(memoryview(data)[position + HEAD_BYTES : after], seed) != crc
            ):
                after = 0
        if after:
            yield position, after, synced
            position = after
        else:
            position += 1


def _apply(values: dict[str, bytes], data: bytes, position: int, after: int) -> None:
    while position < after:
        key_bytes, value_bytes = _CHANGE.unpack_from(data, position)
        position += _CHANGE.size
        key = data[position : position + key_bytes].decode()
        position += key_bytes
        if value_bytes == _REMOVED:
            values.pop(key, None)
        else:
            values[key] = data[position : position + value_bytes]
            position += value_bytes
    assert position == after, "the CRC matched, so `encode` wrote this record"
