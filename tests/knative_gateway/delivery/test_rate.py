"""The limit on deliveries per second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery.rate import PER_SECOND_MAX, Rate, rate_of


def test_one_may_go_at_once_and_the_next_after_its_time() -> None:
    rate = Rate(2.0)
    assert rate.take(0)
    assert not rate.take(0)
    assert rate.wait_ms(0) == 500
    assert not rate.take(499)
    assert rate.take(500)


def test_fewer_than_one_a_second_are_possible() -> None:
    rate = Rate(0.1)
    assert rate.take(0)
    assert rate.wait_ms(0) == 10_000
    assert not rate.take(9_999)
    assert rate.take(10_000)


def test_a_pause_saves_up_no_more_than_the_burst() -> None:
    rate = Rate(100.0, burst=5)
    rate.take(0)
    assert sum(rate.take(1_000_000) for _ in range(50)) == 10
    rate = Rate(1.0, burst=5)
    assert sum(rate.take(1_000_000) for _ in range(50)) == 5


def test_a_clock_that_goes_back_stands_still() -> None:
    rate = Rate(1.0)
    assert rate.take(5000)
    assert not rate.take(0)
    assert not rate.take(5999)
    assert rate.take(6000)


@pytest.mark.parametrize("per_second", [0.0, -1.0, PER_SECOND_MAX * 2])
def test_the_rate_is_bounded(per_second: float) -> None:
    with pytest.raises(AssertionError):
        Rate(per_second)


@given(st.floats(0.01, 100), st.lists(st.integers(0, 300), min_size=1, max_size=20))
def test_never_more_than_the_rate_and_the_burst_go_in_any_time(per_second: float, steps: list[int]) -> None:
    rate, now, gone = Rate(per_second), 0, list[int]()
    for step in steps:
        now += step
        while rate.take(now):
            gone.append(now)
        assert rate.wait_ms(now) > 0
    for first, start in enumerate(gone):
        for last in range(first, len(gone)):
            assert last - first + 1 <= rate.burst + (gone[last] - start) * per_second / 1000 + 1e-3


@given(st.floats(0.01, 10_000), st.integers(0, 10**9))
def test_after_the_wait_one_delivery_may_begin(per_second: float, now: int) -> None:
    rate = Rate(per_second)
    for _ in range(20):
        assert rate.take(now)
        while rate.take(now):
            pass
        now += rate.wait_ms(now)


def test_a_limit_beyond_what_can_be_counted_is_the_most_that_can() -> None:
    assert rate_of(None) is None
    most = rate_of(PER_SECOND_MAX * 10)
    assert most is not None
    assert most.per_second == PER_SECOND_MAX
