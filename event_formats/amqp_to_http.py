"""Binary mode of AMQP -> binary mode of HTTP, in one pass over a message. Pure. Inverse of `http_to_amqp`.

Law: the result is the same as that of `amqp_binding.decode` and `http_binding.to_binary`. For an unusual
message the result is None, and the caller uses those two functions.

The pass is fast because most attributes repeat from event to event (version, type, source, content type): the
result for the bytes of an attribute, name and value together, is remembered. Often all attributes repeat
except the id and one that the gateway writes last: then the result for all others together is remembered.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol
from amqp_streams.wire.codec import decode as decode_value
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES_MAP8,
    APPLICATION_PROPERTIES_MAP32,
    DATA_BINARY8,
    DATA_BINARY32,
    MESSAGE_ANNOTATIONS_MAP8,
    NULL_VALUE,
    PROPERTIES_LIST8,
)
from event_formats.amqp_binding.writing import CONTENT_TYPE_FIELD, attribute_key
from event_formats.attributes import INTEGER_MAX, INTEGER_MIN, check_value, is_free, is_name, text_of
from event_formats.errors import InvalidEventError
from event_formats.event import Value
from event_formats.http_binding import HEADER_BYTES_MAX
from event_formats.media import announces_event
from event_formats.memory import Memory
from event_formats.names import AMQP_PREFIX, AMQP_PREFIXES, CONTENT_ENCODING, CONTENT_TYPE, DATA, ID, REQUIRED
from event_formats.percent import encoded

_REQUIRED: Final = frozenset(REQUIRED)
_STRINGS: Final = _REQUIRED | {"subject", "time", "dataschema", "schemaurl", CONTENT_ENCODING}
_REPEATING: Final = frozenset({"specversion", "source", "type", "dataschema"})
_PRINTABLE: Final = re.compile(rb"[ -~]*")
# Text that is not percent-encoded in a header.
_PLAIN: Final = re.compile(rb"[!#-$&-~]*")
_SHORT_STRING: Final = 0xA1
_STRING_CODE: Final = bytes((_SHORT_STRING,))
_ID_FRONT: Final = attribute_key(ID) + _STRING_CODE
# Booleans and integers in the encodings of `amqp_binding.encode`: their size, including the constructor.
_WIDTHS: Final = {0x41: 1, 0x42: 1, 0x55: 2, 0x81: 9}


class Outgoing(NamedTuple):
    """The event of a request.

    `lines`: its header fields as bytes, except the attribute of `MessageTranscoder.apart`. `own`: the value
    of that attribute.
    """

    attributes: dict[str, Value]
    data: bytes | None
    lines: bytes
    own: bytes


class _Name(NamedTuple):
    """`is_free`: the value needs no check, and is not remembered."""

    text: str
    head: bytes
    is_free: bool


class _Known(NamedTuple):
    name: str
    value: Value
    line: bytes


class _Frame(NamedTuple):
    """The result for messages that differ only in the id and in the last attribute.

    `before`, `between`, `behind`: the attributes before the id, between the two, and behind. The lines
    include the name of the value that follows and the line end of the value before.
    """

    before: dict[str, Value]
    between: dict[str, Value]
    behind: dict[str, Value]
    lines_before: bytes
    lines_between: bytes
    lines_behind: bytes
    own: bytes


class _Changing(NamedTuple):
    """An attribute that was not remembered: the position of its value's length in the message, and its places
    among the attributes and the lines.
    """

    name: str
    value_at: int
    place: int
    line_place: int


class _Read(NamedTuple):
    attributes: dict[str, Value]
    lines: list[bytes]
    own: bytes


class MessageTranscoder:
    """Turns messages into requests. `apart`: the name of an attribute that only some requests get.

    `last`: the name of an attribute that most messages have as their last one, each with another value.
    Without a name, no attribute is treated in this way.
    """

    __slots__ = (
        "_apart",
        "_content_types",
        "_frames",
        "_last",
        "_last_front",
        "_names",
        "_pairs",
        "_repeating",
    )

    def __init__(self, *, apart: str = "", last: str = "") -> None:
        assert not last or last not in {apart, *_STRINGS}
        assert is_free(last), "its values are not checked"
        self._apart: Final = apart
        self._last: Final = last
        self._last_front: Final = attribute_key(last) + _STRING_CODE
        self._frames: Final[Memory[tuple[bytes, bytes], _Frame]] = Memory(
            1024, 1024, lambda key: len(key[0]) + len(key[1])
        )
        self._repeating: Final = _REPEATING | {apart}
        self._pairs: Final[Memory[bytes, _Known]] = Memory(4096, 128)
        self._names: Final[Memory[bytes, _Name]] = Memory(4096, 128)
        self._content_types: Final[Memory[bytes, _Known]] = Memory(4096, 128)

    def outgoing(self, message: bytes) -> Outgoing | None:
        """Return the event of a message with the usual layout.

        None: use the general decoder, which also finds out whether the message is valid.
        """
        try:
            return self._outgoing(message)
        except (KeyError, IndexError, UnicodeDecodeError, WireError, InvalidEventError):
            return None  # `amqp_binding.decode` reports the error

    def _outgoing(self, message: bytes) -> Outgoing | None:
        at = 0
        if message[:4] == MESSAGE_ANNOTATIONS_MAP8:
            at = 5 + message[4]
        content_type = None
        begin = at
        if message[at : at + 4] == PROPERTIES_LIST8:
            end = at + 5 + message[at + 4]
            section = message[at:end]
            content_type, at = self._content_types.get(section) or self._content_type(section), end
        front = message[at : at + 4]
        if front == APPLICATION_PROPERTIES_MAP8:
            end, count, at = at + 5 + message[at + 4], message[at + 5], at + 6
            if (made := self._in_frame(message, begin, at, end)) is not None:
                return made
        elif front == APPLICATION_PROPERTIES_MAP32:
            end, count = (
                at + 8 + int.from_bytes(message[at + 4 : at + 8]),
                int.from_bytes(message[at + 8 : at + 12]),
            )
            at += 12
        else:
            return None
        at, changing, (attributes, lines, own) = self._read(message, at, end)
        # A repeated attribute makes the number of names less than that of entries.
        if at != end or 2 * len(attributes) != count or not attributes.keys() >= _REQUIRED:
            return None
        data, whole = _data(message, end)
        if not whole:
            return None
        if content_type is not None:
            attributes[CONTENT_TYPE] = content_type.value
            lines.append(content_type.line)
        fields = b"".join(lines)
        if len(changing) == 2:
            self._learn(message, slice(begin, end), changing, _Read(attributes, lines, own))
        # A longer head goes in structured mode, which the caller decides.
        return Outgoing(attributes, data, fields, own) if len(fields) + len(own) <= HEADER_BYTES_MAX else None

    def _read(self, message: bytes, at: int, end: int) -> tuple[int, list[_Changing], _Read]:
        """Read the attributes from `at` on, at least up to `end`. Returns also where they end."""
        attributes: dict[str, Value] = {}
        lines: list[bytes] = []
        own = b""
        # Local names: the loop runs for each attribute of each event.
        remembered, apart = self._pairs.get, self._apart
        changing: list[_Changing] = []
        while at < end:
            value_at = at + 2 + message[at + 1]
            code = message[value_at]
            after = value_at + (2 + message[value_at + 1] if code == _SHORT_STRING else _WIDTHS[code])
            pair = message[at:after]
            known = remembered(pair)
            if known is None:
                name, value, line = self._look(pair, value_at - at)
                changing.append(_Changing(name, value_at + 1, len(attributes), len(lines)))
            else:
                name, value, line = known
            attributes[name] = value
            if name == apart:
                own = line
            else:
                lines.append(line)
            at = after
        return at, changing, _Read(attributes, lines, own)

    def _in_frame(self, message: bytes, begin: int, at: int, end: int) -> Outgoing | None:
        """Return the event of a message whose other attributes are those of an earlier one; None: read all.

        The bytes before, between and behind the two values are the same. If they were keys and values in the
        earlier message, they are keys and values again.
        """
        id_at = message.find(_ID_FRONT, at, end) + len(_ID_FRONT)
        id_end = id_at + 1 + message[id_at]
        last_at = message.find(self._last_front, id_end, end) + len(self._last_front)
        frame = self._frames.get((message[begin:id_at], message[id_end:last_at]))
        if frame is None or last_at + 1 + message[last_at] != end:
            return None
        id_text, last = message[id_at + 1 : id_end], message[last_at + 1 : end]
        data, whole = _data(message, end)
        if not (whole and id_text and last and _PLAIN.fullmatch(id_text) and _PLAIN.fullmatch(last)):
            return None
        before, between, behind, lines_before, lines_between, lines_behind, own = frame
        lines = b"".join((lines_before, id_text, lines_between, last, lines_behind))
        if len(lines) + len(own) > HEADER_BYTES_MAX:
            return None
        attributes = {**before, ID: id_text.decode(), **between, self._last: last.decode(), **behind}
        return Outgoing(attributes, data, lines, own)

    def _learn(self, message: bytes, section: slice, changing: Sequence[_Changing], read: _Read) -> None:
        """Remember the frame of a message if its values that change are the id and, at the end, `last`."""
        (name, id_at, id_index, id_line), (last_name, last_at, last_index, last_line) = changing
        id_end = id_at + 1 + message[id_at]
        key = message[section.start : id_at], message[id_end:last_at]
        is_framed = (
            (name, last_name) == (ID, self._last)
            and key[0].endswith(_ID_FRONT)
            and key[1].endswith(self._last_front)
            and last_at + 1 + message[last_at] == section.stop
        )
        if not is_framed:
            return
        items, lines = list(read.attributes.items()), read.lines
        frame = _Frame(
            dict(items[:id_index]),
            dict(items[id_index + 1 : last_index]),
            dict(items[last_index + 1 :]),
            b"".join((*lines[:id_line], b"ce-id: ")),
            b"".join((b"\r\n", *lines[id_line + 1 : last_line], f"ce-{self._last}: ".encode())),
            b"".join((b"\r\n", *lines[last_line + 1 :])),
            read.own,
        )
        self._frames.keep(key, frame)

    def _look(self, pair: bytes, value_at: int) -> tuple[str, Value, bytes]:
        """Decode an attribute that is not remembered, and remember it if it is of a kind that repeats.

        Raises what `outgoing` catches.
        """
        if pair[0] != _SHORT_STRING:
            raise KeyError(pair)
        key = pair[2:value_at]
        name, head, is_free = self._names.get(key) or self._name(key)
        value: Value
        if pair[value_at] == _SHORT_STRING:
            text = pair[value_at + 2 :]
            # Nearly every event has an id and a time of its own. A tuple costs less than a `_Known`.
            if is_free and text and _PLAIN.fullmatch(text):
                return name, text.decode(), head + text + b"\r\n"
            # A line end in a value would begin another header.
            if not _PRINTABLE.fullmatch(text):
                raise KeyError(pair)
            value = text.decode()
            check_value(name, value)
            line = head + (text if _PLAIN.fullmatch(text) else encoded(value).encode()) + b"\r\n"
        else:
            decoded, _ = decode_value(pair, value_at)
            # These attributes must be texts, so `check` refuses the event.
            if name in _STRINGS or not isinstance(decoded, int) or not INTEGER_MIN <= decoded <= INTEGER_MAX:
                raise KeyError(pair)
            value = decoded if isinstance(decoded, bool) else int(decoded)
            line = head + text_of(value).encode() + b"\r\n"
        known = _Known(name, value, line)
        # An id or a time is never the same again, and would only displace what repeats.
        return self._pairs.keep(pair, known) if name in self._repeating else known

    def _name(self, key: bytes) -> _Name:
        text = key.decode()
        name = text[len(AMQP_PREFIX) :]
        if not text.startswith(AMQP_PREFIXES) or not is_name(name) or name in {CONTENT_TYPE, DATA}:
            raise KeyError(key)
        free = is_free(name) and name not in self._repeating
        return self._names.keep(key, _Name(name, f"ce-{name}: ".encode(), free))

    def _content_type(self, section: bytes) -> _Known:
        described, _ = decode_value(section, 0)
        assert isinstance(described, Described)
        fields = described.value
        text = (
            fields[CONTENT_TYPE_FIELD]
            if isinstance(fields, list) and len(fields) > CONTENT_TYPE_FIELD
            else None
        )
        if not isinstance(text, Symbol) or announces_event(text) or not _PRINTABLE.fullmatch(text.encode()):
            raise KeyError(section)
        check_value(CONTENT_TYPE, str(text))
        return self._content_types.keep(
            section, _Known(CONTENT_TYPE, str(text), f"content-type: {text}\r\n".encode())
        )


def _data(message: bytes, at: int) -> tuple[bytes | None, bool]:
    """Return the data, and whether the message ends with it."""
    front = message[at : at + 4]
    if front == DATA_BINARY32:
        data = message[at + 8 :]
        return data, int.from_bytes(message[at + 4 : at + 8]) == len(data) and len(message) >= at + 8
    if front == DATA_BINARY8:
        data = message[at + 5 :]
        return data, message[at + 4] == len(data)
    return None, front == NULL_VALUE and len(message) == at + 4
