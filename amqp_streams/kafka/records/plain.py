"""Records of topics that other programs use: a Kafka client sees payload, key and headers. Pure.

| in the record | of the message |
|---|---|
| value | the payload of its data section |
| key | its group key, UTF-8 |
| headers | its application properties: texts as UTF-8, binaries as they are, other values as texts |
| the header `amqp-streams` | what the above does not have |

The last header exists only if the message is not the one that the rest of the record gives. Its value:

    01  flags: u8  before: u32  between: u32  before  between  after        numbers are big-endian

The message is `before`, the application properties as made from the headers (only with flag 1), `between`,
the value, and `after`. The constructor and the size of the data section precede the value. If another program
changed the value, that size is wrong, and the record is read like one of a Kafka client.

Reading a record of a Kafka client: no value is the body null; a header value is a text if it is valid UTF-8,
else a binary; of a repeated name the last one counts; a key that is not UTF-8 gives no group key.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from amqp_streams import names
from amqp_streams.errors import PeerError, WireError
from amqp_streams.kafka.records.amqp import header_size
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    APPLICATION_PROPERTIES_HEAD,
    DATA,
    DATA_BINARY8,
    DATA_BINARY32,
    NULL_VALUE,
    SEQUENCE,
    VALUE,
    Section,
    descriptor_at,
    sections,
)
from amqp_streams.wire.sections import group_key
from amqp_streams.wire.types import Value

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
REMAINDER: Final = "amqp-streams"
"""The name of the header with the rest of a message."""
_VERSION: Final = 1
_MADE: Final = 1
_HEAD: Final = struct.Struct(">BBII")


class PlainRecord(NamedTuple):
    """A record as Kafka's clients have it."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def plain_record(message: bytes, message_format: int = 0) -> PlainRecord:
    """The record for a stored message.

    Raises:
        PeerError: the message has no place in such a topic; the error says why.
    """
    if message_format:
        raise _refused(f"it has the message-format {message_format}")
    try:
        found = sections(message)
        key = group_key(message)
        named = _properties(message, found)
    except WireError as error:
        raise PeerError(names.DECODE_ERROR, str(error)) from error
    body = [section for section in found if section.code in {DATA, SEQUENCE, VALUE}]
    if len(body) != 1 or body[0].code != DATA:
        raise _refused("its body is not one data section")
    end = body[0].end
    start = end - _payload_size(message, body[0])
    headers = [
        (name, _header_value(value))
        for name, value in named.items()
        if isinstance(name, str) and _is_header(name, value)
    ]
    record = PlainRecord(None if key is None else key.encode(), message[start:end], headers)
    if _made(record) == message:
        return record
    return record._replace(headers=[*headers, (REMAINDER, _remainder(message, found, start, end, headers))])


def plain_message(record: PlainRecord) -> tuple[bytes, int]:
    """The message of a record, and the size of its header section."""
    rest = next((value for name, value in reversed(record.headers) if name == REMAINDER), None)
    message = None if rest is None or record.value is None else _restored(rest, record)
    if message is None:
        message = _made(record)
    return message, header_size(message)


def _refused(why: str) -> PeerError:
    return PeerError(
        names.NOT_ALLOWED,
        f"the topic of this log has records of Kafka clients, and this event cannot be one: {why}",
    )


def _properties(message: bytes, found: Sequence[Section]) -> dict[Value, Value]:
    for code, start, _ in found:
        if code == APPLICATION_PROPERTIES:
            value, _ = decode(message, descriptor_at(message, start)[1])
            return value if isinstance(value, dict) else {}
    return {}


def _payload_size(message: bytes, section: Section) -> int:
    _, at = descriptor_at(message, section.start)
    return section.end - at - (2 if message[at] == DATA_BINARY8[-1] else 5)


def _is_header(name: str, value: Value) -> bool:
    # A name ends at a NUL in librdkafka, and ours is for the remainder.
    return name not in {"", REMAINDER} and "\0" not in name and not isinstance(value, dict | list)


def _header_value(value: Value) -> bytes | None:
    match value:
        case None:
            return None
        case bytes():
            return bytes(value)
        case bool():
            return b"true" if value else b"false"
        case _:
            return str(value).encode("utf-8", "surrogatepass")


def _made(record: PlainRecord) -> bytes:
    """The message that key, value and headers alone give."""
    value, parts = record.value, []
    if record.key is not None and (key := _text(record.key)) is not None:
        parts.append(key_section(key))
    parts += [_properties_section(record.headers)]
    if value is None:
        parts.append(NULL_VALUE)
    elif len(value) <= 0xFF:
        parts += [DATA_BINARY8, bytes((len(value),)), value]
    else:
        parts += [DATA_BINARY32, len(value).to_bytes(4), value]
    return b"".join(parts)


def _properties_section(headers: Headers) -> bytes:
    properties = {name: _property(value) for name, value in headers if name != REMAINDER}
    return APPLICATION_PROPERTIES_HEAD + encode(properties) if properties else b""


def _property(value: bytes | None) -> Value:
    if value is None:
        return None
    text = _text(value)
    return value if text is None else text


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _remainder(message: bytes, found: Sequence[Section], start: int, end: int, headers: Headers) -> bytes:
    """The value of the last header: everything but the payload, and properties that the headers give."""
    made = _properties_section(headers)
    for code, at, after in found:
        if code == APPLICATION_PROPERTIES and message[at:after] == made:
            before, between, flags = message[:at], message[after:start], _MADE
            break
    else:
        before, between, flags = message[:start], b"", 0
    head = _HEAD.pack(_VERSION, flags, len(before), len(between))
    return head + before + between + message[end:]


def _restored(rest: bytes, record: PlainRecord) -> bytes | None:
    """The message of a remainder; None if it does not belong to the record's value."""
    assert record.value is not None
    if len(rest) < _HEAD.size:
        return None
    version, flags, first, second = _HEAD.unpack_from(rest)
    at = _HEAD.size
    before, between, after = (
        rest[at : at + first],
        rest[at + first : at + first + second],
        at + first + second,
    )
    size = len(record.value)
    wide, narrow = b"\xb0" + size.to_bytes(4), bytes((0xA0, size & 0xFF))
    if (
        version != _VERSION
        or after > len(rest)
        or not (before + between).endswith((wide, narrow) if size <= 0xFF else wide)
    ):
        return None
    made = _properties_section(record.headers) if flags & _MADE else b""
    message = before + made + between + record.value + rest[after:]
    # Another program may have written the header, and what the node sends must be a message.
    try:
        sections(message)
    except WireError:
        return None
    return message
