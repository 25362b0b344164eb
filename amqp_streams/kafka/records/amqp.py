"""Records of the topics of our own logs: the value is the stored message. Pure.

The value has the message as it is, if the size of its header section can be seen in it and its message-format
is 0: nearly always. Otherwise it begins with a byte that no AMQP message begins with:

    01  header size: u8  message-format: u32, big-endian  message

The key is the group key of the event, for people and for Kafka's tools; no record has headers.
"""

import struct
from array import array
from collections.abc import Sequence
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.storage.ports import Formats
from amqp_streams.wire.batched.packed import Packed, packed_copy
from amqp_streams.wire.layout import (
    HEADER,
    HEADER_HEAD,
    NULL_VALUE,
    section_at,
)
from amqp_streams.wire.sections import group_key, header_sizes_alike, without_annotations

_WRAPPED: Final = b"\x01"
_HEAD: Final = struct.Struct(">BBI")
OVERHEAD_MAX: Final = _HEAD.size
"""The most bytes that a value has more than its message."""


def values(messages: Sequence[bytes], header_sizes: bytes, formats: Formats = None) -> Sequence[bytes]:
    """The values of records: the messages themselves, or new ones."""
    if formats is None and header_sizes_alike(messages) == header_sizes:
        return messages
    numbers = formats or bytes(len(messages))
    return [
        message
        if not number and message[:1] != _WRAPPED and header_size(message) == size
        else _HEAD.pack(_WRAPPED[0], size, number) + message
        for message, size, number in zip(messages, header_sizes, numbers, strict=True)
    ]


def keys(messages: Sequence[bytes]) -> list[bytes | None]:
    """The keys of records: the group keys of their messages, as far as they can be read."""
    # Nearly always: two comparisons instead of a search in each message.
    if without_annotations(messages):
        return [None] * len(messages)
    return [_key(message) for message in messages]


def messages(values: Sequence[bytes | None]) -> tuple[Sequence[bytes], bytes, Formats]:
    """Messages, header sizes and message-formats of records with these values.

    Usual messages are in one buffer, so that a delivery needs no step for each of them. A record without a
    value, which only another program can have written, is a message with the body null.
    """
    if isinstance(values, Packed) and (alike := header_sizes_alike(values)) is not None:
        return values, alike, None
    given = [NULL_VALUE if value is None else value for value in values]
    if (alike := header_sizes_alike(given)) is not None:
        return packed_copy(given), alike, None
    found, sizes, formats = [], bytearray(), array("I")
    for value in given:
        if value[:1] == _WRAPPED and len(value) >= _HEAD.size:
            _, size, number = _HEAD.unpack_from(value)
            found.append(value[_HEAD.size :])
        else:
            size, number = header_size(value), 0
            found.append(value)
        sizes.append(size)
        formats.append(number)
    return found, bytes(sizes), formats if any(formats) else None


def header_size(message: bytes) -> int:
    """The bytes of the header section with which a message begins; 0 if it has none that can be stored."""
    if not message.startswith(HEADER_HEAD):
        return 0
    try:
        code, _, end = section_at(message, 0)
    except WireError:
        return 0
    return end if code == HEADER and end <= 0xFF else 0


def _key(message: bytes) -> bytes | None:
    try:
        key = group_key(message)
    except WireError:
        return None
    return None if key is None else key.encode()
