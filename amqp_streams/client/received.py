"""An event as a consumer receives it.

The bytes of its message, decoded only when a field is read (AMQP 1.0 core 3.2).
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from amqp_streams.client.message import EventPosition, associated_of, bare, decoded, position_of
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import decode
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    APPLICATION_PROPERTIES_HEAD,
    DATA,
    DATA_BINARY8,
    DATA_BINARY32,
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Section,
    sections,
)
from amqp_streams.wire.sections import group_key


class ReceivedEvent:
    """A received event.

    A field is decoded when it is first read, and raises WireError if the message is broken.

    The fields are those of `Event`, and in addition `offset`, `partition`, `timestamp_ms` (when the node
    stored the event) and `delivery_annotations`. `message`: the AMQP message including delivery annotations.
    `message_format` (AMQP 1.0 core 2.7.5) is 0 unless the message has another format than AMQP's own. The
    sections of such a message mean what that format defines.
    """

    __slots__ = ("_delivery", "_link", "_position", "_sections", "_values", "message", "message_format")

    def __init__(self, message: bytes, delivery: Any = None, link: Any = None) -> None:
        self.message: Final = message
        self.message_format = 0
        self._delivery = delivery
        self._link = link
        self._position: EventPosition | None = None
        self._sections: dict[int, list[Section]] | None = None
        self._values: dict[int, object]

    def __repr__(self) -> str:
        position = self._found()
        return f"<ReceivedEvent {position.partition}:{position.offset}, {len(self.message)} bytes>"

    def encode(self) -> bytes:
        """Return the message as its producer sent it, for example to send it to another log."""
        return bare(self.message)

    @property
    def offset(self) -> int | None:
        """The offset of the event in its partition. None: the peer is not an event log node."""
        return self._found().offset

    @property
    def partition(self) -> str | None:
        """The partition of the event. None: the peer is not an event log node."""
        return self._found().partition

    @property
    def timestamp_ms(self) -> int | None:
        """When the node stored the event, in milliseconds since 1970 UTC. None: the peer did not send it."""
        return self._found().timestamp_ms

    @property
    def body(self) -> object:
        """The body of the message.

        Bytes of the data sections, the value of an amqp-value, or the list of all elements of the sequences.

        None if the message has no body.
        """
        return self._value(DATA)

    @property
    def key(self) -> str | None:
        """The group key that the producer gave to the event."""
        return group_key(self.message)

    @property
    def properties(self) -> Mapping[str, object]:
        """The application properties; empty if the message has none."""
        return self._map(APPLICATION_PROPERTIES)

    @property
    def annotations(self) -> Mapping[str, object]:
        """The message annotations; empty if the message has none."""
        return self._map(MESSAGE_ANNOTATIONS)

    @property
    def delivery_annotations(self) -> Mapping[str, object]:
        """The delivery annotations, which the node adds for this delivery; empty if the message has none.

        They are the values of the wire: the offset is a text of 16 digits here.
        """
        return self._map(DELIVERY_ANNOTATIONS)

    @property
    def associated_partitions(self) -> tuple[str, ...] | None:
        """The partitions whose events the link brings from this event on. None: the same as before.

        Spec: Event Streams 4.6.5.
        """
        return associated_of(self.message)

    @property
    def revoked(self) -> bool:
        """Whether the link ended before the event was settled.

        The node sends the event again, here or to another consumer.

        Always False with settle="auto", except in consumer groups.
        """
        link = self._link
        return link is not None and not link.alive

    @property
    def message_id(self) -> object:
        """The message id: a str, int, UUID or bytes. None: the producer gave none."""
        return self._property(0)

    @property
    def to(self) -> str | None:
        """The address to which the producer sent the event, if the producer set it."""
        return cast("str | None", self._property(2))

    @property
    def subject(self) -> str | None:
        """The subject that the producer gave to the event."""
        return cast("str | None", self._property(3))

    @property
    def reply_to(self) -> str | None:
        """The address for answers to this message."""
        return cast("str | None", self._property(4))

    @property
    def correlation_id(self) -> object:
        """The message id of the request that this message answers."""
        return self._property(5)

    @property
    def content_type(self) -> str | None:
        """The media type of the body."""
        return cast("str | None", self._property(6))

    @property
    def creation_time_ms(self) -> int | None:
        """When the producer created the event, in milliseconds since 1970 UTC."""
        return cast("int | None", self._property(9))

    def _found(self) -> EventPosition:
        if self._position is None:
            self._position = position_of(self.message)
        return self._position

    def _map(self, code: int) -> Mapping[str, object]:
        value = self._value(code)
        return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}

    def _property(self, index: int) -> object:
        fields = self._value(PROPERTIES)
        return fields[index] if isinstance(fields, list) and index < len(fields) else None

    def _value(self, code: int) -> object:
        """Return the value of a section, decoded once. The body is under DATA, whichever kind it has."""
        # Most programs read one or two fields, so nothing is decoded before.
        if self._sections is None:
            self._sections = _layout(self.message)
            self._values = {}
        if code not in self._values:
            found = self._sections.get(code)
            self._values[code] = None if found is None else _read(self.message, found)
        return self._values[code]


def _layout(message: bytes) -> dict[int, list[Section]]:
    """Return the sections by code. Sections of the body are under DATA, whichever kind they have."""
    found: dict[int, list[Section]] = {}
    for section in sections(message):
        found.setdefault(DATA if section.code in {SEQUENCE, VALUE} else section.code, []).append(section)
    return found


def _read(message: bytes, found: list[Section]) -> object:
    if found[0].code == APPLICATION_PROPERTIES:
        return _texts(message, found[0])
    values = [
        _data(message, section) if section.code == DATA else decoded(message, section.start)
        for section in found
    ]
    if len(values) == 1:
        return values[0]
    if found[0].code == DATA:
        # AMQP 3.2.6: the data of several sections is one body.
        return b"".join(cast("list[bytes]", values))
    return [item for value in cast("list[list[object] | None]", values) for item in value or ()]


def _data(message: bytes, section: Section) -> object:
    """Return the bytes of a data section. The two common encodings are read directly."""
    head = message[section.start : section.start + 4]
    if head == DATA_BINARY8:
        return message[section.start + 5 : section.end]
    return (
        message[section.start + 8 : section.end] if head == DATA_BINARY32 else decoded(message, section.start)
    )


def _texts(message: bytes, section: Section) -> object:
    """Read application properties.

    Most are short strings, which are read directly; the codec decodes the others.

    If anything is unexpected, the codec reads the whole section again, so that errors are always the codec's.
    """
    at = section.start + 3
    wide = message[at] == 0xD1
    if message[section.start : at] != APPLICATION_PROPERTIES_HEAD or not (wide or message[at] == 0xC1):
        return decoded(message, section.start)
    count = int.from_bytes(message[at + 5 : at + 9]) if wide else message[at + 2]
    at += 9 if wide else 3
    items: list[Any] = []
    try:
        for _ in range(count):
            # Hot path: a short string needs no call of the codec.
            if message[at] == 0xA1:
                end = at + 2 + message[at + 1]
                items.append(message[at + 2 : end].decode())
                at = end
            else:
                value, at = decode(message, at)
                items.append(value)
        entries = dict(zip(items[::2], items[1::2], strict=True))
    except (IndexError, ValueError, TypeError, WireError):
        return decoded(message, section.start)
    # A repeated key, or a size that does not fit: the codec decides.
    return entries if at == section.end and 2 * len(entries) == count else decoded(message, section.start)
