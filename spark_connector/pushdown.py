"""Conditions of a query on place and time, as bounds of what is read. Pure, but for Spark's classes of conditions.

Law: bounds never leave out a row for which all conditions are true. Spark evaluates every condition again, so they need not be exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark_connector.planning import OffsetRange

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """`low` inclusive, `high` exclusive; None: no bound. Times in ms since 1970 UTC, as the log keeps them."""

    streams: frozenset[object] | None = None
    partitions: frozenset[object] | None = None
    low: int = 0
    high: int | None = None
    low_ms: int | None = None
    high_ms: int | None = None


def bounds_of(conditions: Iterable[Filter]) -> Bounds:
    """The bounds of conditions that all have to be true; those on other columns, or of other kinds, bound nothing."""
    found = Bounds()
    for condition in conditions:
        found = _bounded(found, condition)
    return found


def _bounded(bounds: Bounds, condition: Filter) -> Bounds:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    name = path[0].lower() if len(path) == 1 else ""
    match condition:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            values: tuple[object, ...] = (value,)
        case In(value=several):
            values = tuple(value for value in several if value is not None)
        case _:
            return _compared(bounds, name, condition)
    if any(value is None for value in values):
        return bounds
    match name:
        case "stream":
            return replace(bounds, streams=_both(bounds.streams, values))
        case "partition":
            return replace(bounds, partitions=_both(bounds.partitions, values))
    numbers = [number for value in values if (number := _number(name, value)) is not None]
    if len(numbers) < len(values) or not numbers:
        return bounds
    return _within(bounds, name, low=_up(name, min(numbers)), high=_down(name, max(numbers)) + 1)


def _compared(bounds: Bounds, name: str, condition: Filter) -> Bounds:
    number = _number(name, getattr(condition, "value", None))
    if number is None:
        return bounds
    match condition:
        case GreaterThan():
            return _within(bounds, name, low=_down(name, number) + 1)
        case GreaterThanOrEqual():
            return _within(bounds, name, low=_up(name, number))
        case LessThan():
            return _within(bounds, name, high=_up(name, number))
        case LessThanOrEqual():
            return _within(bounds, name, high=_down(name, number) + 1)
    return bounds


def _number(name: str, value: object) -> int | None:
    """An offset, or microseconds since 1970 UTC."""
    if name == "offset" and isinstance(value, int):
        return value
    if name == "enqueued_time" and isinstance(value, datetime) and value.tzinfo is not None:
        distance = value - _EPOCH
        return (distance.days * 86_400 + distance.seconds) * 1_000_000 + distance.microseconds
    return None


def _down(name: str, number: int) -> int:
    """The last unit of the log that is not after it."""
    return number if name == "offset" else number // 1000


def _up(name: str, number: int) -> int:
    """The first that is not before it."""
    return number if name == "offset" else -(-number // 1000)


def _within(bounds: Bounds, name: str, *, low: int | None = None, high: int | None = None) -> Bounds:
    if name == "offset":
        return replace(bounds, low=max(bounds.low, low or 0), high=_least(bounds.high, high))
    later = bounds.low_ms if low is None else max(low, bounds.low_ms or 0, 0)
    return replace(bounds, low_ms=later, high_ms=_least(bounds.high_ms, high))


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _both(known: frozenset[object] | None, values: tuple[object, ...]) -> frozenset[object]:
    return frozenset(values) if known is None else known & frozenset(values)


def narrowed(ranges: Iterable[OffsetRange], bounds: Bounds) -> list[OffsetRange]:
    """What of ranges is within bounds of place."""
    found = []
    for one in ranges:
        if bounds.streams is not None and one.stream not in bounds.streams:
            continue
        if bounds.partitions is not None and one.partition not in bounds.partitions:
            continue
        found.append(between(one, bounds.low, bounds.high))
    return [one for one in found if len(one)]


def between(one: OffsetRange, low: int | None, high: int | None) -> OffsetRange:
    """What of a range is from `low` to before `high`; None: no bound. It may be nothing."""
    start = one.start if low is None else max(one.start, low)
    end = one.end if high is None else min(one.end, high)
    return replace(one, start=start, end=max(start, end))
