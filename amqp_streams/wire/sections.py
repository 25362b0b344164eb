"""The sections of a message: what the node reads and removes without decoding the rest. Spec: AMQP 1.0, 3.2.

    00 53 70             header
    00 53 71             delivery annotations: not stored
    00 53 72             message annotations
    00 53 73             properties                  from here to the footer: the bare message, whose bytes
    00 53 74             application properties      never change
    00 53 75, 76, 77     body
    00 53 78             footer

Bytes compare in the order of the sections. So a message that is at least `00 53 72` and less than `00 53 79`
has neither a header nor delivery annotations. This is the fast path: two comparisons for one message, and
`min` and `max` for a batch.

The node checks the sections up to the first stored one. The sections after it are for the consumer to check.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from amqp_streams.errors import WireError
from amqp_streams.names import GROUP_KEY, TARGET_PARTITION
from amqp_streams.wire.batched.packed import Packed
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
"""The most bytes of a header section, because one byte of a stored record holds its size. A header has five
small fields and needs about 30 bytes.
"""

ANNOTATIONS_SIZE_MAX: Final = 64 << 10
"""The most bytes of an annotations section that is searched, entry by entry, for a group key, target
partition or sequence number.
"""

_EMPTY_HEADER_ANNOTATED: Final = EMPTY_HEADER + MESSAGE_ANNOTATIONS_HEAD
_EMPTY_HEADER_BARE: Final = EMPTY_HEADER + PROPERTIES_HEAD
_EMPTY_HEADER_END: Final = EMPTY_HEADER + HEADS_END

# The bytes in front of the size of an annotations map if the map is the first section, or follows an empty
# header. If a group key or target partition is the map's first entry, its position is known from these bytes
# alone, so that the usual message is read without a step for each entry.
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
}  # of strings and symbols: bytes from the constructor to the text
_GROUP_KEY: Final = GROUP_KEY.encode()
_TARGET_PARTITION: Final = TARGET_PARTITION.encode()
_DELIVERY_COUNT: Final = 4  # index in the header's list
_TO: Final = 2  # index in the properties' list
_UINT_MAX: Final = (1 << 32) - 1


class MessagesRefusedError(WireError):
    """Some items of a batch are not valid messages.

    `messages`, `header_sizes`: the result of `strip_batch` for the other items, in their order.
    """

    def __init__(
        self, refused: Mapping[int, WireError], messages: Sequence[bytes], header_sizes: bytes
    ) -> None:
        self.refused: Final = dict(refused)
        """The reason for each refused item, by its index in the batch: ascending, at least one."""
        self.messages: Final = messages
        self.header_sizes: Final = header_sizes
        self.index: Final = min(self.refused)
        """The index of the first refused item."""
        super().__init__(f"message {self.index} of the batch: {self.refused[self.index]}")


def strip(message: bytes) -> tuple[int, bytes]:
    """Return the size of the header section (0: no header), and the message without delivery annotations.

    A message that has no delivery annotations is returned itself, not as a copy.

    Raises:
        WireError: the message does not begin with a section, its first sections are out of order, its header
            is larger than HEADER_SIZE_MAX, or nothing remains to store.
    """
    # Hot path: comparing bytes stops at the first that differ, so these comparisons look at three bytes.
    if MESSAGE_ANNOTATIONS_HEAD <= message < HEADS_END:
        return 0, message
    if _EMPTY_HEADER_ANNOTATED <= message < _EMPTY_HEADER_END:
        return len(EMPTY_HEADER), message
    return _strip(message)


def header_sizes_alike(messages: Sequence[bytes]) -> bytes | None:
    """Return the sizes of the headers if `strip` certainly changes no message of the batch, else None.

    The check is only two comparisons for the whole batch, so the result is also None if the headers of the
    messages differ.
    """
    if not messages:
        return b""
    # All messages of one client begin alike, so the first one shows which prefix to expect.
    prefix = _header(messages[0])
    if _all_begin(messages, prefix, MESSAGE_ANNOTATIONS):
        return bytes((len(prefix),)) * len(messages)
    return None


def strip_batch(messages: Sequence[bytes]) -> tuple[Sequence[bytes], bytes]:
    """Apply `strip` to each message. Returns the bytes to store, and the sizes of the headers.

    If no message changes, `messages` itself is returned.

    Raises:
        MessagesRefusedError: some are not valid messages. The error has the reasons and the result for the
            others.
    """
    sizes_alike = header_sizes_alike(messages)
    if sizes_alike is not None:
        return messages, sizes_alike
    # One bad message must not refuse the batch: each one has its own outcome.
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
    """Whether it is certain that no message of the batch has annotations.

    Then no message has a group key or a target partition.

    False: a message may have some. The check is only two comparisons for the whole batch, so it is also False
    if the headers of the messages differ.
    """
    if not messages:
        return True
    return _all_begin(messages, _header(messages[0]), PROPERTIES)


def group_key(message: bytes) -> str | None:
    """Return the group key of a message, a string or symbol in its message annotations; None without one.

    Raises:
        WireError: the group key has another type, or the sections up to it are malformed.
    """
    # Hot path: two comparisons exclude annotations, as in `strip`.
    if PROPERTIES_HEAD <= message < HEADS_END or _EMPTY_HEADER_BARE <= message < _EMPTY_HEADER_END:
        return None
    key = _first_entry(message, MESSAGE_ANNOTATIONS, _GROUP_KEY_ENTRY)
    return _annotation(message, MESSAGE_ANNOTATIONS, _GROUP_KEY) if key is None else key


def target_partition(message: bytes) -> str | None:
    """Return the target partition of a message, a symbol or string in its delivery annotations.

    None without one.

    Raises:
        WireError: the target partition has another type, or the sections up to it are malformed.
    """
    if (
        MESSAGE_ANNOTATIONS_HEAD <= message < HEADS_END
        or _EMPTY_HEADER_ANNOTATED <= message < _EMPTY_HEADER_END
    ):
        return None
    partition = _first_entry(message, DELIVERY_ANNOTATIONS, _TARGET_PARTITION_ENTRY)
    return _annotation(message, DELIVERY_ANNOTATIONS, _TARGET_PARTITION) if partition is None else partition


def delivery_annotations(message: bytes) -> dict[Value, Value]:
    """Decode the delivery annotations; empty if the message has none.

    Raises:
        WireError: they are malformed.
    """
    return _map(message, DELIVERY_ANNOTATIONS)


def message_annotations(message: bytes) -> dict[Value, Value]:
    """Decode the message annotations; empty if the message has none.

    Raises:
        WireError: they are malformed.
    """
    return _map(message, MESSAGE_ANNOTATIONS)


def properties_to(message: bytes) -> str | None:
    """Return the field `to` of the properties, which names the log on a link with a null target.

    None without it.

    Raises:
        WireError: the field is not a string, or the sections up to it are malformed.
    """
    found = find_section(message, PROPERTIES)
    if found is None or message[found.start] in {0x40, 0x45}:
        return None
    # The count of fields stands directly before the first field: in one byte, or in four.
    wide = message[found.start] == 0xD0
    begin = found.start + (9 if wide else 3)
    if begin > found.end:
        raise _cut(found.start)
    # A shorter list: trailing nulls are not written.
    if int.from_bytes(message[found.start + 5 : begin] if wide else message[begin - 1 : begin]) <= _TO:
        return None
    value, end = decode(message, skip(message, skip(message, begin)))
    # The fields were skipped by their own sizes, which may contradict the size of the list.
    if end > found.end:
        raise _cut(begin)
    return _text(value, "to")


def with_delivery_count(stored: bytes, header_size: int, count: int) -> bytes:
    """Return the stored bytes with `count` as the delivery-count in their header.

    `count`: the number of earlier failed deliveries. Everything else remains unchanged.

    Raises:
        WireError: the stored header cannot be decoded.
    """
    fields: list[Value] = []
    if header_size:
        value, _ = decode(stored, section_at(stored, 0)[1])
        fields = value if isinstance(value, list) else []
    # Trailing nulls were not written, so the list may be too short.
    fields += [None] * (_DELIVERY_COUNT + 1 - len(fields))
    fields[_DELIVERY_COUNT] = UInt(min(count, _UINT_MAX))
    return HEADER_HEAD + encode_list(fields) + stored[header_size:]


def _strip(message: bytes) -> tuple[int, bytes]:
    code, _ = descriptor_at(message, 0)
    header_size = 0
    if code == HEADER:
        _, _, header_size = section_at(message, 0)
        if header_size > HEADER_SIZE_MAX:
            text = f"the header section has {header_size} bytes; at most {HEADER_SIZE_MAX} are allowed"
            raise WireError(text)
        # A header alone: nothing can follow it, so nothing can be out of order.
        if header_size == len(message):
            return header_size, message
        code, _ = descriptor_at(message, header_size)
        if code == HEADER:
            raise _out_of_order(code, header_size)
    if code != DELIVERY_ANNOTATIONS:
        return header_size, message
    _, _, end = section_at(message, header_size)
    stored = message[:header_size] + message[end:]
    # The log stores messages, and a message without a section is none.
    if not stored:
        raise WireError(NOTHING)
    if end < len(message):
        following, _ = descriptor_at(message, end)
        if following <= DELIVERY_ANNOTATIONS:
            raise _out_of_order(following, end)
    return header_size, stored


def _all_begin(messages: Sequence[bytes], header: bytes, first: int) -> bool:
    """Whether each message has this header section, then a section not before `first`."""
    front = header + HEADS_END[:-1]
    if isinstance(messages, Packed):
        return messages.all_begin(front, first, FOOTER)
    # The smallest and the largest message are both in the range, and so is every other one.
    return min(messages) >= front + bytes((first,)) and max(messages) < header + HEADS_END


def _header(message: bytes) -> bytes:
    """Return the bytes of the header section; empty without a header, or if the message is malformed."""
    try:
        size, _ = strip(message)
    except WireError:
        # Malformed messages are refused one by one, with their reasons: see `strip_batch`.
        return b""
    return message[:size]


def _map(message: bytes, wanted: int) -> dict[Value, Value]:
    found = find_section(message, wanted)
    if found is None:
        return {}
    value, _ = decode(message, found.start)
    return value if isinstance(value, dict) else {}


def _first_entry(message: bytes, code: int, entry: bytes) -> str | None:
    """Return the text of an annotation that is the first entry of the first section after the header.

    None: read the section entry by entry. This fast path is for clients that set no other annotation.
    """
    at = message.find(entry, _ENTRY_AT_MIN, _ENTRY_END_MAX)
    if at < 0:
        return None
    # Only if the entry is the first of the map: otherwise the name may stand inside a value.
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
    # The slow path reports the error with its position.
    except UnicodeDecodeError:
        return None


def _annotation(message: bytes, wanted: int, name: bytes) -> str | None:
    """Return the text of an annotation, the first with its name, without decoding the others."""
    found = find_section(message, wanted)
    # Searching the name is far cheaper than walking the entries, and most messages do not have it.
    if found is None or message.find(name, found.start, found.end) < 0:
        return None
    # Walking costs a step of Python for each entry, and an entry may have two bytes.
    if found.end - found.start > ANNOTATIONS_SIZE_MAX:
        text = (
            f"{NAMES[wanted]} has {found.end - found.start} bytes; at most {ANNOTATIONS_SIZE_MAX} are allowed"
            f" with {name.decode()}"
        )
        raise WireError(text)
    at = found.start + (3 if message[found.start] == 0xC1 else 9)
    while at < found.end:
        value_at = skip(message, at)
        text_at = _TEXT_AT.get(message[at])
        # Compared as bytes: decoding each key would cost more than the walk.
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
    text = f"{name} must be a string or symbol (got {type(value).__name__})"
    raise WireError(text)


def _cut(at: int) -> WireError:
    return WireError(f"the section whose value begins at byte {at} is incomplete")


def _out_of_order(code: int, at: int) -> WireError:
    return WireError(f"{NAMES[code]} at byte {at} is out of order or occurs twice")
