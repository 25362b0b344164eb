"""Prepares names and passwords for comparison (SASLprep, RFC 4013; a profile of stringprep, RFC 3454).

Laws: preparing a prepared text does not change it. The work is bounded: peers send names before they log in.
Tables and normalisation are those of Unicode 3.2, as the RFC requires.
"""

import re
import stringprep
from functools import lru_cache
from typing import Final
from unicodedata import ucd_3_2_0

NAME_CHARACTERS_MAX: Final = 255
"""The longest user name; mechanisms refuse a longer one before they prepare it."""
TEXT_CHARACTERS_MAX: Final = 1024
"""The most characters outside ASCII, before and after normalisation (one character can become 18)."""

# RFC 3454, appendix C: tables C.1.2 to C.9, without those that are parts of others.
_PROHIBITED: Final = re.compile(
    "["
    "\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000"  # C.1.2: spaces
    # C.2: controls.
    "\u0000-\u001f\u007f-\u009f\u06dd\u070f\u180e\u200c\u200d\u2028\u2029\u2060-\u2063\u206a-\u206f\ufeff"
    "\ufff9-\ufffc\U0001d173-\U0001d17a"
    "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"  # C.3: private use
    # C.4: code points that are not characters.
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
    + "\ufdd0-\ufdef"
    "\ud800-\udfff"  # C.5: surrogates
    "\ufffd"  # C.6: not for plain text
    "\u2ff0-\u2ffb"  # C.7: not canonical
    "\u0340\u0341\u200e\u200f\u202a-\u202e"  # C.8: change how text is shown
    "\U000e0001\U000e0020-\U000e007f"  # C.9: tags
    "]"
)


class PreparationError(ValueError):
    """The text has characters that the profile does not allow."""


def saslprep(text: str, *, stored: bool = False) -> str:
    """Prepare a name or a password.

    `stored`: it will be stored, so characters unknown to Unicode 3.2 are refused.

    Raises:
        PreparationError: it has prohibited characters or more than TEXT_CHARACTERS_MAX, or mixes writing
            directions. The text is not in the message.
    """
    # Hot path: the profile does not change printable ASCII.
    if text.isascii() and text.isprintable():
        return text
    _check_length(text)
    # RFC 4013, 2.1: unusual spaces become a space, and characters that are commonly mapped to nothing are
    # removed.
    mapped = "".join(
        " " if stringprep.in_table_c12(one) else one for one in text if not stringprep.in_table_b1(one)
    )
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    # Again: normalisation makes some characters longer.
    _check_length(prepared)
    if _PROHIBITED.search(prepared):
        message = "it has characters that SASLprep prohibits"
        raise PreparationError(message)
    if stored and any(map(stringprep.in_table_a1, prepared)):
        message = "it has characters that SASLprep does not know"
        raise PreparationError(message)
    _check_directions(prepared)
    return prepared


def prepared_or_same(text: str) -> str:
    """Prepare a text for comparison; a text that cannot be prepared is returned unchanged."""
    try:
        return saslprep(text)
    except PreparationError:
        # It can still be compared with a text that is written the same way.
        return text


@lru_cache(maxsize=1024)
def prepared_name(name: str) -> str:
    """A cached `prepared_or_same` of a name: a login needs it several times.

    For names within NAME_CHARACTERS_MAX.
    """
    return prepared_or_same(name)


def _check_length(text: str) -> None:
    if len(text) > TEXT_CHARACTERS_MAX:
        message = f"it has more than {TEXT_CHARACTERS_MAX} characters"
        raise PreparationError(message)


def _check_directions(text: str) -> None:
    """RFC 3454, section 6.

    A text with right-to-left characters must not have left-to-right ones, and must begin and end with a
    right-to-left character.
    """
    if not any(map(stringprep.in_table_d1, text)):
        return
    if any(map(stringprep.in_table_d2, text)) or not (
        stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    ):
        message = "it mixes writing directions in a way that SASLprep does not allow"
        raise PreparationError(message)
