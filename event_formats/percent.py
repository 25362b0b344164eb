"""Attribute values in HTTP headers: percent-encoding out, unquoting and one round of decoding in. Spec: HTTP binding 1.0.2, 3.1.3.2."""

import re
from typing import Final
from urllib.parse import quote

from event_formats.errors import InvalidEventError

# All of U+0021 to U+007E but the double quote and the percent sign; letters and digits are safe by themselves.
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_PLAIN: Final = re.compile(r"[!#-$&-~]*")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BACKSLASHED: Final = re.compile(rb"\\(.)", re.DOTALL)


def encoded(text: str) -> str:
    """The header's value: space, double quote, percent sign, and everything beyond printable ASCII as %XX of its UTF-8."""
    return text if _PLAIN.fullmatch(text) else quote(text, safe=_SAFE)


def decoded(name: str, value: bytes) -> str:
    """The attribute's value. A % that begins no escape stands for itself.

    Raises:
        InvalidEventError: the bytes, as they are or as they were encoded, are no UTF-8.
    """
    if value[:1] == b'"' and (found := _QUOTED.fullmatch(value)):
        value = _BACKSLASHED.sub(rb"\1", found[1])
    if b"%" in value:
        value = _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        message = f"{name} is no UTF-8 at byte {error.start} of its value"
        raise InvalidEventError(message) from None
