"""SASLprep: the examples of RFC 4013, and that preparing twice changes nothing."""

import stringprep
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.security.saslprep import (
    _PROHIBITED,
    TEXT_CHARACTERS_MAX,
    PreparationError,
    prepared_or_same,
    saslprep,
)


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0661\u0628", "\u0627\u0661\u0628"),
        ("", ""),
        ("pass wörd", "pass wörd"),
        ("pass wo\u0308rd", "pass wörd"),
    ],
)
def test_texts_that_look_alike_become_equal(text: str, prepared: str) -> None:
    """RFC 4013, section 3, and some more."""
    assert saslprep(text, stored=True) == prepared


@pytest.mark.parametrize(
    "text",
    [
        "\u0007",
        "a\u0000",
        "\u0627\u0031",
        "a\u0627",
        "\u200e",
        "\ud800",
        "\ue000",
        "\ufff9",
        "\U000e0041",
        "\u2ff0",
    ],
)
def test_control_characters_surrogates_and_mixed_directions_are_refused(text: str) -> None:
    with pytest.raises(PreparationError) as caught:
        saslprep(text)
    assert repr(text)[1:-1] not in str(caught.value)
    assert prepared_or_same(text) == text


def test_characters_that_unicode_3_2_did_not_know_may_be_asked_for_but_not_kept() -> None:
    assert saslprep("\U0001f600") == "\U0001f600"
    with pytest.raises(PreparationError):
        saslprep("\U0001f600", stored=True)


@given(st.text())
def test_preparing_twice_is_preparing_once(text: str) -> None:
    once = prepared_or_same(text)
    assert prepared_or_same(once) == once


def test_a_text_outside_ascii_has_a_bound_before_and_after_normalisation() -> None:
    """A peer sends names before it logs in, and one character can become 18."""
    longest = "\u00e4" * TEXT_CHARACTERS_MAX
    assert saslprep(longest) == longest
    assert saslprep("x" * 5000) == "x" * 5000
    for text in (longest + "x", "\u00ad" * 5000, "\ufdfa" * 100):
        with pytest.raises(PreparationError, match="more than 1024 characters"):
            saslprep(text)
        assert prepared_or_same(text) == text


@pytest.mark.parametrize("first", range(0, 0x110000, 0x8000))
def test_the_prohibited_characters_are_those_of_the_tables(first: int) -> None:
    tables: tuple[Callable[[str], bool], ...] = (
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
    # Whole planes of characters that do not exist are sampled at their ends.
    step = 1 if first < 0x20000 or 0xE0000 <= first < 0xE8000 else 61
    numbers = [*range(first, first + 0x8000, step), *range(first + 0x7FF0, first + 0x8000)]
    expected = [number for number in numbers if any(table(chr(number)) for table in tables)]
    assert [number for number in numbers if _PROHIBITED.search(chr(number))] == expected
