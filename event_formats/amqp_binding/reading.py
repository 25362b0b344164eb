"""Messages to events. Spec: CloudEvents AMQP binding 1.0.2, 3.1 binary, 3.2 structured.

Attributes are read as native AMQP types and as canonical strings (3.1.3.2), and with both spellings of the
prefix (3.1.3.1).
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, cast
from uuid import UUID

from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol, Timestamp
from amqp_streams.wire.codec import decode as decode_value
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    APPLICATION_PROPERTIES_MAP8,
    APPLICATION_PROPERTIES_MAP32,
    DATA,
    DATA_BINARY8,
    DATA_BINARY32,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Section,
    sections,
)
from event_formats.amqp_binding.writing import CONTENT_TYPE_FIELD
from event_formats.attributes import check, check_name, shown
from event_formats.errors import InvalidEventError, UnsupportedFormatError
from event_formats.event import CloudEvent, Value
from event_formats.json_format import read_event
from event_formats.media import Mode, announces_event, mode_of
from event_formats.memory import Memory
from event_formats.names import AMQP_HEADER_PREFIX, AMQP_PREFIX, AMQP_PREFIXES, CONTENT_TYPE

IDENTITY_MAX: Final = 1024
"""The most characters of an id or a source that `identity` returns."""
NOT_AN_EVENT: Final = (
    f"this is not a CloudEvent: it has neither {AMQP_PREFIX}specversion among its application properties"
    " nor a content-type of application/cloudevents"
)

_BODY: Final = frozenset((DATA, SEQUENCE, VALUE))
_HEADER_PREFIX: Final = AMQP_HEADER_PREFIX.encode()
_PREFIX_LENGTH: Final = len(AMQP_PREFIX)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_names: Final[Memory[bytes, str]] = Memory(2048, 256)
_content_types: Final[Memory[bytes, str]] = Memory(2048, 128)


def decode(message: bytes) -> CloudEvent:
    """Return the event in a message, with or without delivery annotations, of any program.

    Raises:
        InvalidEventError: the message does not contain a valid event.
    """
    try:
        return _decode(message)
    except (WireError, IndexError) as error:
        raise InvalidEventError(f"this is not an AMQP message: {error}") from None
    except UnicodeDecodeError as error:
        raise InvalidEventError(f"{shown(error.object)} is not UTF-8") from None
    except UnsupportedFormatError as error:
        raise InvalidEventError(str(error)) from None


def identity(message: bytes) -> tuple[str, str]:
    """Return the id and the source in a message that `decode` refuses: for logs and dead letters.

    Each has at most `IDENTITY_MAX` characters. It is "" if it cannot be read.
    """
    try:
        # The message was refused, so nothing about it is known to be valid.
        found = {section.code: section for section in sections(message)}
        properties = _map(message, found[APPLICATION_PROPERTIES]) if APPLICATION_PROPERTIES in found else {}
    except (WireError, IndexError):
        # The caller reports why the message was refused; here only the names are missing.
        return "", ""
    values = [
        next((properties[prefix + name] for prefix in AMQP_PREFIXES if prefix + name in properties), "")
        for name in ("id", "source")
    ]
    event_id, source = (value[:IDENTITY_MAX] if isinstance(value, str) else "" for value in values)
    return event_id, source


def passed_on(message: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that `encode` put into a message in addition to the event (`passed_on`)."""
    # Hot path: nearly no message has such headers, and a search of the bytes is cheaper than decoding.
    if _HEADER_PREFIX not in message:
        return []
    try:
        found = next(
            (section for section in sections(message) if section.code == APPLICATION_PROPERTIES), None
        )
        properties = {} if found is None else _map(message, found)
    except WireError:
        return []
    return [
        (name[len(AMQP_HEADER_PREFIX) :].encode(), value.encode())
        for name, value in properties.items()
        if isinstance(name, str) and name.startswith(AMQP_HEADER_PREFIX) and isinstance(value, str)
    ]


def attributes_in(
    message: bytes, start: int, end: int, names: Memory[bytes, str], read_name: Callable[[bytes], str]
) -> dict[str, object] | None:
    """Read the attributes in application properties of the common encoding. Null values are left out.

    The section is `message[start:end]`. `names` maps the key of a property to the name of its attribute, or
    to "" if the property is not an attribute. `read_name` is called for a key that `names` does not contain.

    Returns:
        The attributes with their AMQP values. None if the section has long keys, an attribute twice, or an
        unusual constructor: read it with the general decoder.

    Raises:
        WireError, IndexError, UnicodeDecodeError: the section is malformed.
    """
    kind = message[start : start + 4]
    if kind == APPLICATION_PROPERTIES_MAP8:
        at = start + 6
    elif kind == APPLICATION_PROPERTIES_MAP32:
        at = start + 12
    else:
        return None
    found: dict[str, object] = {}
    while at < end:
        # A key longer than 255 bytes, or one that is not a string.
        if message[at] != 0xA1:
            return None
        value_at = at + 2 + message[at + 1]
        key = message[at + 2 : value_at]
        name = names.get(key)
        if name is None:
            name = read_name(key)
        value: object
        if message[value_at] == 0xA1:
            at = value_at + 2 + message[value_at + 1]
            # A property that is not an attribute is skipped without decoding its value.
            if not name:
                continue
            value = message[value_at + 2 : at].decode()
        else:
            value, at = decode_value(message, value_at)
            if not name or value is None:
                continue
        # Both spellings of one attribute: the general decoder compares their values.
        if name in found:
            return None
        found[name] = value
    # The entries contradict the size of the map.
    return found if at == end else None


