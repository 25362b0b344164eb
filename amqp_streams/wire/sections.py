"""What the node needs of a message's sections, without decoding them (AMQP 1.0 section 3.2).

    header 70 | delivery annotations 71 | message annotations 72 | properties 73 | application properties 74 |
    body 75 76 77 | footer 78 `------- stored: all but the delivery annotations; from 73 on it is the bare
    message, which never changes by a byte -----------'

Two messages compare as their bytes do, so one comparison with `00 53 72` and one with
`00 53 79` tells that a message has neither header nor delivery annotations: that is the fast path, for one
message and for a batch.

Only what is in front of the stored bytes is checked on the way in; what follows is the producer's and the
consumer's affair.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.names import GROUP_KEY, TARGET_PARTITION
from amqp_streams.wire.decoder import decode, skip
from amqp_streams.wire.encoder import encode, encode_list
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    EMPTY_HEADER,
    FOOTER,
    HEADER,
    HEADER_HEAD,
    HEADS_END,
    MESSAGE_ANNOTATIONS,
    MESSAGE_ANNOTATIONS_HEAD,
    NAMES,
    NOTHING,
    PROPERTIES,
    PROPERTIES_HEAD,
    SEQUENCE,
    VALUE,
    Section,
    bare_message_start,
    descriptor_at,
    find_section,
    section_at,
    sections,
)
from amqp_streams.wire.types import Symbol, UInt, Value

__all__ = [
    "ANNOTATIONS_SIZE_MAX",
    "APPLICATION_PROPERTIES",
    "DATA",
    "DELIVERY_ANNOTATIONS",
    "FOOTER",
    "HEADER",
    "HEADER_SIZE_MAX",
    "MESSAGE_ANNOTATIONS",
    "NAMES",
    "PROPERTIES",
    "SEQUENCE",
    "VALUE",
    "MessagesRefusedError",
    "Section",
    "bare_message_start",
    "delivery_annotations",
    "group_key",
    "message_annotations",
    "properties_to",
    "sections",
    "strip",
    "strip_batch",
    "target_partition",
    "with_delivery_count",
    "without_annotations",
]

HEADER_SIZE_MAX: Final = 255
"""Bytes of a header section; it has five small fields, so 30 are much. One byte of storage holds the size."""

ANNOTATIONS_SIZE_MAX: Final = 64 << 10
"""Bytes of an annotations section that is searched, entry by entry, for where a message wants to go."""

_EMPTY_HEADER_ANNOTATED: Final = EMPTY_HEADER + MESSAGE_ANNOTATIONS_HEAD
_EMPTY_HEADER_BARE: Final = EMPTY_HEADER + PROPERTIES_HEAD
_EMPTY_HEADER_END: Final = EMPTY_HEADER + HEADS_END

# What stands before the size of an annotations map when nothing but an empty header is in front, and after
# its count when the hint
# is the first entry: with these, a hint is read where it stands.
_NARROW_FRONTS: Final = {
    code: frozenset(front + bytes((0, 0x53, code, 0xC1)) for front in (b"", EMPTY_HEADER))
    for code in (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS)
}
_WIDE_FRONTS: Final = {
    code: frozenset(front[:-1] + b"\xd1" for front in fronts) for code, fronts in _NARROW_FRONTS.items()
}
_GROUP_KEY_ENTRY: Final = encode(Symbol(GROUP_KEY))
_TARGET_PARTITION_ENTRY: Final = encode(Symbol(TARGET_PARTITION))
_SHORT_TEXTS: Final = frozenset((0xA1, 0xA3))
_ENTRY_AT_MIN: Final = 6
_ENTRY_END_MAX: Final = 48

_TEXT_AT: Final = {
    0xA1: 2,
    0xA3: 2,
    0xB1: 5,
    0xB3: 5,
}  # strings and symbols: where the text is, from their constructor
_GROUP_KEY: Final = GROUP_KEY.encode()
_TARGET_PARTITION: Final = TARGET_PARTITION.encode()
_DELIVERY_COUNT: Final = 4  # place in the header's list
_TO: Final = 2  # place in the properties' list
_UINT_MAX: Final = (1 << 32) - 1


class MessagesRefusedError(WireError):
    """Some messages of a batch are not messages;

    `messages` and `header_sizes` are the others, stripped, in their order.
    """

    def __init__(self, refused: Mapping[int, WireError], messages: list[bytes], header_sizes: bytes) -> None:
        self.refused: Final = dict(refused)
        """Why, by index in the batch; ascending, never empty."""
        self.messages: Final = messages
        self.header_sizes: Final = header_sizes
        self.index: Final = min(self.refused)
        """The first refused one."""
        super().__init__(f"message {self.index} of the batch: {self.refused[self.index]}")


def strip(message: bytes) -> tuple[int, bytes]:
    """The size of the header section (0: there is none) and the bytes to store: the message less its delivery
    annotations.

    Without delivery annotations the bytes are `message` itself, not a copy.

    Raises:
        WireError: it does not begin with a section of a message, has the front sections out of order, a
        header beyond
            HEADER_SIZE_MAX, or nothing to store.
    """
    if MESSAGE_ANNOTATIONS_HEAD <= message < HEADS_END:
        return 0, message
    if _EMPTY_HEADER_ANNOTATED <= message < _EMPTY_HEADER_END:
        return len(EMPTY_HEADER), message
    return _strip(message)


def strip_batch(messages: list[bytes]) -> tuple[list[bytes], bytes]:
    """What `strip` says of each: the bytes to store and the header sizes. `messages` itself when all stay as
    they are.

    Raises:
        MessagesRefusedError: some are not messages; it carries which, why, and what there is to store of the
        others.
    """
    if not messages:
        return messages, b""
    prefix = _header(messages[0])
    if min(messages) >= prefix + MESSAGE_ANNOTATIONS_HEAD and max(messages) < prefix + HEADS_END:
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
    return min(messages) >= prefix + PROPERTIES_HEAD and max(messages) < prefix + HEADS_END


def group_key(message: bytes) -> str | None:
    """The event-streams-group-key of the message annotations, if there is one; string and symbol count.

    Raises:
        WireError: it is of another type, or the sections up to it are broken.
    """
    if PROPERTIES_HEAD <= message < HEADS_END or _EMPTY_HEADER_BARE <= message < _EMPTY_HEADER_END:
        return None
    key = _first_entry(message, MESSAGE_ANNOTATIONS, _GROUP_KEY_ENTRY)
    return _annotation(message, MESSAGE_ANNOTATIONS, _GROUP_KEY) if key is None else key


def target_partition(message: bytes) -> str | None:
    """The event-streams-target-partition of the delivery annotations, if there is one; symbol and string
    count.

    Raises:
        WireError: it is of another type, or the sections up to it are broken.
    """
    if (
        MESSAGE_ANNOTATIONS_HEAD <= message < HEADS_END
        or _EMPTY_HEADER_ANNOTATED <= message < _EMPTY_HEADER_END
    ):
        return None
    partition = _first_entry(message, DELIVERY_ANNOTATIONS, _TARGET_PARTITION_ENTRY)
    return _annotation(message, DELIVERY_ANNOTATIONS, _TARGET_PARTITION) if partition is None else partition


def delivery_annotations(message: bytes) -> dict[Value, Value]:
    """The delivery annotations, decoded; empty if there are none. Raises WireError if they cannot be."""
    return _map(message, DELIVERY_ANNOTATIONS)


def message_annotations(message: bytes) -> dict[Value, Value]:
    """The message annotations, decoded; empty if there are none. Raises WireError if they cannot be."""
    return _map(message, MESSAGE_ANNOTATIONS)


def properties_to(message: bytes) -> str | None:
    """The `to` of the properties section: where a message on a link to the anonymous terminus goes.

    Raises:
        WireError: it is not a string, or the sections up to it are broken.
    """
    found = find_section(message, PROPERTIES)
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


def with_delivery_count(stored: bytes, header_size: int, count: int) -> bytes:
    """Stored bytes with a header that says how often delivery was tried before; all else as it is.

    Raises:
        WireError: the header that is there cannot be decoded.
    """
    fields: list[Value] = []
    if header_size:
        value, _ = decode(stored, section_at(stored, 0)[1])
        fields = value if isinstance(value, list) else []
    fields += [None] * (_DELIVERY_COUNT + 1 - len(fields))
    fields[_DELIVERY_COUNT] = UInt(min(count, _UINT_MAX))
    return HEADER_HEAD + encode_list(fields) + stored[header_size:]


def _strip(message: bytes) -> tuple[int, bytes]:
    code, _ = descriptor_at(message, 0)
    header_size = 0
    if code == HEADER:
        _, _, header_size = section_at(message, 0)
        if header_size > HEADER_SIZE_MAX:
            text = f"a header of {header_size} bytes; {HEADER_SIZE_MAX} are allowed"
            raise WireError(text)
        if header_size == len(message):
            return header_size, message
        code, _ = descriptor_at(message, header_size)
        if code == HEADER:
            raise _out_of_order(code, header_size)
    if code != DELIVERY_ANNOTATIONS:
        return header_size, message
    _, _, end = section_at(message, header_size)
    stored = message[:header_size] + message[end:]
    if not stored:
        raise WireError(NOTHING)
    if end < len(message):
        following, _ = descriptor_at(message, end)
        if following <= DELIVERY_ANNOTATIONS:
            raise _out_of_order(following, end)
    return header_size, stored


def _header(message: bytes) -> bytes:
    """The header section in front of the message, or nothing, also for what is not a message at all."""
    try:
        size, _ = strip(message)
    except WireError:
        return b""
    return message[:size]


def _map(message: bytes, wanted: int) -> dict[Value, Value]:
    found = find_section(message, wanted)
    if found is None:
        return {}
    value, _ = decode(message, found.start)
    return value if isinstance(value, dict) else {}


def _first_entry(message: bytes, code: int, entry: bytes) -> str | None:
    """The text of a hint that is the first entry of the first section, as a client that sets nothing else
    writes it; else None.
    """
    at = message.find(entry, _ENTRY_AT_MIN, _ENTRY_END_MAX)
    if at < 0:
        return None
    if message[: at - 2] in _NARROW_FRONTS[code]:
        end = at - 1 + message[at - 2]
    elif message[: at - 8] in _WIDE_FRONTS[code]:
        end = at - 4 + int.from_bytes(message[at - 8 : at - 4])
    else:
        return None
    start = at + len(entry) + 2
    if (
        not start <= end <= len(message)
        or message[start - 2] not in _SHORT_TEXTS
        or start + message[start - 1] > end
    ):
        return None
    try:
        return message[start : start + message[start - 1]].decode()
    except UnicodeDecodeError:
        return None


def _annotation(message: bytes, wanted: int, name: bytes) -> str | None:
    """One text of an annotations section, the first of its name; nothing else in the section is decoded."""
    found = find_section(message, wanted)
    if found is None or message.find(name, found.start, found.end) < 0:
        return None
    if found.end - found.start > ANNOTATIONS_SIZE_MAX:
        text = (
            f"{NAMES[wanted]} of {found.end - found.start} bytes; {ANNOTATIONS_SIZE_MAX} are allowed with"
            f" {name.decode()}"
        )
        raise WireError(text)
    at = found.start + (3 if message[found.start] == 0xC1 else 9)
    while at < found.end:
        value_at = skip(message, at)
        text_at = _TEXT_AT.get(message[at])
        if (
            text_at is not None
            and value_at - at == text_at + len(name)
            and message.startswith(name, at + text_at)
        ):
            value, end = decode(message, value_at)
            if end > found.end:
                raise _cut(found.start)
            return _text(value, name.decode())
        at = skip(message, value_at)
    return None


def _text(value: Value, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    text = f"{name} is a {type(value).__name__}, not a string or symbol"
    raise WireError(text)


def _cut(at: int) -> WireError:
    return WireError(f"the section whose value is at byte {at} is cut short")


def _out_of_order(code: int, at: int) -> WireError:
    return WireError(f"{NAMES[code]} at byte {at} comes too late or twice")
