"""Events to messages. Spec: CloudEvents AMQP binding 1.0.2; Event Streams 4.3 (group key).

Attributes keep their types. A time is written as text, because AMQP's timestamps have only milliseconds and
no zone.
"""

from collections.abc import Mapping
from typing import Final

from amqp_streams.wire.codec import Symbol, encode_list
from amqp_streams.wire.codec import encode as encode_value
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES_MAP8,
    APPLICATION_PROPERTIES_MAP32,
    DATA_BINARY8,
    DATA_BINARY32,
    NULL_VALUE,
    PROPERTIES_HEAD,
)
from event_formats.attributes import NAME_LENGTH_MAX, text_of
from event_formats.event import CloudEvent, Value
from event_formats.json_format import write_event
from event_formats.media import STRUCTURED_JSON, fits_binary
from event_formats.memory import Memory
from event_formats.names import AMQP_HEADER_PREFIX, AMQP_PREFIX, CONTENT_TYPE, KEY

CONTENT_TYPE_FIELD: Final = 6
"""The index of content-type in the properties section. Spec: AMQP 1.0, 3.2.4."""

_SHORT_MAX: Final = 255
_BYTE_MAX: Final = 127
# Encodings that are prepared because each event has some: the head of a short string, by its size, and a
# whole small integer.
_STRINGS: Final = tuple(b"\xa1" + bytes((length,)) for length in range(256))
_BYTES: Final = tuple(b"\x55" + bytes((number,)) for number in range(_BYTE_MAX + 1))

_keys: Final[Memory[str, bytes]] = Memory(2048, NAME_LENGTH_MAX)
_content_types: Final[Memory[str, bytes]] = Memory(2048, 256)


def encode(event: CloudEvent, passed_on: Mapping[str, str] | None = None) -> bytes:
    """Return a message with the event.

    In binary mode if that can carry it (`fits_binary`), otherwise in structured mode.

    `passed_on`: headers of the event's request that the message also carries, with names in lower case.
    """
    if not fits_binary(event):
        return _structured(event, passed_on or {})
    pieces: list[bytes] = []
    content_type = None
    for name, value in event.attributes.items():
        if name == CONTENT_TYPE:
            content_type = value
            continue
        pieces.append(_keys.get(name) or attribute_key(name))
        # Hot path: most attributes are texts, and their encoding needs no call.
        if type(value) is str:
            text = value.encode()
            size = len(text)
            pieces.append(_STRINGS[size] if size <= _SHORT_MAX else b"\xb1" + size.to_bytes(4))
            pieces.append(text)
        elif type(value) is int:
            pieces.append(
                _BYTES[value] if 0 <= value <= _BYTE_MAX else b"\x81" + value.to_bytes(8, signed=True)
            )
        else:
            pieces.append(encode_value(value))
    if passed_on:
        for name, header in passed_on.items():
            pieces += (encode_value(AMQP_HEADER_PREFIX + name), encode_value(header))
    count = len(event.attributes) - (content_type is not None) + (0 if passed_on is None else len(passed_on))
    front = b"" if content_type is None else content_type_section(text_of(content_type))
    key = event.attributes.get(KEY)
    # In the order of the sections: message annotations, properties, application properties.
    if key is not None:
        front = key_section(text_of(key)) + front
    front += properties_section(b"".join(pieces), count)
    return front + (NULL_VALUE if event.data is None else data_head(len(event.data)) + event.data)


def _structured(event: CloudEvent, passed_on: Mapping[str, str]) -> bytes:
    """Return the message in structured mode. Data is Base64, so that every reader gets it byte for byte."""
    key = event.attributes.get(KEY)
    front = b"" if key is None else key_section(text_of(key))
    front += content_type_section(STRUCTURED_JSON)
    if passed_on:
        pieces = [
            encode_value(AMQP_HEADER_PREFIX + name) + encode_value(header)
            for name, header in passed_on.items()
        ]
        front += properties_section(b"".join(pieces), len(pieces))
    body = write_event(event, binary=True)
    return front + DATA_BINARY32 + len(body).to_bytes(4) + body


def attribute(name: str, value: Value) -> bytes:
    """Encode an attribute as key and value of the application properties."""
    if type(value) is int:
        return attribute_key(name) + (
            _BYTES[value] if 0 <= value <= _BYTE_MAX else b"\x81" + value.to_bytes(8, signed=True)
        )
    return attribute_key(name) + encode_value(value)


def attribute_key(name: str) -> bytes:
    """Encode an attribute's name as a key of the application properties."""
    return _keys.keep(name, encode_value(AMQP_PREFIX + name))


def properties_section(inside: bytes, count: int) -> bytes:
    """Return application properties. `inside`: the encoded keys and values; `count`: of the entries."""
    size, items = len(inside), 2 * count
    if size < _SHORT_MAX and items <= _SHORT_MAX:
        return APPLICATION_PROPERTIES_MAP8 + bytes((size + 1, items)) + inside
    return APPLICATION_PROPERTIES_MAP32 + (size + 4).to_bytes(4) + items.to_bytes(4) + inside


def content_type_section(content_type: str) -> bytes:
    """Return a properties section with only a content-type."""
    section = _content_types.get(content_type)
    if section is None:
        fields = [*[None] * CONTENT_TYPE_FIELD, Symbol(content_type)]
        section = _content_types.keep(content_type, PROPERTIES_HEAD + encode_list(fields))
    return section


def data_head(size: int) -> bytes:
    """Return the head of a data section, which `size` bytes of data follow."""
    return DATA_BINARY8 + bytes((size,)) if size <= _SHORT_MAX else DATA_BINARY32 + size.to_bytes(4)
