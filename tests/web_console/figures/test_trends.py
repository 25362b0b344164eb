"""A trend covers the whole time with a bounded number of values."""

from hypothesis import given
from hypothesis import strategies as st

from web_console.figures.trends import VALUES_MAX, Trend, trend_points


@given(st.integers(1, 5000))
def test_a_trend_keeps_the_first_value_and_the_whole_time(count: int) -> None:
    trend = Trend()
    for number in range(count):
        trend.add(float(number))
    assert len(trend.values) <= VALUES_MAX
    assert trend.values[0] == 0.0
    distances = {after - before for before, after in zip(trend.values, trend.values[1:], strict=False)}
    assert len(distances) <= 1
    step = distances.pop() if distances else 1.0
    assert count - 1 - trend.values[-1] < step


def test_few_values_are_all_kept() -> None:
    trend = Trend()
    for number in range(VALUES_MAX):
        trend.add(number)
    assert trend.values == list(range(VALUES_MAX))


def test_a_line_covers_the_whole_width_from_the_bottom_to_the_highest_value() -> None:
    assert trend_points([0, 5, 10], width=120, height=24) == "0.0,23.0 60.0,12.0 120.0,1.0"
    assert trend_points([7], width=120, height=24) == "0.0,1.0"
    assert trend_points([0, 0], width=120, height=24) == "0.0,23.0 120.0,23.0"
    assert trend_points([], width=120, height=24) == ""
