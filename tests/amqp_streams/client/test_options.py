"""The options of callers."""

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


@pytest.mark.parametrize("offset", [-1, 10**16, 10**300])
def test_a_number_that_is_not_an_offset_is_refused(offset: int) -> None:
    with pytest.raises(ValueError, match="is not an offset: give a number from 0 to 9999999999999999"):
        AfterOffset(offset)


@pytest.mark.parametrize("text", ["42", "00042", "0000000000000042"])
def test_a_number_as_text_is_refused_with_the_number_to_give(text: Any) -> None:
    with pytest.raises(TypeError, match=rf"an offset is a number, not '{text}': give AfterOffset\(42\)"):
        AfterOffset(text)


@pytest.mark.parametrize("offset", [None, 1.5, True, b"1", "", "é", "-1", "²", "@latest", "9" * 5000])
def test_a_text_that_is_not_a_number_is_not_an_offset(offset: Any) -> None:
    with pytest.raises(
        TypeError, match=r"an offset is a number, not .*: give a number such as event\.offset"
    ):
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
    [
        ("nonsense", ValueError),
        ("Earliest", ValueError),
        ("@earliest", ValueError),
        (None, TypeError),
        (-1, TypeError),
    ],
)
def test_a_wrong_start_is_an_error_that_names_the_right_ones(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(
        kind, match=r"is not a start: give 'earliest', 'latest', AfterOffset\(offset\) or AfterTime"
    ):
        start_of(given)


@pytest.mark.parametrize(("given", "kind"), [(42, TypeError), ("0000000000000042", ValueError)])
def test_an_offset_alone_is_not_a_start(given: Any, kind: type[Exception]) -> None:
    """Half of the readers would take it as included."""
    with pytest.raises(
        kind, match=r"is not a start: give 'earliest', 'latest', AfterOffset\(42\) or AfterTime"
    ):
        start_of(given)
