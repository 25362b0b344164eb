"""Events in HTTP requests and responses.

Spec: HTTP binding 1.0.2 (and 0.3), 3.1 binary, 3.2 structured, 3.3 batched.

Laws: in binary mode the body is the data, byte for byte. Content-Type alone decides the mode. A message that
cannot be read is refused with a reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from event_formats import json_format, percent
from event_formats.attributes import NAME_LENGTH_MAX, check, check_name, text_of
from event_formats.errors import InvalidEventError
from event_formats.event import CloudEvent, Value
from event_formats.media import (
    BATCH,
    BATCH_JSON,
    STRUCTURED_JSON,
    Mode,
    announces_event,
    essence,
    fits_binary,
    mode_of,
)
from event_formats.memory import Memory
from event_formats.names import CONTENT_TYPE, HTTP_PREFIX

BATCH_EVENTS_MAX: Final = 10_000
"""The most events of a batch, if the caller does not give another limit."""
HEADER_BYTES_MAX: Final = 16 << 10
"""The most bytes of an event's header fields in binary mode. An event with more is sent in structured mode.
"""

_FIELD_OVERHEAD: Final = len(": \r\n")
_TYPE_FIELD: Final = "content-type"
# The kinds of headers that are not attributes. No attribute can have one of these names.
_OTHER: Final = ""
_BROKEN: Final = "ce-"
_SPECIAL: Final = frozenset({_OTHER, _BROKEN, _TYPE_FIELD})
_classified: Final[Memory[bytes, str]] = Memory(2048, len(HTTP_PREFIX) + NAME_LENGTH_MAX)
"""Names of headers as received -> the name of an attribute, or one of `_SPECIAL`."""

Headers = Iterable[tuple[bytes, bytes]]
"""Header fields as received: names in upper or lower case."""


class HttpMessage(NamedTuple):
    """The header fields of a request or response except Content-Length, and its body."""

    headers: list[tuple[str, str]]
    body: bytes


def from_http(headers: Headers, body: bytes) -> CloudEvent:
    """Return the event in a message in binary or structured mode.

    Raises:
        InvalidEventError: the message does not contain a valid event.
        UnsupportedFormatError: the event is in a format or charset that this package cannot read.
    """
    attributes, content_type = _read(headers)
    if content_type is not None and mode_of(content_type) is not Mode.BINARY:
        if mode_of(content_type) is Mode.BATCH:
            raise InvalidEventError("a batch is not allowed here: send one event")
        return json_format.read_event(body)
    return _binary(attributes, content_type, body)


def events_from_http(
    headers: Headers, body: bytes, *, count_max: int = BATCH_EVENTS_MAX
) -> Sequence[CloudEvent]:
    """Return the events in a message in any mode.

    Raises:
        as `from_http`, and TooManyEventsError for a batch of more than `count_max` events.
    """
    return tuple(each_from_http(headers, body, count_max=count_max))


def each_from_http(
    headers: Headers, body: bytes, *, count_max: int = BATCH_EVENTS_MAX
) -> tuple[CloudEvent] | Iterator[CloudEvent]:
    """The events in a message in any mode. Those of a batch are parsed when they are asked for.

    Raises:
        as `events_from_http`.
    """
    attributes, content_type = _read(headers)
    if content_type is not None and (mode := mode_of(content_type)) is not Mode.BINARY:
        if mode is Mode.STRUCTURED:
            return (json_format.read_event(body),)
        return json_format.batch_events(body, count_max=count_max)
    return (_binary(attributes, content_type, body),)


def steps_from_http(
    headers: Headers, body: bytes, *, count_max: int = BATCH_EVENTS_MAX
) -> Iterator[CloudEvent | None]:
    """The events in a message in any mode, parsed in short steps. None: a step of a large event.

    Raises:
        as `events_from_http`.
    """
    attributes, content_type = _read(headers)
    if content_type is None or (mode := mode_of(content_type)) is Mode.BINARY:
        yield _binary(attributes, content_type, body)
    elif mode is Mode.STRUCTURED:
        yield (yield from json_format.event_steps(body))
    else:
        yield from json_format.batch_steps(body, count_max=count_max)


def mode_of_http(headers: Headers) -> Mode | None:
    """Return the mode that the headers announce; None if they do not announce an event.

    Nothing else is checked.
    """
    specversion = False
    for name, value in headers:
        known = _classified.get(name)
        if known is None:
            known = _classify(name)
        if known == _TYPE_FIELD:
            content_type = value.decode("latin-1")
            # Content-Type alone decides the mode, whatever other headers say.
            if announces_event(content_type):
                return Mode.BATCH if essence(content_type)[0].startswith(BATCH) else Mode.STRUCTURED
        specversion = specversion or known == "specversion"
    return Mode.BINARY if specversion else None


def to_binary(event: CloudEvent) -> HttpMessage:
    """Return the message in binary mode. The event must fit that mode (`fits_binary`)."""
    headers: list[tuple[str, str]] = []
    for name, value in event.attributes.items():
        if name == CONTENT_TYPE:
            headers.append((_TYPE_FIELD, text_of(value)))
        else:
            headers.append(
                (HTTP_PREFIX + name, percent.encoded(value if type(value) is str else text_of(value)))
            )
    return HttpMessage(headers, b"" if event.data is None else event.data)


def to_http(event: CloudEvent, *, structured: bool) -> HttpMessage:
    """Return the message in the wanted mode; in structured mode also if binary mode cannot carry the event.

    Common servers refuse more than `HEADER_BYTES_MAX` of headers. Every receiver must read structured mode
    (HTTP binding, 3).
    """
    if structured or not fits_binary(event):
        return to_structured(event)
    message = to_binary(event)
    size = sum(len(name) + len(value) + _FIELD_OVERHEAD for name, value in message.headers)
    return message if size <= HEADER_BYTES_MAX else to_structured(event)


def to_structured(event: CloudEvent) -> HttpMessage:
    """Return the message in structured mode, as JSON."""
    return HttpMessage([(_TYPE_FIELD, STRUCTURED_JSON + "; charset=utf-8")], json_format.write_event(event))


def to_batch(events: Sequence[CloudEvent]) -> HttpMessage:
    """Return one message with all events, as JSON."""
    return HttpMessage([(_TYPE_FIELD, BATCH_JSON + "; charset=utf-8")], json_format.write_batch(events))


def _read(headers: Headers) -> tuple[dict[str, Value], str | None]:
    """Return the attributes in headers by name, and the content type.

    If the content type announces an event, attributes in headers that are not valid are ignored: the event in
    the body counts.
    """
    attributes: dict[str, Value] = {}
    content_type: str | None = None
    broken: InvalidEventError | None = None
    for name, value in headers:
        known = _classified.get(name)
        if known is None:
            known = _classify(name)
        if known not in _SPECIAL:
            try:
                if known in attributes:
                    raise InvalidEventError(f"ce-{known} occurs twice")
                # Hot path: such a value needs no decoding.
                plain = value.isascii() and b"%" not in value and value[:1] != b'"'
                attributes[known] = value.decode() if plain else percent.decoded(known, value)
            except InvalidEventError as error:
                # Not raised yet: in structured mode these headers do not count, and Content-Type may follow.
                broken = error
        elif known == _TYPE_FIELD:
            if content_type is not None:
                broken = InvalidEventError("Content-Type occurs twice")
            content_type = value.decode("latin-1")
        elif known == _BROKEN:
            broken = _fault_of_name(name)
    if broken is not None and (content_type is None or mode_of(content_type) is Mode.BINARY):
        raise broken
    return attributes, content_type


def _binary(attributes: dict[str, Value], content_type: str | None, body: bytes) -> CloudEvent:
    if "specversion" not in attributes:
        raise InvalidEventError(
            "there is neither a ce-specversion header (binary mode) nor a Content-Type of"
            " application/cloudevents+json (structured mode)"
        )
    if content_type is not None:
        if attributes.get(CONTENT_TYPE, content_type) != content_type:
            raise InvalidEventError("ce-datacontenttype differs from Content-Type")
        attributes[CONTENT_TYPE] = content_type
    elif CONTENT_TYPE in attributes:
        raise InvalidEventError("ce-datacontenttype is not a valid header: use Content-Type")
    check(attributes)
    # An empty body without a type means that the event has no data; with a type, its data is empty.
    return CloudEvent(attributes, body if body or content_type is not None else None)


def _classify(name: bytes) -> str:
    """Return the attribute that a header stands for, or one of `_SPECIAL`."""
    text = name.decode("latin-1").lower()
    known = _OTHER
    if text == _TYPE_FIELD:
        known = _TYPE_FIELD
    elif text.startswith(HTTP_PREFIX):
        # Not remembered: a client could fill the memory with such names.
        if _fault_of_name(name) is not None:
            return _BROKEN
        known = text[len(HTTP_PREFIX) :]
    return _classified.keep(name, known)


def _fault_of_name(name: bytes) -> InvalidEventError | None:
    """Return why a header with the prefix of attributes is not an attribute; None if it is one."""
    try:
        check_name(name.decode("latin-1").lower()[len(HTTP_PREFIX) :])
    except InvalidEventError as error:
        return error
    return None
