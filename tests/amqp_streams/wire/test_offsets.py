"""Offsets: the order of their texts is that of the log, and reserved words and invalid texts are
distinguished.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.codec import Symbol
from amqp_streams.wire.offsets import OFFSET_MAX, Earliest, Latest, offset_number, offset_text, parse_offset

numbers = st.integers(0, OFFSET_MAX)


@given(numbers)
def test_an_offset_survives_its_text(number: int) -> None:
    assert parse_offset(offset_text(number)) == number


@given(numbers, numbers)
def test_texts_sort_like_the_log(one: int, other: int) -> None:
    """Event Streams 5.1.1: lexicographical order is log order."""
    assert (one < other) == (offset_text(one).encode() < offset_text(other).encode())


def test_the_reserved_words_are_positions_of_their_own() -> None:
    assert parse_offset("@earliest") == Earliest()
    assert parse_offset("@latest") == Latest()
    assert parse_offset("@earliest") != parse_offset("@latest")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "-1",
        "@first",
        "@Earliest",
        "00000000000000010",
        " 000000000000001",
        "+000000000000001",
        "\u0660" * 16,
        "0x00000000000010",
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="16 decimal digits"):
        parse_offset(text)


@given(numbers)
def test_the_number_of_an_offset_is_that_of_its_text(number: int) -> None:
    assert offset_number(offset_text(number)) == offset_number(Symbol(offset_text(number))) == number


@pytest.mark.parametrize(
    "value", [None, 5, b"0000000000000005", "5", "@earliest", "+000000000000001", "0" * 17, "\u0660" * 16]
)
def test_a_value_of_another_form_has_no_number(value: object) -> None:
    assert offset_number(value) is None


def test_a_long_wrong_offset_is_not_repeated_whole() -> None:
    with pytest.raises(ValueError, match="not a valid offset") as refused:
        parse_offset("9" * 5000)
    assert len(str(refused.value)) < 200


@given(st.text())
def test_parsing_raises_nothing_but_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_offset(text)
