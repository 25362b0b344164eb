"""Binary mode of AMQP into binary mode of HTTP in one pass over a message. Pure. The way back of `ingress.transcoding`.

One law: where it gives something, attributes, data and header lines are those that `amqp_binding.decode` and `cloudevents.http.to_binary`
give; where anything is out of the ordinary it gives None, and those decide. What repeats from event to event (version, type, source,
content type) is looked at once: an attribute, name and value together, is known by its bytes.
"""

import re
from typing import Final, NamedTuple

from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol
from amqp_streams.wire.codec import decode as decode_value
from event_formats.amqp_binding import PREFIXES
from event_formats.attributes import INTEGER_MAX, INTEGER_MIN, check_value, text_of
from event_formats.errors import InvalidEventError
from event_formats.event import Value
from event_formats.http_binding import HEADER_BYTES_MAX
from event_formats.media import announces_event
from event_formats.percent import encoded
from knative_gateway.delivery.ttl import TTL

REMEMBERED_MAX: Final = 4096
"""Attributes that are remembered; then all are forgotten. Longer ones are not."""
_REMEMBERED_LENGTH_MAX: Final = 128

_CONTENT_TYPE: Final = "datacontenttype"
_CONTENT_TYPE_FIELD: Final = 6
_REQUIRED: Final = frozenset({"specversion", "id", "source", "type"})
_STRINGS: Final = _REQUIRED | {"subject", "time", "dataschema", "schemaurl", "datacontentencoding"}
_REPEATING: Final = frozenset({"specversion", "source", "type", "dataschema", TTL})
_PRINTABLE: Final = re.compile(rb"[ -~]*")
# Of these nothing is encoded in a header.
_PLAIN: Final = re.compile(rb"[!#-$&-~]*")
_SHORT_STRING: Final = 0xA1
# Booleans and integers as `amqp_binding.encode` writes them: bytes of the value, constructor included.
_WIDTHS: Final = {0x41: 1, 0x42: 1, 0x55: 2, 0x81: 9}


class Outgoing(NamedTuple):
    """An event on its way out. `lines`: its header fields as they go over the wire, but for the Broker's own, which are `own`."""

    attributes: dict[str, Value]
    data: bytes | None
    lines: bytes
    own: bytes


class _Name(NamedTuple):
    text: str
    head: bytes


class _Known(NamedTuple):
    name: str
    value: Value
    line: bytes


_pairs: dict[bytes, _Known] = {}
_names: dict[bytes, _Name] = {}
_content_types: dict[bytes, _Known] = {}


def outgoing(message: bytes) -> Outgoing | None:
    """The event of a message that is laid out as nearly all are; None: it is not for here, whatever it is."""
    try:
        return _outgoing(message)
    except (KeyError, IndexError, UnicodeDecodeError, WireError, InvalidEventError):
        return None  # whoever decodes it says what is wrong


def _outgoing(message: bytes) -> Outgoing | None:
    at = 0
    if message[:4] == b"\x00\x53\x72\xc1":
        at = 5 + message[4]
    attributes: dict[str, Value] = {}
    lines: list[bytes] = []
    own = b""
    content_type = None
    if message[at : at + 4] == b"\x00\x53\x73\xc0":
        end = at + 5 + message[at + 4]
        section = message[at:end]
        content_type, at = _content_types.get(section) or _content_type(section), end
        lines.append(content_type.line)
    front = message[at : at + 4]
    if front == b"\x00\x53\x74\xc1":
        end, count, at = at + 5 + message[at + 4], message[at + 5], at + 6
    elif front == b"\x00\x53\x74\xd1":
        end, count, at = at + 8 + int.from_bytes(message[at + 4 : at + 8]), int.from_bytes(message[at + 8 : at + 12]), at + 12
    else:
        return None
    while at < end:
        value_at = at + 2 + message[at + 1]
        code = message[value_at]
        after = value_at + (2 + message[value_at + 1] if code == _SHORT_STRING else _WIDTHS[code])
        pair = message[at:after]
        name, value, line = _pairs.get(pair) or _look(pair, value_at - at)
        attributes[name] = value
        if name == TTL:
            own = line
        else:
            lines.append(line)
        at = after
    if at != end or 2 * len(attributes) != count or not attributes.keys() >= _REQUIRED:
        return None
    data, whole = _data(message, end)
    if not whole:
        return None
    if content_type is not None:
        attributes[_CONTENT_TYPE] = content_type.value
    fields = b"".join(lines)
    return Outgoing(attributes, data, fields, own) if len(fields) + len(own) <= HEADER_BYTES_MAX else None


