"""Conditions on place and time as bounds."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from spark_connector.planning import OffsetRange
from spark_connector.pushdown import Bounds, bounds_of, narrowed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = {
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    EqualTo: lambda one, other: one == other,
    EqualNullSafe: lambda one, other: one == other,
}
moments = st.integers(-3000, 30_000).map(lambda number: EPOCH + timedelta(microseconds=number))
conditions = st.one_of(
    st.builds(lambda kind, value: kind(("offset",), value), st.sampled_from(list(COMPARISONS)), st.integers(-5, 40)),
    st.builds(lambda kind, value: kind(("enqueued_time",), value), st.sampled_from(list(COMPARISONS)), moments),
    st.builds(lambda kind, value: kind(("partition",), value), st.sampled_from([EqualTo, EqualNullSafe]), st.integers(0, 3)),
    st.builds(lambda values: In(("partition",), tuple(values)), st.lists(st.integers(0, 3), max_size=3)),
    st.builds(lambda values: In(("offset",), tuple(values)), st.lists(st.integers(0, 40), max_size=3)),
    st.builds(lambda values: In(("stream",), tuple(values)), st.lists(st.sampled_from(["t", "u"]), max_size=2)),
)


def true_of(condition: Filter, row: dict[str, object]) -> bool:
    value = row[condition.attribute[0]]  # type: ignore[attr-defined]
    wanted = condition.value  # type: ignore[attr-defined]
    if isinstance(condition, In):
        return value in wanted
    return bool(COMPARISONS[type(condition)](value, wanted))  # type: ignore[no-untyped-call, index]


@given(st.lists(conditions, max_size=4), st.sampled_from(["t", "u"]), st.integers(0, 3), st.integers(0, 40), st.integers(0, 30))
def test_no_row_for_which_all_conditions_are_true_is_left_out(
    given_conditions: list[Filter], stream: str, partition: int, offset: int, at_ms: int
) -> None:
    row = {"stream": stream, "partition": partition, "offset": offset, "enqueued_time": EPOCH + timedelta(milliseconds=at_ms)}
    if all(true_of(condition, row) for condition in given_conditions):
        bounds = bounds_of(given_conditions)
        kept = narrowed([OffsetRange(stream, partition, 0, 41, None)], bounds)
        assert any(one.start <= offset < one.end for one in kept)
        assert bounds.low_ms is None or at_ms >= bounds.low_ms
        assert bounds.high_ms is None or at_ms < bounds.high_ms


@pytest.mark.parametrize(
    ("given_conditions", "bounds"),
    [
        ([GreaterThan(("offset",), 4), LessThanOrEqual(("OFFSET",), 9)], Bounds(low=5, high=10)),
        ([EqualTo(("enqueued_time",), EPOCH + timedelta(milliseconds=7))], Bounds(low_ms=7, high_ms=8)),
        ([GreaterThan(("enqueued_time",), EPOCH + timedelta(microseconds=7500))], Bounds(low_ms=8)),
        ([LessThan(("enqueued_time",), EPOCH + timedelta(microseconds=7500))], Bounds(high_ms=8)),
        ([In(("partition",), (1, 2)), EqualTo(("partition",), 2)], Bounds(partitions=frozenset({2}))),
        ([IsNotNull(("offset",)), Not(EqualTo(("offset",), 4)), EqualTo(("body",), b"x"), EqualTo(("a", "offset"), 4)], Bounds()),
        ([GreaterThan(("enqueued_time",), datetime(2026, 1, 1))], Bounds()),
        ([In(("offset",), ())], Bounds()),
    ],
)
def test_conditions_are_bounds(given_conditions: list[Filter], bounds: Bounds) -> None:
    assert bounds_of(given_conditions) == bounds
