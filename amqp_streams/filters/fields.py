"""The sections of a message and their fields, under the names that filters use.

Spec: FILTEX 4, 6.4.4.4; AMQP 3.2.1, 3.2.4; Event Streams 5.1.

Law: a name of several words may be written with hyphens (the standards define it so), with underscores
(FILTEX's grammar requires them) or in camelCase (FILTEX's examples use it). Look-ups return the standard's
spelling.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from amqp_streams import names
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    HEADER_FIELDS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTIES_FIELDS,
)
from amqp_streams.wire.types import UByte, Value

POSITIONS: Final[dict[int, dict[str, int]]] = {
    HEADER: {name: index for index, name in enumerate(HEADER_FIELDS)},
    PROPERTIES: {name: index for index, name in enumerate(PROPERTIES_FIELDS)},
}
"""The sections that are lists on the wire, with the index of each field."""

DEFAULTS: Final[dict[str, Value]] = {
    "durable": False,
    "priority": UByte(4),
    "first-acquirer": False,
    "delivery-count": 0,
}
"""The values of absent header fields. Every other absent field is NULL."""

_TEXTS: Final = (str,)
_NUMBERS: Final = (int,)
_IDS: Final = (str, int, bytes, UUID)
FIELD_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "durable": (bool,),
    "priority": _NUMBERS,
    "ttl": _NUMBERS,
    "first-acquirer": (bool,),
    "delivery-count": _NUMBERS,
    "message-id": _IDS,
    "user-id": (bytes,),
    "to": _TEXTS,
    "subject": _TEXTS,
    "reply-to": _TEXTS,
    "correlation-id": _IDS,
    "content-type": _TEXTS,
    "content-encoding": _TEXTS,
    "absolute-expiry-time": _NUMBERS,
    "creation-time": _NUMBERS,
    "group-id": _TEXTS,
    "group-sequence": _NUMBERS,
    "reply-to-group-id": _TEXTS,
}
"""The types that a property filter may compare a field of header or properties with. Integers of all widths
match each other, and so do symbols and strings.
"""


def spellings(name: str) -> tuple[str, ...]:
    """Return the ways to write a hyphenated name: unchanged, with underscores, in camelCase."""
    first, *rest = name.split("-")
    return name, name.replace("-", "_"), first + "".join(word.capitalize() for word in rest)


def _spelled(known: tuple[str, ...]) -> dict[str, str]:
    return {written: name for name in known for written in spellings(name)}


SECTIONS: Final[dict[str, int]] = {
    written: code
    for code, name, letter in (
        (HEADER, "header", "h"),
        (DELIVERY_ANNOTATIONS, "delivery-annotations", "d"),
        (MESSAGE_ANNOTATIONS, "message-annotations", "m"),
        (PROPERTIES, "properties", "p"),
        (APPLICATION_PROPERTIES, "application-properties", "a"),
        (FOOTER, "footer", "f"),
    )
    for written in (*spellings(name), letter)
}

_KNOWN: Final[dict[int, dict[str, str]]] = {
    HEADER: _spelled(HEADER_FIELDS),
    PROPERTIES: _spelled(PROPERTIES_FIELDS),
    DELIVERY_ANNOTATIONS: _spelled((names.OFFSET, names.TIMESTAMP, names.SOURCE_PARTITION)),
}


def known_field(section: int, written: str) -> str | None:
    """Return the standard's spelling of a field; None if the standard does not define it for `section`."""
    return _KNOWN.get(section, {}).get(written)


def field_name(section: int, written: str) -> str | None:
    """Return the name to look up in `section`.

    The standard's spelling of a known field, otherwise `written`.

    None: the section has a fixed set of fields, and `written` is not one of them.
    """
    known = known_field(section, written)
    return known if known is not None or section in POSITIONS else written
