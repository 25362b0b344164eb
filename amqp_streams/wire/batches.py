"""The batched delivery: many events of one partition in one AMQP message.

For authors of other clients: docs/batched-deliveries.md.

    00 53 71  d1 <size> <count>        delivery annotations: a map
      event-streams-source-partition   symbol
      amqp-streams:next-offset         ulong: the node has read the partition up to this offset, exclusive
      event-streams-timestamp,         of the last event, so that a client that does not know batches
      event-streams-offset             continues after the batch
      amqp-streams:offsets             array of ulong (f0 <size> <count> 80), 8 bytes each: ascending
      amqp-streams:timestamps          array of timestamp (f0 <size> <count> 83), 8 bytes each
      amqp-streams:sizes               array of uint (f0 <size> <count> 70), 4 bytes each: bytes of messages
      amqp-streams:message-formats     array of uint: two items for each event whose format is not 0, its
                                       index in the batch and its format; absent if all formats are 0
    00 53 75  b0 <size> <message>      a data section for each event, always with a size of 4 bytes

Law: reading returns what was written. The only step of Python for each event is the slice of its message.
A batch without events only reports `next-offset`; its body is null.
"""

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from struct import Struct, iter_unpack
from typing import Final

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import (
    DATA,
    DATA_BINARY32,
    DELIVERY_ANNOTATIONS,
    DELIVERY_ANNOTATIONS_HEAD,
    NULL_VALUE,
    find_section,
    sections,
)
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Array, Symbol, Timestamp, ULong, Value

EVENT_BYTES: Final = 8 + 8 + 4 + 8
"""How many bytes each event needs in a batch in addition to its message: three array items, and the head of
its section.
"""
FORMAT_BYTES: Final = 8
"""How many more bytes an event needs if its message-format is not 0."""
BATCH_OVERHEAD_BYTES: Final = 512
"""How many bytes a batch needs in addition to its events, at most."""

_SWAP: Final = sys.byteorder == "little"
_SECTION_BYTES: Final = 8
_ARRAY: Final = Struct(">BIIB")
_MAP: Final = Struct(">BII")
# Always the long forms, with sizes of 4 bytes: one layout to write, and one to read as a block.
_MAP_CODE: Final = 0xD1
_ARRAY_CODE: Final = 0xF0
_LENGTH: Final = Struct(">I")
_OFFSETS, _TIMESTAMPS, _SIZES, _FORMATS = (
    encode(Symbol(name))
    for name in (names.BATCH_OFFSETS, names.BATCH_TIMESTAMPS, names.BATCH_SIZES, names.BATCH_MESSAGE_FORMATS)
)
_ARRAYS: Final = (
    (names.BATCH_OFFSETS, "Q"),
    (names.BATCH_TIMESTAMPS, "q"),
    (names.BATCH_SIZES, "I"),
    (names.BATCH_MESSAGE_FORMATS, "I"),
)
_FIXED: Final = {0x80: "Q", 0x83: "q", 0x70: "I"}
"""Constructors of array items that are read as a block, with the type code of `array`."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Events of one partition.

    Event i has `offsets[i]`, `timestamps_ms[i]` and `messages[i]` (the bytes as stored, which is as sent).

    `next_offset`: the node has processed everything before it; None if the batch does not contain it.
    `annotations`: the other delivery annotations. `formats`: the message-formats that are not 0, by index.
    """

    partition: str
    offsets: "array[int]"
    timestamps_ms: "array[int]"
    messages: list[bytes]
    next_offset: int | None
    annotations: Mapping[str, Value] = field(default_factory=dict)
    formats: Mapping[int, int] = field(default_factory=dict)


def write_batch(
    partition: str,
    offsets: "array[int]",
    timestamps_ms: "array[int]",
    messages: Sequence[bytes],
    *,
    next_offset: int,
    extra: Mapping[str, object] | None = None,
    formats: Mapping[int, int] | None = None,
) -> bytes:
    """Encode a batch as an AMQP message.

    `extra`: further delivery annotations; values that are None are left out. `formats`: as in `Batch`.
    """
    count = len(messages)
    assert len(offsets) == len(timestamps_ms) == count, "each message has an offset and a timestamp"
    entries: dict[str, object] = {
        names.SOURCE_PARTITION: Symbol(partition),
        names.BATCH_NEXT_OFFSET: ULong(next_offset),
    }
    if count:
        entries |= {
            names.TIMESTAMP: Timestamp(timestamps_ms[-1]),
            names.OFFSET: Symbol(offset_text(offsets[-1])),
        }
    entries |= {key: value for key, value in (extra or {}).items() if value is not None}
    pairs = [encode(part) for key, value in entries.items() for part in (Symbol(key), value)]
    if count:
        sizes = array("I", map(len, messages))
        pairs += [
            _OFFSETS,
            _array(0x80, offsets),
            _TIMESTAMPS,
            _array(0x83, timestamps_ms),
            _SIZES,
            _array(0x70, sizes),
        ]
    if formats:
        pairs += [_FORMATS, _array(0x70, array("I", chain.from_iterable(formats.items())))]
    content = b"".join(pairs)
    head = DELIVERY_ANNOTATIONS_HEAD + _MAP.pack(_MAP_CODE, 4 + len(content), len(pairs)) + content
    return _with_body(head, sizes, messages) if count else head + NULL_VALUE


