"""Header values both ways. HTTP binding 1.0.2, 3.1.3.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats.errors import InvalidEventError
from event_formats.percent import decoded, encoded


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_encoded_text_is_printable_and_decodes_to_the_same(text: str) -> None:
    header = encoded(text)
    assert all(0x21 <= ord(character) <= 0x7E and character != '"' for character in header)
    assert decoded("x", header.encode()) == text


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"),
        ('a"b', "a%22b"),
        ("50%", "50%25"),
        ("a/b?c=d&e#f~!'()*", "a/b?c=d&e#f~!'()*"),
    ],
)
def test_only_what_must_be_is_encoded(text: str, header: str) -> None:
    """HTTP binding 3.1.3.2: space, double quote, percent, and all beyond U+0021 to U+007E MUST be; the first
    row is its own example.
    """
    assert encoded(text) == header
    assert decoded("x", header.encode()) == text


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"%41%62", "Ab"),
        (b"%e2%82%ac", "\u20ac"),
        (b"%2525", "%25"),
        (b"a b", "a b"),
        (b'"a b"', "a b"),
        (b'"a \\"b\\" \\\\"', 'a "b" \\'),
        (b'"%20"', " "),
        (b'"', '"'),
        (b'"a"b"', '"a"b"'),
        (b"100%", "100%"),
        (b"%zz%4", "%zz%4"),
        ("größe".encode(), "größe"),
    ],
)
def test_a_header_is_unquoted_then_decoded_once(header: bytes, text: str) -> None:
    """HTTP binding 3.1.3.2: unquoting MUST come first, then one round of decoding. Unnecessary escapes MUST
    be accepted.
    """
    assert decoded("x", header) == text


@pytest.mark.parametrize("header", [b"%C0%A0", b"%ff", b"\xff", b"%ED%A0%80", b"%E2%82"])
def test_bytes_that_are_not_unicode_are_refused(header: bytes) -> None:
    """HTTP binding 3.1.3.2: sequences that are invalid in UTF-8 MUST be rejected; the first is its own
    example.
    """
    with pytest.raises(InvalidEventError, match="x is not UTF-8"):
        decoded("x", header)