def _decode(message: bytes) -> CloudEvent:
    attributes: dict[str, Value] = {}
    content_type: str | None = None
    body: list[Section] = []
    for section in sections(message):
        if section.code == APPLICATION_PROPERTIES:
            attributes = _attributes(message, section)
        elif section.code == PROPERTIES:
            content_type = _content_type(message, section)
        elif section.code in _BODY:
            body.append(section)
    if content_type is not None and announces_event(content_type):
        # The AMQP binding has no batched mode.
        if mode_of(content_type) is Mode.BATCH:
            raise InvalidEventError("a message must have one event, not a batch")
        return read_event(_body(message, body) or b"")
    if content_type is not None:
        attributes[CONTENT_TYPE] = content_type
    if "specversion" not in attributes:
        raise InvalidEventError(NOT_AN_EVENT)
    check(attributes)
    return CloudEvent(attributes, _body(message, body))


def _attributes(message: bytes, section: Section) -> dict[str, Value]:
    """Return the attributes in the application properties."""
    found = attributes_in(message, section.start, section.end, _names, _read_name)
    if found is None:
        return _unusual_attributes(message, section)
    return {name: value if type(value) is str else _value(name, value) for name, value in found.items()}


def _unusual_attributes(message: bytes, section: Section) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in _map(message, section).items():
        name = _read_name(key.encode()) if isinstance(key, str) else ""
        if not name or value is None:
            continue
        if found.setdefault(name, _value(name, value)) != _value(name, value):
            text = f"{name} occurs in both spellings with different values"
            raise InvalidEventError(text)
    return found


def _map(message: bytes, section: Section) -> dict[object, object]:
    value, _ = decode_value(message, section.start)
    assert isinstance(value, Described)
    return cast("dict[object, object]", value.value) if isinstance(value.value, dict) else {}


def _value(name: str, value: object) -> Value:
    """Converts an AMQP value to a type of CloudEvents."""
    # A boolean is an integer in Python, so it comes first.
    if isinstance(value, bool | bytes):
        return value
    if isinstance(value, Timestamp):
        return _moment(name, int(value))
    if isinstance(value, str | UUID):
        return str(value)
    if isinstance(value, int):
        return int(value)
    raise InvalidEventError(
        f"{name} is a {type(value).__name__}: an attribute is a string, a boolean, an integer, binary or a"
        " timestamp"
    )


def _moment(name: str, at_ms: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise InvalidEventError(f"{name} is not a time between the years 1 and 9999") from None
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")


def _content_type(message: bytes, section: Section) -> str | None:
    """Return the content-type in a properties section, a symbol or string; None without one."""
    text = message[section.start : section.end]
    # By the bytes of the whole section: most producers send the same content type in each message.
    known = _content_types.get(text)
    if known is None:
        known = _decoded_content_type(message, section)
        if known is not None:
            _content_types.keep(text, known)
    return known


def _decoded_content_type(message: bytes, section: Section) -> str | None:
    value, _ = decode_value(message, section.start)
    assert isinstance(value, Described)
    fields = value.value
    found = (
        fields[CONTENT_TYPE_FIELD] if isinstance(fields, list) and len(fields) > CONTENT_TYPE_FIELD else None
    )
    if found is None or isinstance(found, str):
        return None if found is None else str(found)
    raise InvalidEventError(f"content-type is a {type(found).__name__}, not a string")


def _body(message: bytes, body: list[Section]) -> bytes | None:
    """Return the bytes of the data sections, or of a value section with binary or text.

    Some clients write that.
    """
    pieces: list[bytes] = []
    for section in body:
        head = message[section.start : section.start + 4]
        if head == DATA_BINARY32:
            pieces.append(message[section.start + 8 : section.end])
        elif head == DATA_BINARY8:
            pieces.append(message[section.start + 5 : section.end])
        else:
            described, _ = decode_value(message, section.start)
            assert isinstance(described, Described)
            value = described.value
            # No data, which differs from empty data.
            if section.code == VALUE and value is None:
                return None
            if not isinstance(value, bytes | str) or isinstance(value, Symbol):
                raise InvalidEventError(f"the body is a {type(value).__name__}: data is binary or text")
            pieces.append(value if isinstance(value, bytes) else value.encode())
    return b"".join(pieces) if pieces else None


def _read_name(key: bytes) -> str:
    """Return the attribute that an application property stands for; "" if it is not an attribute."""
    text = key.decode()
    name = text[_PREFIX_LENGTH:] if text.startswith(AMQP_PREFIXES) else ""
    if name == CONTENT_TYPE:
        raise InvalidEventError("datacontenttype is not valid as an application property: use content-type")
    if name or text in AMQP_PREFIXES:
        check_name(name)
    return _names.keep(key, name)
