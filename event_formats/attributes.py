"""Rules for the names and values of context attributes.

Spec: CloudEvents 1.0, 2.2 (names), 2.3 (types), 3; 0.3 likewise.

Law: an event that passes `check` can be written in every binding, and reading returns it unchanged.

The patterns are text because two engines use them: Python's `re` (with ASCII digits), and RE2, which checks
whole columns. They mean the same in both.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Final

from event_formats.errors import InvalidEventError
from event_formats.event import SPEC_VERSIONS, Value
from event_formats.memory import Memory
from event_formats.names import CONTENT_ENCODING, CONTENT_TYPE, DATA, REQUIRED

NAME_LENGTH_MAX: Final = 128
"""The most characters of a name. The standard recommends at most 20, and that receivers accept longer names.
"""
INTEGER_MIN: Final = -(1 << 31)
INTEGER_MAX: Final = (1 << 31) - 1

SURROGATES: Final = (0xD800, 0xDFFF)
FORBIDDEN: Final = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    SURROGATES,
    (0xFDD0, 0xFDEF),
    *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(17)),
)
"""Code points that a String must not have (2.3), as ranges with both ends: control characters, surrogates,
noncharacters.
"""

_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.\-]*"
URI_REFERENCE: Final = rf"^(?:{_SCHEME}:|[^:/?#]*(?:[/?#]|$))"
"""How a URI-reference begins: with a scheme, or with a path that has no colon in its first segment.

Percent-encoding in an HTTP header is decoded once when it is read, so spaces and the like are allowed here.
"""
URI: Final = rf"^{_SCHEME}:."
"""How an absolute URI begins."""
TIME: Final = (
    r"^(\d{4})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|[12]\d))"
    r"[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$"
)
"""A timestamp of RFC 3339. It allows 29 February in every year; `is_time` does not."""

_NAME: Final = re.compile(r"[a-z0-9]+")
_TEXTS: Final = frozenset(REQUIRED) - {"specversion"}
_FORBIDDEN: Final = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in FORBIDDEN) + "]")
_URI_REFERENCE: Final = re.compile(URI_REFERENCE)
_URI: Final = re.compile(URI)
_TIME: Final = re.compile(TIME, re.ASCII)
_LEAP_DAY: Final = "-02-29"
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
# Possessive quantifiers: without them, a text with many spaces takes time in proportion to the square of its
# length.
_MEDIA_TYPE: Final = re.compile(
    rf"{_WORD}/{_WORD}(?:[ \t]*+;(?:[ \t]*+{_WORD}=(?:{_WORD}|{_QUOTED}))?+)*+[ \t]*+"
)
_media_types: Final[Memory[str, bool]] = Memory(1024, 256)
_SHOWN_MAX: Final = 80


def check(attributes: Mapping[str, Value]) -> None:
    """Check all attributes of an event. Their names were checked before (`check_name`).

    Raises:
        InvalidEventError: an attribute is missing or not valid; the message names it.
    """
    version = attributes.get("specversion")
    if version not in SPEC_VERSIONS:
        raise InvalidEventError("specversion is missing" if version is None else _version(version))
    for name in ("id", "source", "type"):
        required = attributes.get(name)
        if not required:
            raise InvalidEventError(f"{name} is empty" if name in attributes else f"{name} is missing")
        if type(required) is not str:
            raise _not_text(name, required)
    for name, value in attributes.items():
        if type(value) is str:
            # Hot path: printable ASCII has no forbidden character, so the search is skipped.
            if not (value.isascii() and value.isprintable()) and (found := _FORBIDDEN.search(value)):
                text = (
                    f"{name} has U+{ord(found[0]):04X} at {found.start()}, which is not allowed in an"
                    " attribute"
                )
                raise InvalidEventError(text)
        elif type(value) is int and not INTEGER_MIN <= value <= INTEGER_MAX:
            text = f"{name} is {value}: an integer has at most 32 bits"
            raise InvalidEventError(text)
        rule = _RULES.get(name)
        if rule is not None:
            if type(value) is not str:
                raise _not_text(name, value)
            rule(name, value)


def check_value(name: str, text: str) -> None:
    """Check one attribute that is a string of printable ASCII. Raises InvalidEventError."""
    if name == "specversion":
        if text not in SPEC_VERSIONS:
            raise InvalidEventError(_version(text))
    elif not text and name in _TEXTS:
        raise InvalidEventError(f"{name} is empty")
    elif (rule := _RULES.get(name)) is not None:
        rule(name, text)


def is_free(name: str) -> bool:
    """Whether every text of printable ASCII that is not empty is a valid value of the attribute."""
    return name != "specversion" and name not in _RULES


def check_name(name: str) -> str:
    """Return the name.

    Raises:
        InvalidEventError: an attribute cannot have it.
    """
    if not is_name(name):
        text = f"{name[:NAME_LENGTH_MAX]!r} is not an attribute name: use lower-case letters and digits"
        raise InvalidEventError(text)
    if name == DATA:
        text = f"an attribute cannot have the name {name!r}"
        raise InvalidEventError(text)
    return name


def is_name(name: str) -> bool:
    """Whether a name has only lower-case letters and digits, and at most NAME_LENGTH_MAX characters."""
    return _NAME.fullmatch(name) is not None and len(name) <= NAME_LENGTH_MAX


def is_time(text: str) -> bool:
    """Whether a text is a timestamp of RFC 3339 with a day that exists in its year."""
    found = _TIME.fullmatch(text)
    return found is not None and (text[4:10] != _LEAP_DAY or _leap(int(found[1])))


def is_media_type(text: str) -> bool:
    """Whether a text is a media type with or without parameters. Spec: RFC 2046; RFC 9110, 8.3.1."""
    known = _media_types.get(text)
    if known is None:
        known = _media_types.keep(text, text.isascii() and _MEDIA_TYPE.fullmatch(text) is not None)
    return known


def text_of(value: Value) -> str:
    """Return the canonical string of a value, as headers have it and filters compare it.

    Spec: CloudEvents 1.0, 2.3.
    """
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def shown(value: object) -> str:
    """Return a value as an error message shows it, with at most 80 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def _version(version: Value) -> str:
    return f"specversion {shown(version)} is not supported: use 1.0 or 0.3"


