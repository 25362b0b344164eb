"""Binary mode of HTTP -> binary mode of AMQP, in one pass over the headers, without an event in memory. Pure.

Law: the message is byte for byte that of `from_http` and `amqp_binding.encode`. For an unusual request the
result is None, and the caller uses those two functions.

The pass is fast because most headers repeat from request to request (type, source, content type, also host
and user agent): the result for the bytes of a header, name and value together, is remembered.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from amqp_streams.wire.keys import key_section
from event_formats.amqp_binding.writing import (
    attribute_key,
    content_type_section,
    data_head,
    properties_section,
)
from event_formats.attributes import NAME_LENGTH_MAX, check_name, check_value, is_free
from event_formats.errors import InvalidEventError
from event_formats.event import SPEC_VERSIONS
from event_formats.host import is_host
from event_formats.media import announces_event
from event_formats.memory import Memory
from event_formats.names import CONTENT_ENCODING, CONTENT_TYPE, HTTP_PREFIX, ID, KEY

_SHORT_MAX: Final = 255
_LENGTH_DIGITS: Final = 15
_STRING_CODE: Final = b"\xa1"
# Printable ASCII without percent signs, not a quoted string: decoding would not change it.
_PLAIN: Final = re.compile(rb"[ !#$&-~][ -$&-~]*")
_PRINTABLE: Final = re.compile(rb"[ -~]*")

# The kinds of headers, as bits. A kind that a request has at most once has a bit of its own, which detects
# the second one.
_NOTHING: Final = 0
_UNUSUAL: Final = 1 << 0
_LENGTH: Final = 1 << 1
_TYPE: Final = 1 << 2
_HOST: Final = 1 << 3
_KEY: Final = 1 << 4
_ATTRIBUTES: Final[Mapping[str, int]] = {
    name: 1 << (5 + number)
    for number, name in enumerate(("specversion", "id", "source", "type", "time", "subject", "dataschema"))
} | {KEY: _KEY}
_OTHER: Final = 1 << 20
_REQUIRED: Final = _HOST | sum(_ATTRIBUTES[name] for name in ("specversion", "id", "source", "type"))
# Attributes that are not headers in binary mode, or only in one version: `from_http` handles them.
_LEFT_ALONE: Final = frozenset({CONTENT_TYPE, CONTENT_ENCODING, "schemaurl"})
_REPEATING: Final = frozenset(
    {
        *(b"ce-specversion", b"ce-type", b"ce-source", b"ce-dataschema", b"content-type", b"content-length"),
        *(
            b"host",
            b"user-agent",
            b"accept",
            b"accept-encoding",
            b"connection",
            b"keep-alive",
            b"cache-control",
        ),
    }
)
assert SPEC_VERSIONS == ("1.0", "0.3"), "both have the same rules for the attributes that are taken here"


class _Known(NamedTuple):
    """A remembered header.

    Its bits, its bytes in the message (an attribute, or the section with the content type), and its number
    (of Content-Length). `is_free`: this is the key of an attribute whose value needs no check.
    """

    which: int
    piece: bytes = b""
    number: int = 0
    is_free: bool = False


class Head(NamedTuple):
    """The beginning of a message, up to its data, and the announced length of the data."""

    front: bytes
    length: int

    def message(self, data: bytes) -> bytes:
        """Return the whole message. `data` must have the announced length."""
        return b"".join((self.front, data_head(len(data)), data))


class _Framed(NamedTuple):
    """The result for requests that differ only in the id: the message before the application properties, the
    attributes before and behind the id, and their number.
    """

    front: bytes
    before: bytes
    behind: bytes
    pieces: int
    length: int


class RequestTranscoder:
    """Turns requests into messages.

    `left_alone`: names of attributes with rules of their own. A request with one of them is unusual.
    `is_ignored`: whether a header with this name (in lower case) is ignored. Every other header that is not
    an attribute makes a request unusual.
    """

    __slots__ = ("_frames", "_headers", "_is_ignored", "_left_alone", "_names", "_remembered")

    def __init__(self, *, left_alone: Iterable[str] = (), is_ignored: Callable[[bytes], bool]) -> None:
        self._left_alone: Final = _LEFT_ALONE | frozenset(left_alone)
        self._is_ignored: Final = is_ignored
        self._headers: Final[Memory[tuple[bytes, bytes], _Known]] = Memory(
            4096, 128, lambda header: len(header[1])
        )
        self._remembered: Final = self._headers.get
        self._names: Final[Memory[bytes, _Known]] = Memory(4096, len(HTTP_PREFIX) + NAME_LENGTH_MAX)
        self._frames: Final[Memory[Hashable, _Framed]] = Memory(1024, 0, lambda _frame: 0)

    def head(self, headers: Sequence[tuple[bytes, bytes]], added: Sequence[bytes] = ()) -> Head | None:
        """Return the beginning of the message for a request; None if the request is unusual.

        `headers`: with names in lower case. `added`: encoded attributes (`amqp_binding.writing.attribute`)
        that the message gets in addition to those of the request.
        """
        read = self._read(headers)
        if read is None:
            return None
        front, pieces, length = read
        pieces += added
        return Head(front + properties_section(b"".join(pieces), len(pieces)), length)

    def head_in_frame(
        self, frame: Hashable, headers: Sequence[tuple[bytes, bytes]], place: int, added: Sequence[bytes] = ()
    ) -> Head | None:
        """Return the same as `head`.

        All requests with an equal `frame` have the same headers except the value of `headers[place]`, which
        is `ce-id`.
        """
        framed = self._frames.get(frame)
        if framed is None:
            framed = self._frame(frame, headers, place)
            if framed is None:
                return self.head(headers, added)
        value = headers[place][1]
        if len(value) > _SHORT_MAX or not _PLAIN.fullmatch(value):
            return None
        inside = b"".join((framed.before, bytes((len(value),)), value, framed.behind, *added))
        return Head(framed.front + properties_section(inside, framed.pieces + len(added)), framed.length)

    def _frame(self, frame: Hashable, headers: Sequence[tuple[bytes, bytes]], place: int) -> _Framed | None:
        """Remember the result for a frame; None if the request is unusual."""
        read, up_to_id = self._read(headers), self._pieces(headers[:place])
        if read is None:
            return None
        front, pieces, length = read
        at = len(up_to_id)
        before = b"".join((*up_to_id, attribute_key(ID), _STRING_CODE))
        return self._frames.keep(
            frame, _Framed(front, before, b"".join(pieces[at + 1 :]), len(pieces), length)
        )

    def _pieces(self, headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Return the attributes of usual headers."""
        known = (self._remembered(header) or self._look(header) for header in headers)
        return [each.piece for each in known if each.which >= _KEY]

    def _read(self, headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, list[bytes], int] | None:
        """Return the message before the application properties, the attributes, and the length of the data;
        None: unusual.
        """
        seen, length, front = 0, -1, b""
        pieces: list[bytes] = []
        names: set[bytes] = set()
        remembered = self._remembered
        for header in headers:
            known = remembered(header) or self._look(header)
            # The most frequent kinds first: this loop runs for each header of each request.
            which = known.which
            if which == _NOTHING:
                continue
            if which == _UNUSUAL or which & seen or header[0] in names:
                return None
            if which == _OTHER:
                names.add(header[0])
            else:
                seen |= which
            if which < _KEY:
                # A request has each of these at most once, so nothing is overwritten. The piece of Host is
                # empty.
                length, front = (known.number, front) if which == _LENGTH else (length, front + known.piece)
                continue
            pieces.append(known.piece)
            if which == _KEY:
                front = key_section(header[1].decode()) + front
        # Without a length, or without data and type, `from_http` decides what the request means.
        if seen & _REQUIRED != _REQUIRED or not seen & _LENGTH or (length == 0 and not seen & _TYPE):
            return None
        return front, pieces, length

    def _look(self, header: tuple[bytes, bytes]) -> _Known:
        """Examine a header that is not remembered, and remember it if it is of a kind that repeats."""
        name, value = header
        known = self._attribute(name, value) if name[:3] == b"ce-" else self._other(name, value)
        return self._headers.keep(header, known) if name in _REPEATING else known

    def _attribute(self, name: bytes, value: bytes) -> _Known:
        named = self._names.get(name)
        if named is None:
            named = self._named(name)
        # The head of a longer string has another form.
        if named.which == _UNUSUAL or len(value) > _SHORT_MAX or not _PLAIN.fullmatch(value):
            return _UNUSUAL_HEADER
        if not named.is_free:
            try:
                check_value(name[3:].decode(), value.decode())
            except InvalidEventError:
                # `from_http` reports the error.
                return _UNUSUAL_HEADER
        return _Known(named.which, named.piece + b"\xa1" + bytes((len(value),)) + value)

    def _named(self, name: bytes) -> _Known:
        """Return the bits of an attribute's name, and its key in the message."""
        text = name[3:].decode("latin-1")
        try:
            check_name(text)
        except InvalidEventError:
            return _UNUSUAL_HEADER
        if text in self._left_alone:
            return self._names.keep(name, _UNUSUAL_HEADER)
        which = _ATTRIBUTES.get(text, _OTHER)
        known = _Known(which, attribute_key(text), is_free=is_free(text))
        return self._names.keep(name, known)

    def _other(self, name: bytes, value: bytes) -> _Known:
        if name == b"host":
            return _HOST_HEADER if is_host(value) else _UNUSUAL_HEADER
        if name == b"content-length":
            # `int` of a long text is slow, and the text comes from a peer.
            number = value.isdigit() and len(value) <= _LENGTH_DIGITS
            return _Known(_LENGTH, number=int(value)) if number else _UNUSUAL_HEADER
        if name == b"content-type":
            text = value.decode("latin-1")
            if not _PRINTABLE.fullmatch(value) or announces_event(text):
                return _UNUSUAL_HEADER
            try:
                check_value(CONTENT_TYPE, text)
            except InvalidEventError:
                # `from_http` reports the error.
                return _UNUSUAL_HEADER
            return _Known(_TYPE, content_type_section(text))
        return _IGNORED_HEADER if self._is_ignored(name) else _UNUSUAL_HEADER


_UNUSUAL_HEADER: Final = _Known(_UNUSUAL)
_IGNORED_HEADER: Final = _Known(_NOTHING)
_HOST_HEADER: Final = _Known(_HOST)
