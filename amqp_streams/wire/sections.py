"""The sections of a message, found without decoding them (AMQP 1.0 section 3.2).

    header 70 | delivery annotations 71 | message annotations 72 | properties 73 | application properties 74 | body 75 76 77 | footer 78
    `------- stored: all but the delivery annotations; from 73 on it is the bare message, which never changes by a byte -----------'

A section is a described value, nearly always `00 53 <code> <value>`; the long descriptors (`00 80` and eight bytes, `00 a3` and a
name) are understood, too, just slower. Two messages compare as their bytes do, so one comparison with `00 53 72` and one with
`00 53 79` tells that a message has neither header nor delivery annotations: that is the fast path, for one message and for a batch.

Only what is in front of the stored bytes is checked on the way in; what follows is the producer's and the consumer's affair.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from amqp_streams.errors import WireError
from amqp_streams.names import GROUP_KEY, TARGET_PARTITION
from amqp_streams.wire.decoder import decode, skip
from amqp_streams.wire.encoder import encode_list
from amqp_streams.wire.types import UInt, Value

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

HEADER_SIZE_MAX: Final = 255
"""Bytes of a header section; it has five small fields, so 30 are much. One byte of storage holds the size."""

NAMES: Final = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery-annotations",
    MESSAGE_ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application-properties",
    DATA: "data",
    SEQUENCE: "amqp-sequence",
    VALUE: "amqp-value",
    FOOTER: "footer",
}

_LIST: Final = frozenset((0x40, 0x45, 0xC0, 0xD0))
_MAP: Final = frozenset((0x40, 0xC1, 0xD1))
_BINARY: Final = frozenset((0xA0, 0xB0))
_CONSTRUCTORS: Final = {
    HEADER: _LIST,
    DELIVERY_ANNOTATIONS: _MAP,
    MESSAGE_ANNOTATIONS: _MAP,
    PROPERTIES: _LIST,
    APPLICATION_PROPERTIES: _MAP,
    DATA: _BINARY,
    SEQUENCE: _LIST,
    VALUE: frozenset(range(256)),
    FOOTER: _MAP,
}
_BODY: Final = frozenset((DATA, SEQUENCE, VALUE))
_REPEATED: Final = frozenset((DATA, SEQUENCE))
_SYMBOLS: Final = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}

_FIRST: Final = b"\x00\x53\x70"
_ANNOTATED: Final = b"\x00\x53\x72"  # from here: no header, no delivery annotations
_BARE: Final = b"\x00\x53\x73"  # from here: no message annotations either
_END: Final = b"\x00\x53\x79"  # before here: a section of a message
_EMPTY_HEADER: Final = b"\x00\x53\x70\x45"  # what Proton's clients put before every message
_EMPTY_HEADER_ANNOTATED: Final = _EMPTY_HEADER + _ANNOTATED
_EMPTY_HEADER_BARE: Final = _EMPTY_HEADER + _BARE
_EMPTY_HEADER_END: Final = _EMPTY_HEADER + _END

_GROUP_KEY: Final = GROUP_KEY.encode()
_TARGET_PARTITION: Final = TARGET_PARTITION.encode()
_DELIVERY_COUNT: Final = 4  # place in the header's list
_TO: Final = 2  # place in the properties' list
_UINT_MAX: Final = (1 << 32) - 1


class Section(NamedTuple):
    """Where a section is in its message: `start` inclusive, `end` exclusive, descriptor included."""

    code: int
    start: int
    end: int


class MessagesRefusedError(WireError):
    """Some messages of a batch are no messages; `messages` and `header_sizes` are the others, stripped, in their order."""

    def __init__(self, refused: Mapping[int, WireError], messages: list[bytes], header_sizes: bytes) -> None:
        self.refused: Final = dict(refused)
        """Why, by index in the batch; ascending, never empty."""
        self.messages: Final = messages
        self.header_sizes: Final = header_sizes
        self.index: Final = min(self.refused)
        """The first refused one."""
        super().__init__(f"message {self.index} of the batch: {self.refused[self.index]}")


def strip(message: bytes) -> tuple[int, bytes]:
    """The size of the header section (0: there is none) and the bytes to store: the message less its delivery annotations.

    Without delivery annotations the bytes are `message` itself, not a copy.

    Raises:
        WireError: it does not begin with a section of a message, has the front sections out of order, a header beyond
            HEADER_SIZE_MAX, or nothing to store.
    """
    if _ANNOTATED <= message < _END:
        return 0, message
    if _EMPTY_HEADER_ANNOTATED <= message < _EMPTY_HEADER_END:
        return len(_EMPTY_HEADER), message
    return _strip(message)


def strip_batch(messages: list[bytes]) -> tuple[list[bytes], bytes]:
    """What `strip` says of each: the bytes to store and the header sizes. `messages` itself when all stay as they are.

    Raises:
        MessagesRefusedError: some are no messages; it carries which, why, and what there is to store of the others.
    """
    if not messages:
        return messages, b""
    prefix = _header(messages[0])
    if min(messages) >= prefix + _ANNOTATED and max(messages) < prefix + _END:
        return messages, bytes((len(prefix),)) * len(messages)
    refused: dict[int, WireError] = {}
    stored: list[bytes] = []
    sizes = bytearray()
    for index, message in enumerate(messages):
        try:
            size, kept = strip(message)
        except WireError as error:
            refused[index] = error
        else:
            sizes.append(size)
            stored.append(kept)
    if refused:
        raise MessagesRefusedError(refused, stored, bytes(sizes))
    return stored, bytes(sizes)


def without_annotations(messages: Sequence[bytes]) -> bool:
    """No message of the batch has delivery or message annotations, so none says where it wants to go.

    False may also mean that the messages do not look alike: ask each.
    """
    if not messages:
        return True
    prefix = _header(messages[0])
    return min(messages) >= prefix + _BARE and max(messages) < prefix + _END


def group_key(message: bytes) -> str | None:
    """The event-streams-group-key of the message annotations, if there is one; string and symbol count.

    Raises:
        WireError: it is of another type, or the sections up to it are broken.
    """
    if _BARE <= message < _END or _EMPTY_HEADER_BARE <= message < _EMPTY_HEADER_END:
        return None
    return _annotation(message, MESSAGE_ANNOTATIONS, _GROUP_KEY)


def target_partition(message: bytes) -> str | None:
    """The event-streams-target-partition of the delivery annotations, if there is one; symbol and string count.

    Raises:
        WireError: it is of another type, or the sections up to it are broken.
    """
    if _ANNOTATED <= message < _END or _EMPTY_HEADER_ANNOTATED <= message < _EMPTY_HEADER_END:
        return None
    return _annotation(message, DELIVERY_ANNOTATIONS, _TARGET_PARTITION)


def delivery_annotations(message: bytes) -> dict[Value, Value]:
    """The delivery annotations, decoded; empty if there are none. Raises WireError if they cannot be."""
    return _map(message, DELIVERY_ANNOTATIONS)


def message_annotations(message: bytes) -> dict[Value, Value]:
    """The message annotations, decoded; empty if there are none. Raises WireError if they cannot be."""
    return _map(message, MESSAGE_ANNOTATIONS)


def properties_to(message: bytes) -> str | None:
    """The `to` of the properties section: where a message on a link to the anonymous terminus goes.

    Raises:
        WireError: it is no string, or the sections up to it are broken.
    """
    found = _find(message, PROPERTIES)
    if found is None or message[found.start] in {0x40, 0x45}:
        return None
    wide = message[found.start] == 0xD0
    begin = found.start + (9 if wide else 3)
    if begin > found.end:
        raise _cut(found.start)
    if int.from_bytes(message[found.start + 5 : begin] if wide else message[begin - 1 : begin]) <= _TO:
        return None
    value, end = decode(message, skip(message, skip(message, begin)))
    if end > found.end:
        raise _cut(begin)
    return _text(value, "to")


def sections(message: bytes) -> list[Section]:
    """Every section in order, the whole message walked; values are passed over, not decoded. A message without a body is let pass.

    Raises:
        WireError: something that is no section, of the wrong type, cut short, or out of order.
    """
    walked: list[Section] = []
    at, previous = 0, 0
    while at < len(message):
        code, _, end = _section(message, at)
        if code < previous or (code == previous and code not in _REPEATED) or (code != previous and {code, previous} <= _BODY):
            message_text = f"{NAMES[code]} at byte {at} may not follow {NAMES[previous]}"
            raise WireError(message_text)
        walked.append(Section(code, at, end))
        at, previous = end, code
    if not walked:
        raise _nothing()
    return walked


def bare_message_start(message: bytes) -> int:
    """Where the bare message begins (properties to footer); the end if there is nothing of it. Raises WireError as `sections`."""
    at = 0
    while at < len(message):
        code, _, end = _section(message, at)
        if code >= PROPERTIES:
            break
        at = end
    return at


def with_delivery_count(stored: bytes, header_size: int, count: int) -> bytes:
    """Stored bytes with a header that says how often delivery was tried before; all else as it is.

    Raises:
        WireError: the header that is there cannot be decoded.
    """
    fields: list[Value] = []
    if header_size:
        value, _ = decode(stored, _section(stored, 0)[1])
        fields = value if isinstance(value, list) else []
    fields += [None] * (_DELIVERY_COUNT + 1 - len(fields))
    fields[_DELIVERY_COUNT] = UInt(min(count, _UINT_MAX))
    return b"\x00\x53\x70" + encode_list(fields) + stored[header_size:]


class _Found(NamedTuple):
    start: int  # of the value, after the descriptor
    end: int


def _strip(message: bytes) -> tuple[int, bytes]:
    code, _ = _descriptor(message, 0)
    header_size = 0
    if code == HEADER:
        _, _, header_size = _section(message, 0)
        if header_size > HEADER_SIZE_MAX:
            text = f"a header of {header_size} bytes; {HEADER_SIZE_MAX} are allowed"
            raise WireError(text)
        if header_size == len(message):
            return header_size, message
        code, _ = _descriptor(message, header_size)
        if code == HEADER:
            raise _out_of_order(code, header_size)
    if code != DELIVERY_ANNOTATIONS:
        return header_size, message
    _, _, end = _section(message, header_size)
    stored = message[:header_size] + message[end:]
    if not stored:
        raise _nothing()
    if end < len(message):
        following, _ = _descriptor(message, end)
        if following <= DELIVERY_ANNOTATIONS:
            raise _out_of_order(following, end)
    return header_size, stored


def _header(message: bytes) -> bytes:
    """The header section in front of the message, or nothing, also for what is no message at all."""
    try:
        size, _ = strip(message)
    except WireError:
        return b""
    return message[:size]


def _find(message: bytes, wanted: int) -> _Found | None:
    """The value of the section with the code `wanted`, before the body: the walk ends there."""
    at = 0
    while at < len(message):
        code, start, end = _section(message, at)
        if code == wanted:
            return _Found(start, end)
        if code > wanted:
            return None
        at = end
    return None


def _section(message: bytes, at: int) -> tuple[int, int, int]:
    """Code, start of the value, and end of the section at byte `at`."""
    code, start = _descriptor(message, at)
    end = skip(message, start)
    if message[start] not in _CONSTRUCTORS[code]:
        text = f"{message[start]:#04x} at byte {start} is no constructor of {NAMES[code]}"
        raise WireError(text)
    return code, start, end


def _descriptor(message: bytes, at: int) -> tuple[int, int]:
    head = message[at : at + 3]
    if _FIRST <= head < _END:
        return head[2], at + 3
    code: int | None = None
    end = at
    if head[:2] == b"\x00\x80":
        end = at + 10
        code = int.from_bytes(message[at + 2 : end]) if end <= len(message) else None
    elif head[:2] in {b"\x00\xa3", b"\x00\xb3"}:
        end = skip(message, at + 1)
        code = _SYMBOLS.get(message[at + (3 if head[1] == 0xA3 else 6) : end])
    if code is None or code not in NAMES:
        raise _nothing() if not message else WireError(f"{message[at : at + 4].hex(' ')} at byte {at} is no section of a message")
    return code, end


def _map(message: bytes, wanted: int) -> dict[Value, Value]:
    found = _find(message, wanted)
    if found is None:
        return {}
    value, _ = decode(message, found.start)
    return value if isinstance(value, dict) else {}


def _annotation(message: bytes, wanted: int, name: bytes) -> str | None:
    """One text of an annotations section. A name whose bytes are not there is not decoded for."""
    found = _find(message, wanted)
    if found is None or message.find(name, found.start, found.end) < 0:
        return None
    # The first entry, as the clients that set nothing else write it: read it where it stands.
    key = found.start + (3 if message[found.start] == 0xC1 else 9)
    at = key + 2 + len(name)
    if message[key : key + 1] == b"\xa3" and message.startswith(name, key + 2) and message[key + 1] == len(name):
        size_at = at + 1
        if size_at < found.end and message[at] in {0xA1, 0xA3} and size_at + 1 + message[size_at] <= found.end:
            try:
                return message[size_at + 1 : size_at + 1 + message[size_at]].decode()
            except UnicodeDecodeError as error:
                text = f"{name.decode()} at byte {at} is no text: {error.reason}"
                raise WireError(text) from None
    value, _ = decode(message, found.start)
    return _text(value.get(name.decode()) if isinstance(value, dict) else None, name.decode())


def _text(value: Value, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    text = f"{name} is a {type(value).__name__}, not a string or symbol"
    raise WireError(text)


def _nothing() -> WireError:
    return WireError("a message without a section")


def _cut(at: int) -> WireError:
    return WireError(f"the section whose value is at byte {at} is cut short")


def _out_of_order(code: int, at: int) -> WireError:
    return WireError(f"{NAMES[code]} at byte {at} comes too late or twice")
