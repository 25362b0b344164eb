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

A batch may be compressed as a whole: `wire/batched/compression.py`.

Law: reading returns what was written. The only step of Python for each event is the slice of its message.
A batch without events only reports `next-offset`; its body is null.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from struct import Struct
from typing import Final

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.batched.arrays import (
    JoinSections,
    Sections,
    join_sections,
    numbers_of,
    read_array,
    sizes_of,
    walk_sections,
    write_array,
)
from amqp_streams.wire.batched.compression import decompressed
from amqp_streams.wire.decoder import decode
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.layout import (
    DELIVERY_ANNOTATIONS,
    DELIVERY_ANNOTATIONS_HEAD,
    NULL_VALUE,
    find_section,
    map_entries,
)
from amqp_streams.wire.offsets import offset_text
from amqp_streams.wire.types import Symbol, Timestamp, ULong, Value

EVENT_BYTES: Final = 8 + 8 + 4 + 8
"""How many bytes each event needs in a batch in addition to its message: three array items, and the head of
its section.
"""
FORMAT_BYTES: Final = 8
"""How many more bytes an event needs if its message-format is not 0."""
BATCH_OVERHEAD_BYTES: Final = 512
"""How many bytes a batch needs in addition to its events, at most."""

_MAP: Final = Struct(">BII")
# Always the long forms, with sizes of 4 bytes: one layout to write, and one to read as a block.
_MAP_CODE: Final = 0xD1
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


@dataclass(frozen=True, eq=False)
class Batch:
    """Events of one partition.

    Event i has `offsets[i]`, `timestamps_ms[i]` and `messages[i]` (the bytes as stored, which is as sent).

    `content`: the messages, or the sections that have them. `next_offset`: the node has processed everything
    before it; None if the batch does not contain it. `annotations`: the other delivery annotations.
    `formats`: the message-formats that are not 0, by index.
    """

    partition: str
    offsets: "array[int]"
    timestamps_ms: "array[int]"
    content: Sections | list[bytes]
    next_offset: int | None
    annotations: Mapping[str, Value] = field(default_factory=dict)
    formats: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def messages(self) -> list[bytes]:
        """The messages. They are copied from the sections when they are first asked for."""
        return self.content.contents() if isinstance(self.content, Sections) else self.content


def write_batch(
    partition: str,
    offsets: "array[int]",
    timestamps_ms: "array[int]",
    messages: Sequence[bytes],
    *,
    next_offset: int,
    extra: Mapping[str, object] | None = None,
    formats: Mapping[int, int] | None = None,
    join: JoinSections | None = None,
) -> bytes:
    """Encode a batch as an AMQP message.

    `extra`: further delivery annotations; values that are None are left out. `formats`: as in `Batch`.
    `join`: see `join_sections`.
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
        sizes = sizes_of(messages)
        pairs += [
            _OFFSETS,
            write_array(0x80, offsets),
            _TIMESTAMPS,
            write_array(0x83, timestamps_ms),
            _SIZES,
            write_array(0x70, sizes),
        ]
    if formats:
        pairs += [_FORMATS, write_array(0x70, array("I", chain.from_iterable(formats.items())))]
    content = b"".join(pairs)
    head = DELIVERY_ANNOTATIONS_HEAD + _MAP.pack(_MAP_CODE, 4 + len(content), len(pairs)) + content
    return join_sections(head, sizes, messages, join) if count else head + NULL_VALUE


def read_batch(message: bytes, bytes_max: int | None = None) -> Batch:
    """Decode a batch. `bytes_max`: as in `read_sent_batch`.

    Raises:
        WireError: the bytes are not a message, or not a batch; or the batch is compressed, and cannot be
            decompressed here.
    """
    extent = find_section(message, DELIVERY_ANNOTATIONS)
    if extent is None:
        raise WireError("a batch has delivery annotations")
    found, arrays = _annotations(message, extent.start, extent.end)
    if (codec := found.get(names.BATCH_COMPRESSION)) is not None:
        return _read_compressed(walk_sections(message, 1), codec, found, bytes_max)
    partition, next_offset = found.pop(names.SOURCE_PARTITION, None), found.pop(names.BATCH_NEXT_OFFSET, None)
    if not isinstance(partition, str):
        raise WireError("a batch says its partition")
    offsets, stamps, sizes, pairs = (
        arrays.get((name, code)) or numbers_of(found.pop(name, None), code) for name, code in _ARRAYS
    )
    content = Sections(message, extent.end, sizes) if sizes else walk_sections(message, len(offsets))
    count = len(sizes) if isinstance(content, Sections) else len(content)
    if not len(offsets) == len(stamps) == count:
        raise WireError(f"a batch of {count} events has {len(offsets)} offsets and {len(stamps)} timestamps")
    # The pairs come from the peer: an index outside the batch would name an event that does not exist.
    if len(pairs) % 2 or any(index >= count for index in pairs[::2]):
        raise WireError(f"the message-formats of a batch of {count} events are not those of its events")
    formats = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return Batch(
        str(partition),
        offsets,
        stamps,
        content,
        int(next_offset) if isinstance(next_offset, int) else None,
        found,
        formats,
    )


def _read_compressed(
    frames: list[bytes], codec: Value, annotations: Mapping[str, Value], bytes_max: int | None
) -> Batch:
    if bytes_max is None:
        raise WireError("a compressed batch may not contain a compressed batch")
    if len(frames) != 1:
        raise WireError("a compressed batch has one data section")
    return read_batch(
        decompressed(frames[0], codec, annotations.get(names.BATCH_UNCOMPRESSED_SIZE), bytes_max)
    )


def _annotations(
    message: bytes, at: int, end: int
) -> tuple[dict[str, Value], "dict[tuple[str, str], array[int]]"]:
    """Return the entries of a map. Arrays of numbers are returned separately, by name and type code."""
    count, at = map_entries(message, at, end)
    values: dict[str, Value] = {}
    arrays: dict[tuple[str, str], array[int]] = {}
    for _ in range(count // 2):
        key, at = decode(message, at)
        # A list of Python integers would cost more than all else: arrays of numbers are copied as blocks.
        if message[at : at + 1] == b"\xf0" and (taken := read_array(message, at, end)) is not None:
            numbers, at = taken
            arrays[str(key), numbers.typecode] = numbers
        else:
            values[str(key)], at = decode(message, at)
    # An entry that goes beyond the map would move every section after it.
    if at != end:
        raise WireError(f"the annotations of a batch end at byte {at}, not at {end}")
    return values, arrays