def _not_text(name: str, value: object) -> InvalidEventError:
    return InvalidEventError(f"{name} is {shown(value)}, not a string")


def _check_nonempty(name: str, value: str) -> None:
    if not value:
        text = f"{name} is empty"
        raise InvalidEventError(text)


def _check_uri_reference(name: str, value: str) -> None:
    _check_nonempty(name, value)
    # Without a colon, every text is a path.
    if ":" in value and not _URI_REFERENCE.match(value):
        text = (
            f"{name} {shown(value)} is not a URI-reference: the part before the first colon is not a scheme"
        )
        raise InvalidEventError(text)


def _check_uri(name: str, value: str) -> None:
    if not _URI.match(value):
        text = f"{name} {shown(value)} is not an absolute URI"
        raise InvalidEventError(text)


def _check_time(name: str, value: str) -> None:
    if not is_time(value):
        text = f"{name} {shown(value)} is not a timestamp of RFC 3339, such as 2024-05-01T12:00:00Z"
        raise InvalidEventError(text)


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _check_media_type(name: str, value: str) -> None:
    if not (_media_types.get(value) or is_media_type(value)):
        text = f"{name} {shown(value)} is not a media type of RFC 2046, such as application/json"
        raise InvalidEventError(text)


_RULES: Final = {
    "source": _check_uri_reference,
    "subject": _check_nonempty,
    "time": _check_time,
    "dataschema": _check_uri,
    "schemaurl": _check_uri_reference,
    CONTENT_TYPE: _check_media_type,
    CONTENT_ENCODING: _check_nonempty,
}
"""The rules of the attributes that version 1.0 or 0.3 defines. They also apply to an extension whose name
only the other version defines.
"""
