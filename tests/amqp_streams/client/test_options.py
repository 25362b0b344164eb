"""What a caller chooses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.options import EARLIEST, LATEST, AfterOffset, AfterTime, RetryPolicy, start_of


@given(st.integers(0, 200), st.floats(0.5, 1.0))
def test_waits_grow_to_a_bound_and_jitter_only_shortens_them(attempt: int, jitter: float) -> None:
    policy = RetryPolicy(first_ms=10, wait_max_ms=500, factor=2.0, jitter=lambda: jitter)
    assert policy.wait_s(attempt) == pytest.approx(min(10 * 2**attempt, 500) * jitter / 1000)
    assert policy.wait_s(attempt) <= policy.wait_s(attempt + 1)


@given(st.integers(0, 50))
def test_the_default_jitter_stays_between_half_and_all(attempt: int) -> None:
    policy = RetryPolicy()
    full = RetryPolicy(jitter=lambda: 1.0).wait_s(attempt)
    assert full / 2 <= policy.wait_s(attempt) <= full


@pytest.mark.parametrize(
    ("offset", "symbol"),
    [(7, "0000000000000007"), ("0000000000000007", "0000000000000007"), ("a4c5", "a4c5")],
)
def test_an_offset_is_a_number_or_a_symbol(offset: str | int, symbol: str) -> None:
    assert AfterOffset(offset).symbol == symbol


def test_earliest_is_before_every_offset() -> None:
    assert EARLIEST.symbol == "@earliest"


@pytest.mark.parametrize(
    ("text", "symbol"),
    [("0", "0000000000000000"), ("42", "0000000000000042"), ("00000042", "00000042"), ("@latest", "@latest")],
)
def test_a_number_as_text_is_the_same_offset_as_the_number(text: str, symbol: str) -> None:
    assert AfterOffset(text).symbol == symbol


@pytest.mark.parametrize("offset", [-1, "-1", "", "é", 10**300])
def test_what_is_not_an_offset_is_refused(offset: str | int) -> None:
    with pytest.raises(
        ValueError, match=r"is not an offset: give a number from 0 to 9999999999999999, or event\.offset"
    ):
        AfterOffset(offset)


@pytest.mark.parametrize("offset", [None, 1.5, True, b"1"])
def test_what_is_neither_number_nor_text_is_not_an_offset(offset: Any) -> None:
    with pytest.raises(TypeError, match=r"an offset is a number or a text such as event\.offset, not"):
        AfterOffset(offset)


@pytest.mark.parametrize("moment", [None, 1.5, "2026-01-01"])
def test_a_time_is_in_whole_milliseconds(moment: Any) -> None:
    with pytest.raises(TypeError, match="a time is a whole number of milliseconds since 1970 UTC, not"):
        AfterTime(moment)


def test_a_start_may_be_a_word() -> None:
    assert start_of("earliest") == EARLIEST
    assert start_of("latest") == LATEST
    assert start_of(AfterTime(5)) == AfterTime(5)


@pytest.mark.parametrize(
    ("given", "kind"),
    [("nonsense", ValueError), ("Earliest", ValueError), (42, TypeError), (None, TypeError)],
)
def test_a_wrong_start_is_an_error_that_names_the_right_ones(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(
        kind, match=r"is not a start: give 'earliest', 'latest', AfterOffset\(offset\) or AfterTime"
    ):
        start_of(given)
