"""The record of one write of states: how it stands in the file `states`. Pure.

Law: what was encoded is what is decoded, or a CRC says that it is not; a record is taken as a whole or not at all. All numbers
little-endian. The file::

    0   4  magic "AES1"
    4   8  u64  the data directory's id
    12  4  u32  CRC-32 (zlib) of the 12 bytes before
    16     records, back to back

A record::

    0   4  magic "AER1"
    4   4  u32  length of the changes in bytes
    8   8  u64  bytes of this file that were on the disk when it was written: damage there is no torn tail, whatever follows it
    16  4  u32  CRC-32 of the changes, begun with the seed
    20  4  u32  CRC-32 of bytes 0 to 19, begun with the seed, so that no value that looks like a record is ever taken for one
    24     the changes, back to back, each:
           u16  length of the key
           u32  length of the value, or 0xFFFFFFFF: the key is removed
           the key, UTF-8
           the value
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final
from zlib import crc32

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
"""About so much goes into one record when all values are written: what one damaged place can take with it."""

Changes = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Hole:
    """A stretch of the file that is not a whole record. `torn`: it was never on the disk, as far as anything behind it knows."""

    position: int
    after: int
    torn: bool


@dataclass(slots=True, eq=False)
class Read:
    """What a file holds. `directory_id` is None if its head is damaged. What is behind `end`, its last whole record, is a torn tail."""

    directory_id: int | None
    values: dict[str, bytes]
    holes: list[Hole]
    end: int
    size: int

    @property
    def head_damaged(self) -> bool:
        """Whether the file's head says nothing."""
        return self.directory_id is None


def seed_of(directory_id: int) -> int:
    """What the CRCs of a data directory's states begin with."""
    return crc32(b"states" + directory_id.to_bytes(8, "little"))


def checked(changes: Changes, values: Mapping[str, bytes]) -> Changes:
    """The changes, if they are within bounds.

    Raises:
        ValueError: a key or a value is too long, or there would be too many keys.
    """
    more = 0
    for key, value in changes.items():
        if not 1 <= len(key.encode()) <= STATE_KEY_BYTES_MAX:
            message = f"a key has 1 to {STATE_KEY_BYTES_MAX} bytes, not {len(key.encode())}"
            raise ValueError(message)
        if value is not None and len(value) > STATE_VALUE_BYTES_MAX:
            message = f"the value of {key[:80]!r} has {len(value)} bytes, more than {STATE_VALUE_BYTES_MAX}"
            raise ValueError(message)
        more += value is not None and key not in values
    if more and len(values) + more > STATE_KEYS_MAX:
        message = f"there would be more than {STATE_KEYS_MAX} keys"
        raise ValueError(message)
    return changes


def encode_head(directory_id: int) -> bytes:
    """What a file begins with."""
    head = _FILE_HEAD.pack(FILE_MAGIC, directory_id)
    return head + _CRC.pack(crc32(head))


def encode(changes: Changes, *, synced: int, seed: int) -> bytes:
    """One record. `synced` as in the layout."""
    parts: list[bytes] = []
    for key, value in changes.items():
        name = key.encode()
        parts += (_CHANGE.pack(len(name), _REMOVED if value is None else len(value)), name, value or b"")
    body = b"".join(parts)
    head = _HEAD.pack(MAGIC, len(body), synced, crc32(body, seed))
    return head + _CRC.pack(crc32(head, seed)) + body


def encode_file(values: Mapping[str, bytes], directory_id: int) -> bytes:
    """A whole file with these values: all together they count or, put in place by a rename, none."""
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
    """What a value takes in a file that holds nothing else, about."""
    return len(key) + len(value) + _CHANGE.size


def read(data: bytes, directory_id: int) -> Read:
    """Everything in a file that can be read, whatever happened to it."""
    seed = seed_of(directory_id)
    head = data[:FILE_HEAD_BYTES]
    whole = len(head) == FILE_HEAD_BYTES and head[:4] == FILE_MAGIC and crc32(head[:12]) == _CRC.unpack_from(head, 12)[0]
    found = Read(_FILE_HEAD.unpack_from(head)[1] if whole else None, {}, [], FILE_HEAD_BYTES if whole else 0, len(data))
    for position, after, synced in _records(data, found.end, seed):
        if position > found.end:
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
    """Place, end, and `synced` of each whole record from `position` on; what is none is searched through for the next."""
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
    assert position == after, "a record whose CRC is right was written by encode"
