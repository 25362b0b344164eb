"""How names and passwords are made comparable before they are compared (SASLprep, RFC 4013; a profile of stringprep, RFC 3454).

Law: what was prepared once is not changed by preparing it again. Tables and normalisation are those of Unicode 3.2, as the RFC wants it.
"""

import stringprep
from typing import Final
from unicodedata import ucd_3_2_0

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class PreparationError(ValueError):
    """The text has characters that the profile does not allow."""


def saslprep(text: str, *, stored: bool = False) -> str:
    """Prepare a name or a password. `stored`: it is to be kept and compared with, so characters that Unicode 3.2 did not know are refused.

    Raises:
        PreparationError: it has characters that are prohibited, or mixes directions of writing. The text is not in the message.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(" " if stringprep.in_table_c12(one) else one for one in text if not stringprep.in_table_b1(one))
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibited(one) for one in prepared for prohibited in _PROHIBITED):
        message = "it has characters that SASLprep prohibits"
        raise PreparationError(message)
    if stored and any(map(stringprep.in_table_a1, prepared)):
        message = "it has characters that SASLprep does not know"
        raise PreparationError(message)
    _check_directions(prepared)
    return prepared


def prepared_or_same(text: str) -> str:
    """The same for comparing: what cannot be prepared stays as it is."""
    try:
        return saslprep(text)
    except PreparationError:
        return text


def _check_directions(text: str) -> None:
    """RFC 3454, section 6: text with characters written from the right has none from the left, and begins and ends with its own."""
    if not any(map(stringprep.in_table_d1, text)):
        return
    if any(map(stringprep.in_table_d2, text)) or not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        message = "it mixes directions of writing as SASLprep does not allow"
        raise PreparationError(message)
