"""Offsets: numbers for users, sortable texts inside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.offsets import offset_number, offset_text

numbers = st.integers(0, 10**16 - 1)


@given(numbers)
def test_an_offset_survives_its_text(number: int) -> None:
    assert offset_number(offset_text(number)) == number


@given(numbers, numbers)
def test_texts_sort_like_the_numbers(one: int, other: int) -> None:
    assert (one < other) == (offset_text(one) < offset_text(other))


def test_no_offset_has_no_text() -> None:
    assert offset_text(None) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [("", None), ("07", 7), ("0A", "0A"), ("٤", "٤"), ("-1", "-1"), ("9" * 5000, "9" * 5000)],
)
def test_positions_of_an_earlier_version_are_shown(text: str, shown: int | str | None) -> None:
    assert offset_number(text) == shown
