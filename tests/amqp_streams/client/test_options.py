"""What a caller chooses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.options import EARLIEST, AfterOffset, RetryPolicy


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


@pytest.mark.parametrize(("offset", "symbol"), [(7, "0000000000000007"), ("0000000000000007", "0000000000000007"), ("a4c5", "a4c5")])
def test_an_offset_is_a_number_or_a_symbol(offset: str | int, symbol: str) -> None:
    assert AfterOffset(offset).symbol == symbol


def test_earliest_is_before_every_offset() -> None:
    assert EARLIEST.symbol == "@earliest"
