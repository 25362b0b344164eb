"""What context attributes may be called and may say. Spec: CloudEvents 1.0, 2.2 (naming), 2.3 (types), 3 (attributes); 0.3 likewise.

One law: what passes here can be written in every binding, and comes out of it as it went in.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Final

from event_formats.errors import InvalidEventError
from event_formats.event import SPEC_VERSIONS, Value

NAME_LENGTH_MAX: Final = 128
"""The standard asks for 20 at most, and that longer ones be taken; beyond this it is no name."""
INTEGER_MIN: Final = -(1 << 31)
INTEGER_MAX: Final = (1 << 31) - 1

_NAME: Final = re.compile(r"[a-z0-9]+")
_REQUIRED: Final = ("id", "source", "type")
_RESERVED: Final = frozenset({"data"})
# CloudEvents 2.3, String: control characters, surrogates, and what Unicode calls noncharacters.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
_TIME: Final = re.compile(
    r"(\d{4})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(0[1-9]|[12]\d))"
    r"[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = r'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_MEDIA_TYPE: Final = re.compile(rf"{_WORD}/{_WORD}(?:[ \t]*+;(?:[ \t]*+{_WORD}=(?:{_WORD}|{_QUOTED}))?+)*+[ \t]*+")
_MEDIA_TYPES_MAX: Final = 1024
_MEDIA_TYPE_LENGTH_MAX: Final = 256
"""Longer ones are looked at each time, so that strangers cannot fill the memory."""

_checked_media_types: set[str] = {"application/json"}


def check(attributes: Mapping[str, Value]) -> None:
    """Look at all attributes of an event; their names have been looked at (`check_name`).

    Raises:
        InvalidEventError: one is missing or may not be as it is; the message names it.
    """
    version = attributes.get("specversion")
    if version not in SPEC_VERSIONS:
        raise InvalidEventError("specversion is missing" if version is None else f"specversion {shown(version)}: there are 1.0 and 0.3")
    for name in _REQUIRED:
        required = attributes.get(name)
        if not required:
            raise InvalidEventError(f"{name} is empty" if name in attributes else f"{name} is missing")
        if type(required) is not str:
            raise _no_string(name, required)
    for name, value in attributes.items():
        if type(value) is str:
            if not (value.isascii() and value.isprintable()) and (found := _FORBIDDEN.search(value)):
                message = f"{name} has U+{ord(found[0]):04X} at {found.start()}, which no attribute may have"
                raise InvalidEventError(message)
        elif type(value) is int and not INTEGER_MIN <= value <= INTEGER_MAX:
            message = f"{name} is {value}: an integer has 32 bits"
            raise InvalidEventError(message)
        rule = _RULES.get(name)
        if rule is not None:
            if type(value) is not str:
                raise _no_string(name, value)
            rule(name, value)


def check_value(name: str, text: str) -> None:
    """Look at one attribute that is a string of printable ASCII. Raises InvalidEventError."""
    if name == "specversion":
        if text not in SPEC_VERSIONS:
            raise InvalidEventError(f"specversion {shown(text)}: there are 1.0 and 0.3")
    elif not text and name in _REQUIRED:
        raise InvalidEventError(f"{name} is empty")
    elif (rule := _RULES.get(name)) is not None:
        rule(name, text)


def check_name(name: str) -> str:
    """The name, if an attribute can be called so. Raises InvalidEventError."""
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        message = f"{name[:NAME_LENGTH_MAX]!r} is no attribute name: lower-case letters and digits"
        raise InvalidEventError(message)
    if name in _RESERVED:
        message = f"no attribute is called {name!r}"
        raise InvalidEventError(message)
    return name


def text_of(value: Value) -> str:
    """The canonical string of a value: what headers have, and what filters compare. Spec: CloudEvents 1.0, 2.3."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def shown(value: object) -> str:
    """A value for people, cut."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _no_string(name: str, value: object) -> InvalidEventError:
    return InvalidEventError(f"{name} is {shown(value)}, not a string")


def _nonempty(name: str, value: str) -> None:
    if not value:
        message = f"{name} is empty"
        raise InvalidEventError(message)


def _uri_reference(name: str, value: str) -> None:
    """What percent-encoding leaves in a header is decoded once on the way in, so that spaces and the like are let pass here."""
    _nonempty(name, value)
    first = re.split(r"[/?#]", value, maxsplit=1)[0] if ":" in value else ""
    if ":" in first and not _SCHEME.fullmatch(first.partition(":")[0]):
        message = f"{name} {shown(value)} is no URI-reference: what is in front of the first colon is no scheme"
        raise InvalidEventError(message)


def _uri(name: str, value: str) -> None:
    scheme, colon, rest = value.partition(":")
    if not (colon and rest and _SCHEME.fullmatch(scheme)):
        message = f"{name} {shown(value)} is no absolute URI"
        raise InvalidEventError(message)


def _time(name: str, value: str) -> None:
    found = _TIME.fullmatch(value)
    if found is None or (found[2] == "29" and not _leap(int(found[1]))):
        message = f"{name} {shown(value)} is no timestamp of RFC 3339, such as 2024-05-01T12:00:00Z"
        raise InvalidEventError(message)


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _media_type(name: str, value: str) -> None:
    if value in _checked_media_types:
        return
    if not (value.isascii() and _MEDIA_TYPE.fullmatch(value)):
        message = f"{name} {shown(value)} is no media type of RFC 2046, such as application/json"
        raise InvalidEventError(message)
    if len(_checked_media_types) < _MEDIA_TYPES_MAX and len(value) <= _MEDIA_TYPE_LENGTH_MAX:
        _checked_media_types.add(value)


_RULES: Final = {
    "source": _uri_reference,
    "subject": _nonempty,
    "time": _time,
    "dataschema": _uri,
    "schemaurl": _uri_reference,
    "datacontenttype": _media_type,
    "datacontentencoding": _nonempty,
}
"""Those that the two versions define; a name that only the other version defines is an extension, and held to the same."""