def _with_body(head: bytes, sizes: "array[int]", messages: Sequence[bytes]) -> bytes:
    """Join all parts in one step: this is most of the cost of a batch."""
    count = len(sizes)
    # Events of one size need only one separator, so one `join` writes the whole body.
    if sizes.count(sizes[0]) == count:
        return (DATA_BINARY32 + _LENGTH.pack(sizes[0])).join([head, *messages])
    # Three parts for each event: the head of its section, its size, its bytes. The slices are filled in C.
    parts: list[bytes] = [DATA_BINARY32] * (3 * count)
    parts[1::3] = list(chain.from_iterable(iter_unpack("4s", _bytes(sizes))))
    parts[2::3] = messages
    # The first element also carries what precedes the body.
    parts[0] = head + DATA_BINARY32
    return b"".join(parts)


def read_batch(message: bytes) -> Batch:
    """Decode a batch.

    Raises:
        WireError: the bytes are not a message, or not a batch.
    """
    extent = find_section(message, DELIVERY_ANNOTATIONS)
    if extent is None:
        raise WireError("a batch has delivery annotations")
    found, arrays = _annotations(message, extent.start, extent.end)
    partition, next_offset = found.pop(names.SOURCE_PARTITION, None), found.pop(names.BATCH_NEXT_OFFSET, None)
    if not isinstance(partition, str):
        raise WireError("a batch says its partition")
    offsets, stamps, sizes, pairs = (
        arrays.get((name, code)) or _numbers(found.pop(name, None), code) for name, code in _ARRAYS
    )
    messages = _messages(message, extent.end, sizes) if sizes else _walked(message, len(offsets))
    if not len(offsets) == len(stamps) == len(messages):
        raise WireError(
            f"a batch of {len(messages)} events has {len(offsets)} offsets and {len(stamps)} timestamps"
        )
    # The pairs come from the peer: an index outside the batch would name an event that does not exist.
    if len(pairs) % 2 or any(index >= len(messages) for index in pairs[::2]):
        raise WireError(
            f"the message-formats of a batch of {len(messages)} events are not those of its events"
        )
    formats = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return Batch(
        str(partition),
        offsets,
        stamps,
        messages,
        int(next_offset) if isinstance(next_offset, int) else None,
        found,
        formats,
    )


def _messages(message: bytes, at: int, sizes: "array[int]") -> list[bytes]:
    """Return the contents of data sections with known sizes."""
    count, size = len(sizes), sizes[0]
    # One comparison replaces a check of each section: with this sum, no slice can leave the message.
    if sum(sizes) + _SECTION_BYTES * count != len(message) - at:
        raise WireError(
            f"the sizes in a batch are not those of its {len(message) - at} bytes of data sections"
        )
    # Events of one size are cut by one format of `struct`, without Python code for each event.
    if sizes.count(size) == count:
        return list(chain.from_iterable(iter_unpack(f"{_SECTION_BYTES}x{size}s", memoryview(message)[at:])))
    ends = list(accumulate([size + _SECTION_BYTES for size in sizes], initial=at))
    starts = map(_SECTION_BYTES.__add__, ends)
    return list(map(message.__getitem__, map(slice, starts, ends[1:])))


def _walked(message: bytes, count: int) -> list[bytes]:
    """Return the contents of data sections with unknown sizes, as other implementations may write them."""
    if not count:
        return []
    found = [decode(message, section.start)[0] for section in sections(message) if section.code == DATA]
    return [value.value for value in found]  # type: ignore[union-attr,misc]  # a data section is described, and binary


def _numbers(value: Value, code: str) -> "array[int]":
    """Return the numbers of an array that was not written in the form that `_taken` reads."""
    try:
        return array(code, value.items if isinstance(value, Array) else ())  # type: ignore[arg-type]  # what is not a number is caught
    except (TypeError, OverflowError):
        raise WireError("an array of a batch has other items than numbers of its kind") from None


def _annotations(
    message: bytes, at: int, end: int
) -> tuple[dict[str, Value], "dict[tuple[str, str], array[int]]"]:
    """Return the entries of a map. Arrays of numbers are returned separately, by name and type code."""
    narrow = message[at] == 0xC1
    count = message[at + 2] if narrow else int.from_bytes(message[at + 5 : at + 9])
    at += 3 if narrow else 9
    values: dict[str, Value] = {}
    arrays: dict[tuple[str, str], array[int]] = {}
    for _ in range(count // 2):
        key, at = decode(message, at)
        # A list of Python integers would cost more than all else: arrays of numbers are copied as blocks.
        if message[at : at + 1] == b"\xf0" and (taken := _taken(message, at, end)) is not None:
            numbers, at = taken
            arrays[str(key), numbers.typecode] = numbers
        else:
            values[str(key)], at = decode(message, at)
    # An entry that goes beyond the map would move every section after it.
    if at != end:
        raise WireError(f"the annotations of a batch end at byte {at}, not at {end}")
    return values, arrays


def _taken(message: bytes, at: int, end: int) -> "tuple[array[int], int] | None":
    """Read an array of numbers that begins at byte `at`.

    Returns it and the byte after it; None if it has other items.

    Raises:
        WireError: the sizes contradict each other.
    """
    if end - at < _ARRAY.size:
        return None
    _, size, count, code = _ARRAY.unpack_from(message, at)
    kind = _FIXED.get(code)
    if kind is None:
        return None
    numbers = array(kind)
    start, stop = at + _ARRAY.size, at + 5 + size
    # Before the copy: a size that is too large must not cause an allocation.
    if stop > end or stop - start != count * numbers.itemsize:
        raise WireError(f"the array at byte {at} has not the bytes of its {count} items")
    numbers.frombytes(memoryview(message)[start:stop])
    if _SWAP:
        numbers.byteswap()
    return numbers, stop


def _array(code: int, numbers: "array[int]") -> bytes:
    data = _bytes(numbers)
    return _ARRAY.pack(_ARRAY_CODE, 5 + len(data), len(numbers), code) + data


def _bytes(numbers: "array[int]") -> bytes:
    if _SWAP:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
