"""The figures of a measurement have the meaning of their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.cli.statistics import Latencies, Pace, Result


def latencies(*seconds: float) -> Latencies:
    """Return these latencies as recorded."""
    measured = Latencies()
    for one in seconds:
        measured.record(one)
    return measured


def test_percentiles_are_of_the_nearest_rank_in_milliseconds() -> None:
    assert latencies(*(number / 1000 for number in range(1000, 0, -1))).summary() == pytest.approx(
        {"p50": 500, "p95": 950, "p99": 990, "p99.9": 999, "max": 1000}
    )


def test_one_latency_is_every_percentile() -> None:
    assert set(latencies(0.002).summary().values()) == {2.0}


def test_nothing_measured_has_no_percentiles() -> None:
    assert latencies().summary() == {}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_percentiles_are_measured_values_and_never_fall(seconds: list[float]) -> None:
    figures = list(latencies(*seconds).summary().values())
    assert figures == sorted(figures)
    assert set(figures) <= {one * 1000 for one in seconds}


def result(seconds: float) -> Result:
    """A measurement of this duration."""
    return Result(
        "produce",
        events=1000,
        bytes=2_000_000,
        seconds=seconds,
        refused=1,
        latency_ms={"p50": 1.23456},
        samples=7,
    )


def test_rates_are_by_the_measured_time() -> None:
    assert result(2.0).as_json() == {
        "what": "produce",
        "events": 1000,
        "bytes": 2_000_000,
        "seconds": 2.0,
        "refused": 1,
        "events_per_second": 500.0,
        "megabytes_per_second": 1.0,
        "latency_ms": {"p50": 1.235},
        "latency_samples": 7,
    }


def test_no_time_has_no_rate() -> None:
    assert result(0.0).events_per_second == 0.0
    assert result(0.0).megabytes_per_second == 0.0


def test_without_a_rate_everything_is_due_at_once() -> None:
    assert Pace(None).due(0.0) is None
    assert Pace(None).due_at(1000) == 0.0


@given(st.floats(0.1, 1e6), st.integers(0, 10**6))
def test_an_event_is_due_at_its_time_and_not_long_before(rate: float, index: int) -> None:
    pace = Pace(rate)
    due = pace.due(pace.due_at(index))
    assert due is not None
    assert due in {index, index + 1}  # a float may fall just short of the moment itself
    assert pace.due_at(0) == 0.0
