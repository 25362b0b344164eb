"""Finds the sections of a message without decoding them (AMQP 1.0 section 3.2).

A section is a described value, nearly always `00 53 <code> <value>`. The long descriptors (`00 80` and eight
bytes, `00 a3` and a name) are accepted too, but are slower.
"""

from typing import Final, NamedTuple

from amqp_streams.errors import WireError
from amqp_streams.wire.decoder import skip

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

NOTHING: Final = "a message without a section"

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

HEADER_FIELDS: Final = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
PROPERTIES_FIELDS: Final = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
"""The fields of the sections header and properties, in the order of their lists."""

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

# The first bytes of a section in the short form of its descriptor. Their order as bytes is the order of the
# sections in a message.
HEADER_HEAD: Final = b"\x00\x53\x70"
DELIVERY_ANNOTATIONS_HEAD: Final = b"\x00\x53\x71"
MESSAGE_ANNOTATIONS_HEAD: Final = b"\x00\x53\x72"
PROPERTIES_HEAD: Final = b"\x00\x53\x73"
APPLICATION_PROPERTIES_HEAD: Final = b"\x00\x53\x74"
VALUE_HEAD: Final = b"\x00\x53\x77"
HEADS_END: Final = b"\x00\x53\x79"
"""All heads are less than this, and not less than HEADER_HEAD."""

# Heads with the constructor of the value, whose size has one byte (8) or four (32).
EMPTY_HEADER: Final = b"\x00\x53\x70\x45"
"""Proton's clients put this before every message."""
DELIVERY_ANNOTATIONS_MAP8: Final = b"\x00\x53\x71\xc1"
MESSAGE_ANNOTATIONS_MAP8: Final = b"\x00\x53\x72\xc1"
PROPERTIES_LIST8: Final = b"\x00\x53\x73\xc0"
APPLICATION_PROPERTIES_MAP8: Final = b"\x00\x53\x74\xc1"
APPLICATION_PROPERTIES_MAP32: Final = b"\x00\x53\x74\xd1"
DATA_BINARY8: Final = b"\x00\x53\x75\xa0"
DATA_BINARY32: Final = b"\x00\x53\x75\xb0"
NULL_VALUE: Final = b"\x00\x53\x77\x40"
"""A whole section: the body of a message without content."""


class Section(NamedTuple):
    """The position of a section in its message, with its descriptor: `start` included, `end` excluded."""

    code: int
    start: int
    end: int


class Extent(NamedTuple):
    """The position of a section's value, without its descriptor: `start` included, `end` excluded."""

    start: int
    end: int


def sections(message: bytes, sections_max: int | None = None) -> list[Section]:
    """Return all sections in order. Values are skipped, not decoded. A message without a body is accepted.

    Raises:
        WireError: a part of the message is not a section, has the wrong type, is incomplete or out of order;
        or the message has more than `sections_max` sections.
    """
    walked: list[Section] = []
    at, previous = 0, 0
    while at < len(message):
        code, _, end = section_at(message, at)
        # Sections come in the order of their codes. Only data and sequence sections may repeat, and a body
        # has one kind only.
        if (
            code < previous
            or (code == previous and code not in _REPEATED)
            or (code != previous and {code, previous} <= _BODY)
        ):
            message_text = f"{NAMES[code]} at byte {at} may not follow {NAMES[previous]}"
            raise WireError(message_text)
        if len(walked) == sections_max:
            too_many = f"more than {sections_max} sections"
            raise WireError(too_many)
        walked.append(Section(code, at, end))
        at, previous = end, code
    if not walked:
        raise WireError(NOTHING)
    return walked


def bare_message_start(message: bytes) -> int:
    """Return where the bare message begins (properties to footer).

    The end of the message if it has no such section.

    Raises:
        WireError: see `sections`.
    """
    at = 0
    while at < len(message):
        code, _, end = section_at(message, at)
        # Sections are in order of their codes, so the rest is the bare message.
        if code >= PROPERTIES:
            break
        at = end
    return at


def find_section(message: bytes, wanted: int) -> Extent | None:
    """Return the extent of the first section with the code `wanted`; None if it does not exist.

    Later sections are not checked.

    Raises:
        WireError: the part before it is not valid.
    """
    at = 0
    while at < len(message):
        code, start, end = section_at(message, at)
        if code == wanted:
            return Extent(start, end)
        # Sections are in order: a later one means that the wanted one does not exist.
        if code > wanted:
            return None
        at = end
    return None


def section_at(message: bytes, at: int) -> tuple[int, int, int]:
    """Return the code, the start of the value, and the end of the section at byte `at`.

    Raises:
        WireError: no valid section starts there.
    """
    code, start = descriptor_at(message, at)
    end = skip(message, start)
    if message[start] not in _CONSTRUCTORS[code]:
        text = f"{message[start]:#04x} at byte {start} is not a constructor of {NAMES[code]}"
        raise WireError(text)
    return code, start, end


def map_entries(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number of keys and values of the map at byte `at`, and where the first is.

    `end`: of the map, as its size says.

    Raises:
        WireError: it ends before its count.
    """
    narrow = message[at] == 0xC1
    first = at + (3 if narrow else 9)
    if first > end:
        raise WireError(f"the map at byte {at} has no count")
    return message[at + 2] if narrow else int.from_bytes(message[at + 5 : first]), first


def descriptor_at(message: bytes, at: int) -> tuple[int, int]:
    """Return the code and the start of the value of the section at byte `at`.

    Raises:
        WireError: no section starts there.
    """
    head = message[at : at + 3]
    # Hot path: nearly every client writes the short descriptor.
    if HEADER_HEAD <= head < HEADS_END:
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
        if not message:
            raise WireError(NOTHING)
        if not (found := message[at : at + 4].hex(" ")):
            raise WireError(f"the message ends at byte {at}, before a section with its body")
        raise WireError(f"{found} at byte {at} is not a section of a message")
    return code, end
