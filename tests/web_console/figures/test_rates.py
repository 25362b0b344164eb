"""Rates from counts."""

from hypothesis import given
from hypothesis import strategies as st

from web_console.figures.rates import SAMPLES_MAX, History, points, skew


def test_a_rate_is_measured_over_a_few_seconds() -> None:
    history = History()
    assert history.rate is None
    for second, count in enumerate([100, 100, 130, 130, 130, 130]):
        history.add(float(second), count)
    assert [round(rate, 1) for _, rate in history.rates] == [0.0, 15.0, 10.0, 10.0, 0.0]


def test_a_log_that_was_created_again_has_no_negative_rate() -> None:
    history = History()
    history.add(0.0, 500)
    history.add(1.0, 600)
    history.add(2.0, 7)
    assert history.rate is None
    history.add(3.0, 9)
    assert history.rate == 2.0


@given(st.lists(st.tuples(st.floats(0.01, 5), st.integers(0, 10**9)), max_size=400))
def test_a_history_is_bounded_and_its_rates_are_not_negative(steps: list[tuple[float, int]]) -> None:
    history, now, count = History(), 0.0, 0
    for wait_s, more in steps:
        now, count = now + wait_s, count + more
        history.add(now, count)
    assert len(history.rates) <= SAMPLES_MAX
    assert all(rate >= 0 for _, rate in history.rates)


def test_skew_is_how_much_more_than_its_share_the_largest_part_has() -> None:
    assert skew([10, 10, 10, 10]) == 1
    assert skew([40, 0, 0, 0]) == 4
    assert skew([0, 0]) is None
    assert skew([]) is None


def test_the_newest_rate_is_at_the_right_edge_and_the_highest_at_the_top() -> None:
    assert points([0.0, 2.0], width=119, height=24) == "118.0,23.0 119.0,1.0"
    assert points([], width=119, height=24) == ""
