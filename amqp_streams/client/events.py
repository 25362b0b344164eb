"""An event as a producer gives it and as a consumer gets it; the bytes between are an AMQP message (AMQP 1.0 core 3.2).

message annotations (key, annotations) | properties | application properties | data (bytes) or amqp-value (all else)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from amqp_streams import names
from amqp_streams.client.message import Place, bare, decoded, place_of
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Symbol, Timestamp, encode, encode_list
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    sections,
)

_KEY: Final = encode(Symbol(names.GROUP_KEY)) + b"\xa1"
_KEY_HEAD: Final = b"\x00\x53\x72\xc1"
_SHORT_MAX: Final = 255
_KEY_MAX: Final = _SHORT_MAX - 2 - len(_KEY)
_LENGTHS: Final = tuple(bytes((length,)) for length in range(256))
_DATA_SHORT: Final = tuple(b"\x00\x53\x75\xa0" + length for length in _LENGTHS)
_DATA_LONG: Final = b"\x00\x53\x75\xb0"
_KEY_HEADS: Final = tuple(_KEY_HEAD + bytes((len(_KEY) + length + 2, 2)) + _KEY + bytes((length,)) for length in range(_KEY_MAX + 1))
_STRINGS: Final = tuple(b"\xa1" + length for length in _LENGTHS)


@dataclass(frozen=True, slots=True)
class Event:
    """An event to send. `body`: bytes become a data section, everything else an amqp-value. `key` chooses the partition.

    Times are milliseconds since 1970 UTC. `properties` are application properties: str, int, float, bool, bytes, None and the
    types of `amqp_streams.wire.codec`. `annotations` are message annotations besides the key.
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

    def encode(self) -> bytes:
        """The AMQP message.

        Raises:
            WireError: something in it has no AMQP type.
        """
        front = self._annotations() if self.annotations else b"" if self.key is None else _key_section(self.key)
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
        body = self.body
        if type(body) is bytes:
            size = len(body)
            if size <= _SHORT_MAX:
                return front + _DATA_SHORT[size] + body
            return front + _DATA_LONG + size.to_bytes(4) + body
        if isinstance(body, bytearray | memoryview):
            return front + _DATA_LONG + len(body).to_bytes(4) + bytes(body)
        return front + b"\x00\x53\x77" + encode(body)

    def _annotations(self) -> bytes:
        entries: dict[Symbol, object] = {Symbol(key): value for key, value in (self.annotations or {}).items()}
        if self.key is not None:
            entries[Symbol(names.GROUP_KEY)] = self.key
        return b"\x00\x53\x72" + encode(entries)

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
        return b"\x00\x53\x73" + encode_list(fields)


def _key_section(key: str) -> bytes:
    text = key.encode()
    if len(text) <= _KEY_MAX:
        return _KEY_HEADS[len(text)] + text
    return b"\x00\x53\x72" + encode({Symbol(names.GROUP_KEY): key})


def _application_properties(properties: Mapping[str, object]) -> bytes:
    pieces = []
    for name, value in properties.items():
        text = name.encode()
        if len(text) > _SHORT_MAX:
            return b"\x00\x53\x74" + encode(dict(properties))
        pieces.append(_STRINGS[len(text)])
        pieces.append(text)
        if type(value) is str and len(value) <= _SHORT_MAX // 4:
            text = value.encode()
            pieces.append(_STRINGS[len(text)])
            pieces.append(text)
        else:
            pieces.append(encode(value))
    inside = b"".join(pieces)
    count = 2 * len(properties)
    if len(inside) < _SHORT_MAX and count <= _SHORT_MAX:
        return b"\x00\x53\x74\xc1" + _LENGTHS[len(inside) + 1] + _LENGTHS[count] + inside
    return b"\x00\x53\x74\xd1" + (len(inside) + 4).to_bytes(4) + count.to_bytes(4) + inside


