"""The event that a program passes to a producer, and its encoding as an AMQP message (AMQP 1.0 core 3.2).

Sections in this order: message annotations (key, annotations) | properties | application properties | data
(bytes) or amqp-value (all other bodies)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.wire.codec import Symbol, Timestamp, encode, encode_list
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES_HEAD,
    APPLICATION_PROPERTIES_MAP8,
    APPLICATION_PROPERTIES_MAP32,
    DATA_BINARY8,
    DATA_BINARY32,
    MESSAGE_ANNOTATIONS_HEAD,
    PROPERTIES_HEAD,
    VALUE_HEAD,
)

_SHORT_MAX: Final = 255
_LENGTHS: Final = tuple(bytes((length,)) for length in range(256))
_DATA_SHORT: Final = tuple(DATA_BINARY8 + length for length in _LENGTHS)
_STRINGS: Final = tuple(b"\xa1" + length for length in _LENGTHS)


@dataclass(frozen=True, slots=True)
class Event:
    """An event to send. `key` chooses the partition.

    `body`: bytes become a data section, any other value an amqp-value section. `properties`: the application
    properties; values are str, int, float, bool, bytes, None and the types of `amqp_streams.wire.codec`.
    `annotations`: message annotations in addition to the key. Times are milliseconds since 1970 UTC.

    `message_format`: a number from 0 to 2^32 - 1 (AMQP 1.0 core 2.7.5). To send a message in another format
    than AMQP's own, pass it as a `ReceivedEvent`.
    """

    body: object = b""
    key: str | None = None
    properties: Mapping[str, object] | None = None
    subject: str | None = None
    content_type: str | None = None
    message_id: object = None
    correlation_id: object = None
    creation_time_ms: int | None = None
    to: str | None = None
    reply_to: str | None = None
    annotations: Mapping[str, object] | None = None
    message_format: int = 0

    def encode(self) -> bytes:
        """Return the AMQP message.

        Raises:
            WireError: a value has no AMQP type.
        """
        front = (
            self._annotations() if self.annotations else b"" if self.key is None else key_section(self.key)
        )
        if (
            self.subject is not None
            or self.content_type is not None
            or self.message_id is not None
            or self.correlation_id is not None
            or self.creation_time_ms is not None
            or self.to is not None
            or self.reply_to is not None
        ):
            front += self._message_properties()
        if self.properties:
            front += _application_properties(self.properties)
        # Hot path: most bodies are bytes. Their section is written directly, without the codec.
        body = self.body
        if type(body) is bytes:
            size = len(body)
            if size <= _SHORT_MAX:
                return front + _DATA_SHORT[size] + body
            return front + DATA_BINARY32 + size.to_bytes(4) + body
        if isinstance(body, bytearray | memoryview):
            return front + DATA_BINARY32 + len(body).to_bytes(4) + bytes(body)
        return front + VALUE_HEAD + encode(body)

    def _annotations(self) -> bytes:
        entries: dict[Symbol, object] = {
            Symbol(key): value for key, value in (self.annotations or {}).items()
        }
        if self.key is not None:
            entries[Symbol(names.GROUP_KEY)] = self.key
        return MESSAGE_ANNOTATIONS_HEAD + encode(entries)

    def _message_properties(self) -> bytes:
        fields = [
            self.message_id,
            None,
            self.to,
            self.subject,
            self.reply_to,
            self.correlation_id,
            None if self.content_type is None else Symbol(self.content_type),
            None,
            None,
            None if self.creation_time_ms is None else Timestamp(self.creation_time_ms),
        ]
        return PROPERTIES_HEAD + encode_list(fields)


def _application_properties(properties: Mapping[str, object]) -> bytes:
    # Hot path: most properties are short strings, so the map is written directly instead of by the codec.
    pieces = []
    for name, value in properties.items():
        text = name.encode()
        if len(text) > _SHORT_MAX:
            return APPLICATION_PROPERTIES_HEAD + encode(dict(properties))
        pieces.append(_STRINGS[len(text)])
        pieces.append(text)
        # A character has at most 4 bytes in UTF-8.
        if type(value) is str and len(value) <= _SHORT_MAX // 4:
            text = value.encode()
            pieces.append(_STRINGS[len(text)])
            pieces.append(text)
        else:
            pieces.append(encode(value))
    inside = b"".join(pieces)
    count = 2 * len(properties)
    # The size field of a map also counts the count field: 1 byte in a short map, 4 in a long one.
    if len(inside) < _SHORT_MAX and count <= _SHORT_MAX:
        return APPLICATION_PROPERTIES_MAP8 + _LENGTHS[len(inside) + 1] + _LENGTHS[count] + inside
    return APPLICATION_PROPERTIES_MAP32 + (len(inside) + 4).to_bytes(4) + count.to_bytes(4) + inside
