"""Events as AMQP messages: how they stand in a log. Spec: CloudEvents AMQP binding 1.0.2; Event Streams 4.3 (group key). Pure.

    message annotations (group key, from `partitionkey`) | properties (content-type) | application properties (attributes) | data

Laws: `decode(encode(event)) == event`, data byte for byte; what others wrote is read in both spellings, in binary and structured mode.
In binary mode, an event whose `datacontenttype` announces an event looks like that event: it is written in structured mode.
Attributes are written in the types they have; times stay text, since AMQP's have milliseconds and no zone.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar, cast
from uuid import UUID

from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol, Timestamp, encode_list
from amqp_streams.wire.codec import decode as decode_value
from amqp_streams.wire.codec import encode as encode_value
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.layout import APPLICATION_PROPERTIES, DATA, PROPERTIES, SEQUENCE, VALUE, Section, sections
from event_formats.attributes import check, check_name, shown, text_of
from event_formats.errors import InvalidEventError, UnsupportedFormatError
from event_formats.event import CloudEvent, Value
from event_formats.json_format import read_event, write_event
from event_formats.media import STRUCTURED_JSON, Mode, announces_event, fits_binary, mode_of

_K = TypeVar("_K")
_V = TypeVar("_V")

PREFIX: Final = "cloudEvents_"
PREFIXES: Final = (PREFIX, "cloudEvents:")
HEADER_PREFIX: Final = "httpHeader_"
"""Application properties that are no attributes: headers of the request that brought the event, to be passed on."""
KEY_ATTRIBUTE: Final = "partitionkey"
"""The attribute of the CloudEvents partitioning extension: events that share it are kept in order, in one partition."""

_CONTENT_TYPE: Final = "datacontenttype"
_CONTENT_TYPE_FIELD: Final = 6
_REMEMBERED_MAX: Final = 2048
_REMEMBERED_LENGTH_MAX: Final = 256
_PROPERTIES_REMEMBERED_MAX: Final = 128
_SHORT_MAX: Final = 255
IDENTITY_MAX: Final = 1024
"""Characters of an id or source that are kept for the record of a message that is not an event."""
_STRINGS: Final = tuple(b"\xa1" + bytes((length,)) for length in range(256))
_BODY: Final = frozenset((DATA, SEQUENCE, VALUE))
_BYTE_MAX: Final = 127
_BYTES: Final = tuple(b"\x55" + bytes((number,)) for number in range(_BYTE_MAX + 1))
_NO_BODY: Final = b"\x00\x53\x77\x40"
_HEADER_PREFIX: Final = HEADER_PREFIX.encode()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_names: dict[str, bytes] = {}
_content_types: dict[str, bytes] = {}
_read_names: dict[bytes, str] = {}
_read_content_types: dict[bytes, str] = {}


def encode(event: CloudEvent, passed_on: Mapping[str, str] | None = None) -> bytes:
    """The message, in binary mode if that can carry the event (`fits_binary`), else in structured mode.

    `passed_on`: headers, names in lower case, that go with it to its subscribers (`passed_on`).
    """
    if not fits_binary(event):
        return _structured(event, passed_on or {})
    pieces: list[bytes] = []
    content_type = None
    for name, value in event.attributes.items():
        if name == _CONTENT_TYPE:
            content_type = value
            continue
        pieces.append(_names.get(name) or attribute_key(name))
        if type(value) is str:
            text = value.encode()
            size = len(text)
            pieces.append(_STRINGS[size] if size <= _SHORT_MAX else b"\xb1" + size.to_bytes(4))
            pieces.append(text)
        elif type(value) is int:
            pieces.append(_BYTES[value] if 0 <= value <= _BYTE_MAX else b"\x81" + value.to_bytes(8, signed=True))
        else:
            pieces.append(encode_value(value))
    if passed_on:
        for name, header in passed_on.items():
            pieces += (encode_value(HEADER_PREFIX + name), encode_value(header))
    count = len(event.attributes) - (content_type is not None) + (0 if passed_on is None else len(passed_on))
    front = b"" if content_type is None else content_type_section(text_of(content_type))
    key = event.attributes.get(KEY_ATTRIBUTE)
    if key is not None:
        front = key_section(text_of(key)) + front
    front += properties_section(b"".join(pieces), count)
    data = event.data
    if data is None:
        return front + _NO_BODY
    size = len(data)
    head = b"\x00\x53\x75\xa0" + bytes((size,)) if size <= _SHORT_MAX else b"\x00\x53\x75\xb0" + size.to_bytes(4)
    return front + head + data


def _structured(event: CloudEvent, passed_on: Mapping[str, str]) -> bytes:
    """The message in structured mode. Data goes in Base64, so that no JSON in it has to be read again."""
    key = event.attributes.get(KEY_ATTRIBUTE)
    front = b"" if key is None else key_section(text_of(key))
    front += content_type_section(STRUCTURED_JSON)
    if passed_on:
        pieces = [encode_value(HEADER_PREFIX + name) + encode_value(header) for name, header in passed_on.items()]
        front += properties_section(b"".join(pieces), len(pieces))
    body = write_event(event, binary=True)
    return front + b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body


def passed_on(message: bytes) -> list[tuple[bytes, bytes]]:
    """The headers that go with an event to its subscribers, as `encode` was given them."""
    if _HEADER_PREFIX not in message:
        return []
    try:
        found = next((section for section in sections(message) if section.code == APPLICATION_PROPERTIES), None)
        properties = {} if found is None else _map(message, found)
    except WireError:
        return []
    return [
        (name[len(HEADER_PREFIX) :].encode(), value.encode())
        for name, value in properties.items()
        if isinstance(name, str) and name.startswith(HEADER_PREFIX) and isinstance(value, str)
    ]


def identity(message: bytes) -> tuple[str, str]:
    """Id and source of a message that cannot be decoded, for the record; "" for what cannot be read."""
    try:
        found = {section.code: section for section in sections(message)}
        properties = _map(message, found[APPLICATION_PROPERTIES]) if APPLICATION_PROPERTIES in found else {}
    except (WireError, IndexError):
        return "", ""
    values = [next((properties[prefix + name] for prefix in PREFIXES if prefix + name in properties), "") for name in ("id", "source")]
    event_id, source = (value[:IDENTITY_MAX] if isinstance(value, str) else "" for value in values)
    return event_id, source


def decode(message: bytes) -> CloudEvent:
    """The event of a message, delivery annotations or not, from whomever.

    Raises:
        InvalidEventError: it has none, or a broken one; the message says why.
    """
    try:
        return _decode(message)
    except (WireError, IndexError) as error:
        raise InvalidEventError(f"this is no AMQP message: {error}") from None
    except UnsupportedFormatError as error:
        raise InvalidEventError(str(error)) from None


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
        if mode_of(content_type) is Mode.BATCH:
            raise InvalidEventError("a batch has no place in a message")
        return read_event(_body(message, body) or b"")
    if content_type is not None:
        attributes[_CONTENT_TYPE] = content_type
    if "specversion" not in attributes:
        raise InvalidEventError(
            f"neither {PREFIX}specversion among the application properties nor a content-type of application/cloudevents"
        )
    check(attributes)
    return CloudEvent(attributes, _body(message, body))


def _attributes(message: bytes, section: Section) -> dict[str, Value]:
    """Those of the application properties that are attributes; all else in there is somebody else's."""
    at = section.start + 3
    wide = message[at] == 0xD1
    if message[section.start : at] != b"\x00\x53\x74" or not (wide or message[at] == 0xC1):
        return _foreign(message, section)
    at += 9 if wide else 3
    end = section.end
    found: dict[str, Value] = {}
    while at < end:
        # Short strings are what nearly everybody writes; whatever else is left to the decoder, what is broken included.
        if message[at] != 0xA1:
            return _foreign(message, section)
        text_at = at + 2 + message[at + 1]
        known = message[at + 2 : text_at]
        name = _read_names.get(known)
        if name is None:
            name = _read_name(known)
        if text_at < end and message[text_at] == 0xA1:
            at = text_at + 2 + message[text_at + 1]
            value: Value = _text(message[text_at + 2 : at])
        else:
            decoded, at = decode_value(message, text_at)
            if not name or decoded is None:
                continue
            value = _value(name, decoded)
        if name:
            if name in found:
                return _foreign(message, section)
            found[name] = value
    return found if at == end else _foreign(message, section)