class ReceivedEvent:
    """An event as it came. Everything but `message` is decoded when asked for; what a broken message has not raises WireError.

    `message`: the AMQP message, delivery annotations included. Fields are those of `Event`, besides `offset`, `partition`,
    `timestamp_ms` (when it was stored) and `delivery_annotations`.
    """

    __slots__ = ("_delivery", "_link", "_place", "_sections", "message")

    def __init__(self, message: bytes, delivery: Any = None, link: Any = None) -> None:
        self.message: Final = message
        self._delivery = delivery
        self._link = link
        self._place: Place | None = None
        self._sections: dict[int, object] | None = None

    def __repr__(self) -> str:
        place = self._found()
        return f"<ReceivedEvent {place.partition}:{place.offset}, {len(self.message)} bytes>"

    def encode(self) -> bytes:
        """The message as its producer sent it, to send it on."""
        return bare(self.message)

    @property
    def offset(self) -> str | None:
        """Its place in its partition; later events have greater ones. None: the peer is no event log."""
        return self._found().offset

    @property
    def partition(self) -> str | None:
        """The partition it comes from."""
        return self._found().partition

    @property
    def timestamp_ms(self) -> int | None:
        """When it was stored, in milliseconds since 1970 UTC."""
        return self._found().timestamp_ms

    @property
    def body(self) -> object:
        """bytes of the data sections, the value, or a list of sequences' items; None when there is no body."""
        return self._decode().get(DATA)

    @property
    def key(self) -> str | None:
        """The group key its producer gave."""
        key = self.annotations.get(names.GROUP_KEY)
        return str(key) if isinstance(key, str) else None

    @property
    def properties(self) -> Mapping[str, object]:
        """Application properties."""
        return self._map(APPLICATION_PROPERTIES)

    @property
    def annotations(self) -> Mapping[str, object]:
        """Message annotations."""
        return self._map(MESSAGE_ANNOTATIONS)

    @property
    def delivery_annotations(self) -> Mapping[str, object]:
        """Delivery annotations: what the engine says of this delivery."""
        return self._map(DELIVERY_ANNOTATIONS)

    @property
    def message_id(self) -> object:
        """As given: str, int, UUID or bytes."""
        return self._property(0)

    @property
    def to(self) -> str | None:
        """The address it was sent to, if its producer said so."""
        return cast("str | None", self._property(2))

    @property
    def subject(self) -> str | None:
        """What it is about."""
        return cast("str | None", self._property(3))

    @property
    def reply_to(self) -> str | None:
        """Where answers go."""
        return cast("str | None", self._property(4))

    @property
    def correlation_id(self) -> object:
        """The message id it answers."""
        return self._property(5)

    @property
    def content_type(self) -> str | None:
        """Media type of the body."""
        return cast("str | None", self._property(6))

    @property
    def creation_time_ms(self) -> int | None:
        """When its producer made it, in milliseconds since 1970 UTC."""
        return cast("int | None", self._property(9))

    def _found(self) -> Place:
        if self._place is None:
            self._place = place_of(self.message)
        return self._place

    def _map(self, code: int) -> Mapping[str, object]:
        return cast("Mapping[str, object]", self._decode().get(code) or {})

    def _property(self, index: int) -> object:
        fields = self._decode().get(PROPERTIES)
        return fields[index] if isinstance(fields, list) and index < len(fields) else None

    def _decode(self) -> dict[int, object]:
        if self._sections is None:
            self._sections = _decode(self.message)
        return self._sections


def _decode(message: bytes) -> dict[int, object]:
    """Values by section code; the body, whatever it is, under DATA."""
    found: dict[int, object] = {}
    for section in sections(message):
        value = decoded(message, section.start)
        if section.code == PROPERTIES and not isinstance(value, list):
            error = "the properties section is no list"
            raise WireError(error)
        place = DATA if section.code in {SEQUENCE, VALUE} else section.code
        if section.code in {DATA, SEQUENCE} and place in found:
            value = cast("Any", found[place]) + value  # sections() lets only like bodies follow each other
        found[place] = value
    return found
