"""Events in HTTP requests and responses. Spec: HTTP protocol binding 1.0.2 (and 0.3), 3.1 binary, 3.2 structured, 3.3 batched.

Laws: the body of binary mode is the data, byte for byte; Content-Type alone decides the mode; what cannot be read is refused in words.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from event_formats import json_format, percent
from event_formats.attributes import NAME_LENGTH_MAX, check, check_name, text_of
from event_formats.errors import InvalidEventError
from event_formats.event import CloudEvent, Value
from event_formats.media import BATCH, BATCH_JSON, STRUCTURED_JSON, Mode, announces_event, essence, fits_binary, mode_of

BATCH_EVENTS_MAX: Final = 10_000
"""Events in one batch unless a caller says otherwise."""

HEADER_BYTES_MAX: Final = 16 << 10
"""Bytes of an event's header fields in binary mode, beyond which it is sent in structured mode."""

_FIELD_OVERHEAD: Final = len(": \r\n")
_PREFIX: Final = "ce-"
_CONTENT_TYPE: Final = "content-type"
_OTHER: Final = ""
_BROKEN: Final = "ce-"
_SPECIAL: Final = frozenset({_OTHER, _BROKEN, _CONTENT_TYPE})
"""None of them can be the name of an attribute."""
_ATTRIBUTE_TYPE: Final = "datacontenttype"
_NAMES_MAX: Final = 2048
_NAME_REMEMBERED_MAX: Final = len(_PREFIX) + NAME_LENGTH_MAX
"""Bytes of a header name that is remembered: strangers choose them."""

# Header names as they come -> what they are here: an attribute, the content type (under its own name), or nothing of ours.
_classified: dict[bytes, str] = {}

Headers = Iterable[tuple[bytes, bytes]]
"""Header fields as they came, names in any case."""


class HttpMessage(NamedTuple):
    """What goes into a request or a response: header fields without Content-Length, and the body."""

    headers: list[tuple[str, str]]
    body: bytes


def from_http(headers: Headers, body: bytes) -> CloudEvent:
    """The event of a message in binary or structured mode.

    Raises:
        InvalidEventError: it has none, or a broken one.
        UnsupportedFormatError: a format that is not spoken here, a batch among them.
    """
    attributes, content_type = _read(headers)
    if content_type is not None and mode_of(content_type) is not Mode.BINARY:
        if mode_of(content_type) is Mode.BATCH:
            raise InvalidEventError("one event is taken here, no batch")
        return json_format.read_event(body)
    return _binary(attributes, content_type, body)


def events_from_http(headers: Headers, body: bytes, *, count_max: int = BATCH_EVENTS_MAX) -> Sequence[CloudEvent]:
    """The events of a message in any mode.

    Raises: what `from_http` does, and TooManyEventsError for more than `count_max` events.
    """
    attributes, content_type = _read(headers)
    if content_type is not None and (mode := mode_of(content_type)) is not Mode.BINARY:
        return (json_format.read_event(body),) if mode is Mode.STRUCTURED else json_format.read_batch(body, count_max=count_max)
    return (_binary(attributes, content_type, body),)


def mode_of_http(headers: Headers) -> Mode | None:
    """How the message brings an event, if it says that it does: nothing is checked but what says so."""
    specversion = False
    for name, value in headers:
        known = _classified.get(name)
        if known is None:
            known = _classify(name)
        if known == _CONTENT_TYPE:
            content_type = value.decode("latin-1")
            if announces_event(content_type):
                return Mode.BATCH if essence(content_type)[0].startswith(BATCH) else Mode.STRUCTURED
        specversion = specversion or known == "specversion"
    return Mode.BINARY if specversion else None


def to_binary(event: CloudEvent) -> HttpMessage:
    """The message in binary mode."""
    headers: list[tuple[str, str]] = []
    for name, value in event.attributes.items():
        if name == _ATTRIBUTE_TYPE:
            headers.append((_CONTENT_TYPE, text_of(value)))
        else:
            headers.append((_PREFIX + name, percent.encoded(value if type(value) is str else text_of(value))))
    return HttpMessage(headers, b"" if event.data is None else event.data)


def to_http(event: CloudEvent, *, structured: bool) -> HttpMessage:
    """The message in the mode that is asked for; in structured mode also if binary mode cannot carry the event.

    Headers of more than `HEADER_BYTES_MAX` are too many for common servers. Every receiver reads structured mode. Spec: HTTP binding 3.
    """
    if structured or not fits_binary(event):
        return to_structured(event)
    message = to_binary(event)
    size = sum(len(name) + len(value) + _FIELD_OVERHEAD for name, value in message.headers)
    return message if size <= HEADER_BYTES_MAX else to_structured(event)


def to_structured(event: CloudEvent) -> HttpMessage:
    """The message in structured mode, as JSON."""
    return HttpMessage([(_CONTENT_TYPE, STRUCTURED_JSON + "; charset=utf-8")], json_format.write_event(event))


def to_batch(events: Sequence[CloudEvent]) -> HttpMessage:
    """One message with all events, as JSON."""
    return HttpMessage([(_CONTENT_TYPE, BATCH_JSON + "; charset=utf-8")], json_format.write_batch(events))


def _read(headers: Headers) -> tuple[dict[str, Value], str | None]:
    """Attributes by name, and the content type; in structured modes attributes in headers count for nothing, and may be broken."""
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
                    raise InvalidEventError(f"ce-{known} is there twice")
                plain = value.isascii() and b"%" not in value and value[:1] != b'"'
                attributes[known] = value.decode() if plain else percent.decoded(known, value)
            except InvalidEventError as error:
                broken = error
        elif known == _CONTENT_TYPE:
            if content_type is not None:
                broken = InvalidEventError("Content-Type is there twice")
            content_type = value.decode("latin-1")
        elif known == _BROKEN:
            broken = _refused(name)
    if broken is not None and (content_type is None or mode_of(content_type) is Mode.BINARY):
        raise broken
    return attributes, content_type


def _binary(attributes: dict[str, Value], content_type: str | None, body: bytes) -> CloudEvent:
    if "specversion" not in attributes:
        raise InvalidEventError(
            "neither a ce-specversion header (binary mode) nor a Content-Type of application/cloudevents+json (structured mode)"
        )
    if content_type is not None:
        if attributes.get(_ATTRIBUTE_TYPE, content_type) != content_type:
            raise InvalidEventError("ce-datacontenttype says something else than Content-Type, which counts")
        attributes[_ATTRIBUTE_TYPE] = content_type
    elif _ATTRIBUTE_TYPE in attributes:
        raise InvalidEventError("ce-datacontenttype is no header: in binary mode it is Content-Type")
    check(attributes)
    return CloudEvent(attributes, body if body or content_type is not None else None)


def _classify(name: bytes) -> str:
    """What a header is: an attribute, by its name, or one of _SPECIAL."""
    text = name.decode("latin-1").lower()
    known = _OTHER
    if text == _CONTENT_TYPE:
        known = _CONTENT_TYPE
    elif text.startswith(_PREFIX):
        known = text[len(_PREFIX) :]
        if _refused(name) is not None:
            return _BROKEN
    if len(name) <= _NAME_REMEMBERED_MAX:
        if len(_classified) >= _NAMES_MAX:
            _classified.clear()
        _classified[name] = known
    return known


def _refused(name: bytes) -> InvalidEventError | None:
    """Why a header that begins as an attribute's is none."""
    try:
        check_name(name.decode("latin-1").lower()[len(_PREFIX) :])
    except InvalidEventError as error:
        return error
    return None
