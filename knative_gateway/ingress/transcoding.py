"""Binary mode of HTTP into binary mode of AMQP in one pass over the headers, without an event in between. Pure.

One law: where it gives a message, that message is the one that reading the event, `received` and `amqp_binding.encode` give, but for the
order of its attributes; where anything is out of the ordinary it gives None, and those three decide. What repeats from request to request
(type, source, content type, but also host and user agent) is looked at once: a header, name and value together, is known by its bytes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from amqp_streams.client.raw import encode, key_section
from event_formats.amqp_binding import KEY_ATTRIBUTE, attribute_key, content_type_section, properties_section
from event_formats.attributes import check_name, check_value
from event_formats.errors import InvalidEventError
from event_formats.event import SPEC_VERSIONS
from event_formats.media import announces_event
from knative_gateway.delivery.ttl import TTL, TTL_DEFAULT
from knative_gateway.ingress.receiving import ARRIVAL
from knative_gateway.ingress.requests import is_passed_over

REMEMBERED_MAX: Final = 4096
"""Headers that are remembered; then all are forgotten. Those with longer values are not."""
_REMEMBERED_LENGTH_MAX: Final = 128
_SHORT_MAX: Final = 255

# Printable ASCII that is no escape and begins no quoted string: what it says is what it is.
_PLAIN: Final = re.compile(rb"[ !#$&-~][ -$&-~]*")
_PRINTABLE: Final = re.compile(rb"[ -~]*")

_NOTHING: Final = 0
_STRANGE: Final = 1 << 0
_LENGTH: Final = 1 << 1
_TYPE: Final = 1 << 2
_HOST: Final = 1 << 3
_KEY: Final = 1 << 4
_ATTRIBUTES: Final[Mapping[str, int]] = {
    name: 1 << (5 + number) for number, name in enumerate(("specversion", "id", "source", "type", "time", "subject", "dataschema"))
} | {KEY_ATTRIBUTE: _KEY}
_OTHER: Final = 1 << 20
_REQUIRED: Final = _HOST | sum(_ATTRIBUTES[name] for name in ("specversion", "id", "source", "type"))
# What a Broker changes, what has rules of its own, and what is no header in binary mode.
_LEFT_ALONE: Final = frozenset({TTL, ARRIVAL, "datacontenttype", "datacontentencoding", "schemaurl", "traceparent", "tracestate"})
_REPEATING: Final = frozenset(
    {
        *(b"ce-specversion", b"ce-type", b"ce-source", b"ce-dataschema", b"content-type", b"content-length"),
        *(b"host", b"user-agent", b"accept", b"accept-encoding", b"connection", b"keep-alive", b"cache-control"),
    }
)
_TTL_PIECE: Final = attribute_key(TTL) + encode(TTL_DEFAULT)
_ARRIVAL_PIECE: Final = attribute_key(ARRIVAL) + b"\xa1\x1b"
_ARRIVAL_LENGTH: Final = 27


class _Known(NamedTuple):
    """What a header is: which, its bytes in the message (an attribute, or the section of the content type), its number (the length)."""

    which: int
    piece: bytes = b""
    number: int = 0


class Head(NamedTuple):
    """A message up to its data, and the length that the data will have."""

    front: bytes
    length: int

    def message(self, data: bytes) -> bytes:
        """The whole message; `data` is of the length that was announced."""
        size = len(data)
        head = b"\x00\x53\x75\xa0" + bytes((size,)) if size <= _SHORT_MAX else b"\x00\x53\x75\xb0" + size.to_bytes(4)
        return b"".join((self.front, head, data))


_headers: dict[tuple[bytes, bytes], _Known] = {}
_names: dict[bytes, _Known] = {}


def head(headers: Sequence[tuple[bytes, bytes]], arrival: str | None) -> Head | None:
    """The beginning of the message of a request; names are in lower case. `arrival`: as `received` takes it.

    None: this request is not for here.
    """
    seen, length, front = 0, -1, b""
    pieces: list[bytes] = []
    names: set[bytes] = set()
    for header in headers:
        known = _headers.get(header) or _look(header)
        which = known.which
        if which == _NOTHING:
            continue
        if which == _STRANGE or which & seen or header[0] in names:
            return None
        if which == _OTHER:
            names.add(header[0])
        else:
            seen |= which
        if which < _KEY:
            # Of each of these there is one, so none overwrites anything; a Host adds nothing.
            length, front = (known.number, front) if which == _LENGTH else (length, front + known.piece)
            continue
        pieces.append(known.piece)
        if which == _KEY:
            front = key_section(header[1].decode()) + front
    if seen & _REQUIRED != _REQUIRED or not seen & _LENGTH or (length == 0 and not seen & _TYPE):
        return None
    if arrival is not None:
        assert len(arrival) == _ARRIVAL_LENGTH
        pieces += (_TTL_PIECE, _ARRIVAL_PIECE + arrival.encode())
    return Head(front + properties_section(b"".join(pieces), len(pieces)), length)


def _look(header: tuple[bytes, bytes]) -> _Known:
    """What a header is that is not remembered; remembered from now on if it is of a kind that repeats."""
    name, value = header
    known = _attribute(name, value) if name[:3] == b"ce-" else _other(name, value)
    if name in _REPEATING and len(value) <= _REMEMBERED_LENGTH_MAX:
        if len(_headers) >= REMEMBERED_MAX:
            _headers.clear()
        _headers[header] = known
    return known


def _attribute(name: bytes, value: bytes) -> _Known:
    named = _names.get(name)
    if named is None:
        named = _named(name)
    if named.which == _STRANGE or len(value) > _SHORT_MAX or not _PLAIN.fullmatch(value):
        return _STRANGER
    try:
        check_value(name[3:].decode(), value.decode())
    except InvalidEventError:
        return _STRANGER
    return _Known(named.which, named.piece + b"\xa1" + bytes((len(value),)) + value)


def _named(name: bytes) -> _Known:
    """An attribute's name: which it is, and its key in the message."""
    text = name[3:].decode("latin-1")
    try:
        check_name(text)
    except InvalidEventError:
        return _STRANGER
    known = _STRANGER if text in _LEFT_ALONE else _Known(_ATTRIBUTES.get(text, _OTHER), attribute_key(text))
    if len(_names) >= REMEMBERED_MAX:
        _names.clear()
    _names[name] = known
    return known


def _other(name: bytes, value: bytes) -> _Known:
    if name == b"host":
        return _A_HOST
    if name == b"content-length":
        return _Known(_LENGTH, number=int(value)) if value.isdigit() and len(value) < 16 else _STRANGER
    if name == b"content-type":
        text = value.decode("latin-1")
        if not _PRINTABLE.fullmatch(value):
            return _STRANGER
        try:
            check_value("datacontenttype", text)
        except InvalidEventError:
            return _STRANGER
        return _STRANGER if announces_event(text) else _Known(_TYPE, content_type_section(text))
    return _NO_MATTER if is_passed_over(name) else _STRANGER


_STRANGER: Final = _Known(_STRANGE)
_NO_MATTER: Final = _Known(_NOTHING)
_A_HOST: Final = _Known(_HOST)
assert SPEC_VERSIONS == ("1.0", "0.3"), "both have the same rules for the attributes that are taken here"