def _data(message: bytes, at: int) -> tuple[bytes | None, bool]:
    """The body, and whether it is all that is left of the message."""
    front = message[at : at + 4]
    if front == b"\x00\x53\x75\xb0":
        data = message[at + 8 :]
        return data, int.from_bytes(message[at + 4 : at + 8]) == len(data) and len(message) >= at + 8
    if front == b"\x00\x53\x75\xa0":
        data = message[at + 5 :]
        return data, message[at + 4] == len(data)
    return None, front == b"\x00\x53\x77\x40" and len(message) == at + 4


def _look(pair: bytes, value_at: int) -> _Known:
    """An attribute that is not remembered; remembered from now on if it is of a kind that repeats. Raises what `outgoing` catches."""
    if pair[0] != _SHORT_STRING:
        raise KeyError(pair)
    key = pair[2:value_at]
    name, head = _names.get(key) or _name(key)
    value: Value
    if pair[value_at] == _SHORT_STRING:
        text = pair[value_at + 2 :]
        if not _PRINTABLE.fullmatch(text):
            raise KeyError(pair)
        value = text.decode()
        check_value(name, value)
        line = head + (text if _PLAIN.fullmatch(text) else encoded(value).encode()) + b"\r\n"
    else:
        decoded, _ = decode_value(pair, value_at)
        if name in _STRINGS or not isinstance(decoded, int) or not INTEGER_MIN <= decoded <= INTEGER_MAX:
            raise KeyError(pair)
        value = decoded if isinstance(decoded, bool) else int(decoded)
        line = head + text_of(value).encode() + b"\r\n"
    known = _Known(name, value, line)
    if name in _REPEATING and len(pair) <= _REMEMBERED_LENGTH_MAX:
        if len(_pairs) >= REMEMBERED_MAX:
            _pairs.clear()
        _pairs[pair] = known
    return known


def _name(key: bytes) -> _Name:
    text = key.decode()
    name = text[len(PREFIXES[0]) :]
    plain = name.isascii() and name.isalnum() and name == name.lower()
    if not text.startswith(PREFIXES) or not plain or name in {_CONTENT_TYPE, "data"} or len(key) > _REMEMBERED_LENGTH_MAX:
        raise KeyError(key)
    if len(_names) >= REMEMBERED_MAX:
        _names.clear()
    known = _names[key] = _Name(name, f"ce-{name}: ".encode())
    return known


def _content_type(section: bytes) -> _Known:
    described, _ = decode_value(section, 0)
    assert isinstance(described, Described)
    fields = described.value
    text = fields[_CONTENT_TYPE_FIELD] if isinstance(fields, list) and len(fields) > _CONTENT_TYPE_FIELD else None
    if not isinstance(text, Symbol) or announces_event(text) or not _PRINTABLE.fullmatch(text.encode()):
        raise KeyError(section)
    check_value(_CONTENT_TYPE, str(text))
    known = _Known(_CONTENT_TYPE, str(text), f"content-type: {text}\r\n".encode())
    if len(section) <= _REMEMBERED_LENGTH_MAX:
        if len(_content_types) >= REMEMBERED_MAX:
            _content_types.clear()
        _content_types[section] = known
    return known
