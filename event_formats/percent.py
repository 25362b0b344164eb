"""Attribute values in HTTP headers. Spec: HTTP binding 1.0.2, 3.1.3.2.

Writing percent-encodes; reading removes double quotes, then decodes percent-encoding once.
"""

import re
from typing import Final
from urllib.parse import quote

from event_formats.errors import InvalidEventError

# U+0021 to U+007E except the double quote and the percent sign; `quote` keeps letters and digits anyway.
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_PLAIN: Final = re.compile(r"[!#-$&-~]*")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BACKSLASHED: Final = re.compile(rb"\\(.)", re.DOTALL)


def encoded(text: str) -> str:
    """Return the value of the header.

    Space, double quote, percent sign and everything that is not printable ASCII are written as %XX of their
    UTF-8.
    """
    return text if _PLAIN.fullmatch(text) else quote(text, safe=_SAFE)


def decoded(name: str, value: bytes) -> str:
    """Return the value of the attribute `name`. A % that does not begin an escape remains a %.

    Raises:
        InvalidEventError: the bytes are not UTF-8, before or after they are decoded.
    """
    # Quotes first, then percent signs: the order of the binding.
    if value[:1] == b'"' and (found := _QUOTED.fullmatch(value)):
        value = _BACKSLASHED.sub(rb"\1", found[1])
    if b"%" in value:
        value = _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        text = f"{name} is not UTF-8 at byte {error.start} of its value"
        raise InvalidEventError(text) from None