def _foreign(message: bytes, section: Section) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in _map(message, section).items():
        name = _read_name(key.encode()) if isinstance(key, str) else ""
        if not name or value is None:
            continue
        if found.setdefault(name, _value(name, value)) != _value(name, value):
            message_text = f"{name} is there in both spellings, and they differ"
            raise InvalidEventError(message_text)
    return found


def _map(message: bytes, section: Section) -> dict[object, object]:
    value, _ = decode_value(message, section.start)
    assert isinstance(value, Described)
    return cast("dict[object, object]", value.value) if isinstance(value.value, dict) else {}


def _value(name: str, value: object) -> Value:
    """An AMQP value as what CloudEvents has for it."""
    if isinstance(value, bool | bytes):
        return value
    if isinstance(value, Timestamp):
        return _moment(name, int(value))
    if isinstance(value, str | UUID):
        return str(value)
    if isinstance(value, int):
        return int(value)
    raise InvalidEventError(f"{name} is a {type(value).__name__}: an attribute is a string, a boolean, an integer, binary or a timestamp")


def _moment(name: str, at_ms: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise InvalidEventError(f"{name} is no time between the years 1 and 9999") from None
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")


def _text(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidEventError(f"{shown(text)} is no UTF-8") from None


def _content_type(message: bytes, section: Section) -> str | None:
    """The content-type of the properties, symbol or string. Those with nothing else are few, and remembered."""
    text = message[section.start : section.end]
    known = _read_content_types.get(text)
    if known is None:
        known = _decoded_content_type(message, section)
        if known is not None and len(text) <= _PROPERTIES_REMEMBERED_MAX:
            _remember(_read_content_types, text, known)
    return known


def _decoded_content_type(message: bytes, section: Section) -> str | None:
    value, _ = decode_value(message, section.start)
    assert isinstance(value, Described)
    fields = value.value
    found = fields[_CONTENT_TYPE_FIELD] if isinstance(fields, list) and len(fields) > _CONTENT_TYPE_FIELD else None
    if found is None or isinstance(found, str):
        return None if found is None else str(found)
    raise InvalidEventError(f"content-type is a {type(found).__name__}")


def _body(message: bytes, body: list[Section]) -> bytes | None:
    """Bytes of data sections; of a value that is binary or text, as some clients write them."""
    pieces: list[bytes] = []
    for section in body:
        head = message[section.start : section.start + 4]
        if head == b"\x00\x53\x75\xb0":
            pieces.append(message[section.start + 8 : section.end])
        elif head == b"\x00\x53\x75\xa0":
            pieces.append(message[section.start + 5 : section.end])
        else:
            described, _ = decode_value(message, section.start)
            assert isinstance(described, Described)
            value = described.value
            if section.code == VALUE and value is None:
                return None
            if not isinstance(value, bytes | str) or isinstance(value, Symbol):
                raise InvalidEventError(f"the body is a {type(value).__name__}, neither binary nor text")
            pieces.append(value if isinstance(value, bytes) else value.encode())
    return b"".join(pieces) if pieces else None


def _read_name(key: bytes) -> str:
    """The attribute that an application property is; "" if it is none."""
    text = _text(key)
    prefix = text[: len(PREFIX)]
    if prefix not in PREFIXES:
        name = ""
    elif (name := text[len(PREFIX) :]) == _CONTENT_TYPE:
        raise InvalidEventError("datacontenttype is no application property: it is content-type")
    else:
        check_name(name)
    if len(key) <= _REMEMBERED_LENGTH_MAX:
        _remember(_read_names, key, name)
    return name


def attribute_key(name: str) -> bytes:
    """The key of an attribute among the application properties."""
    encoded = encode_value(PREFIX + name)
    _remember(_names, name, encoded)
    return encoded


def properties_section(inside: bytes, count: int) -> bytes:
    """The application properties: `inside` are the keys and values, `count` pairs of them."""
    size, items = len(inside), 2 * count
    if size < _SHORT_MAX and items <= _SHORT_MAX:
        return b"\x00\x53\x74\xc1" + bytes((size + 1, items)) + inside
    return b"\x00\x53\x74\xd1" + (size + 4).to_bytes(4) + items.to_bytes(4) + inside


def content_type_section(content_type: str) -> bytes:
    """The properties section with nothing but a content-type."""
    section = _content_types.get(content_type)
    if section is None:
        section = b"\x00\x53\x73" + encode_list([*[None] * _CONTENT_TYPE_FIELD, Symbol(content_type)])
        if len(content_type) <= _REMEMBERED_LENGTH_MAX:
            _remember(_content_types, content_type, section)
    return section


def _remember(memory: dict[_K, _V], key: _K, value: _V) -> None:
    """Keep it, as long as there are not too many: names are few, but strangers choose them."""
    if len(memory) >= _REMEMBERED_MAX:
        memory.clear()
    memory[key] = value
