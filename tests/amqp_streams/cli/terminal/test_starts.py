"""Starts and ends in a log are written as people write them, and reading stops exactly there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.cli.terminal.starts import (
    AtOffset,
    AtTime,
    Bounds,
    Remaining,
    ends_of,
    parse_bound,
    parse_start,
)
from amqp_streams.client import EARLIEST, LATEST, AfterOffset, AfterTime, LogInfo, PartitionInfo

NOW = 1_795_242_600_000  # 2026-11-21T06:30:00Z


def a_log(*events: int, last_timestamp_ms: int = NOW) -> LogInfo:
    """Return a log with this many events in partitions 0, 1, …, from offset 0."""
    return LogInfo(
        "temps",
        tuple(
            PartitionInfo(str(index), 0, count - 1, count, last_timestamp_ms=last_timestamp_ms)
            if count
            else PartitionInfo(str(index), None, None, 0)
            for index, count in enumerate(events)
        ),
    )


@pytest.mark.parametrize("text", ["42", "0000000000000042", "offset:42", "00042"])
def test_digits_are_an_offset(text: str) -> None:
    assert parse_bound(text, NOW) == AtOffset(42)


@given(st.integers(0, 10**16 - 1))
def test_every_offset_symbol_is_read_as_its_number(number: int) -> None:
    assert parse_bound(f"{number:016d}", NOW) == AtOffset(number)
    assert parse_bound(f"offset:{number}", NOW) == AtOffset(number)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T06:30:00Z",
        "2026-11-21T06:30:00.000Z",
        "2026-11-21T06:30",
        "2026-11-21 06:30",
        "2026-11-21T08:30:00+02:00",
    ],
)
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    assert parse_bound(text, 0) == AtTime(NOW)


@pytest.mark.parametrize("text", [str(NOW), f"time:{NOW}", "now", "-0"])
def test_thirteen_digits_are_milliseconds_and_now_is_the_present(text: str) -> None:
    assert parse_bound(text, NOW) == AtTime(NOW)


def test_a_small_number_of_milliseconds_can_be_said_to_be_a_time() -> None:
    assert parse_bound("time:42", NOW) == AtTime(42)


@pytest.mark.parametrize(
    ("text", "before_ms"), [("-1h", 3_600_000), ("-90m", 5_400_000), ("-1d12h", 129_600_000)]
)
def test_a_duration_with_a_minus_is_before_the_present(text: str, before_ms: int) -> None:
    assert parse_bound(text, NOW) == AtTime(NOW - before_ms)


def test_a_time_before_1970_is_1970() -> None:
    assert parse_bound("-5200w", NOW) == AtTime(0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "1h",
        "-1",
        "12:00",
        "2026-13-01",
        "42.5",
        "0x10",
        "99999999999999999",
        "offset:",
        "earliest",
    ],
)
def test_anything_else_is_refused_with_examples_of_both(text: str) -> None:
    with pytest.raises(ValueError, match=r"offset \(42, offset:42\) nor a time"):
        parse_bound(text, NOW)


def test_reading_starts_at_the_very_event_that_is_named() -> None:
    """The filter on the wire is exclusive: it excludes its offset. `--from 42` shows event 42."""
    assert parse_start("42", NOW) == AfterOffset(41)
    assert parse_start("time:42", NOW) == AfterTime(41)


@pytest.mark.parametrize("text", ["earliest", "0", "offset:0", "time:0"])
def test_before_the_first_event_is_the_earliest(text: str) -> None:
    assert parse_start(text, NOW) == EARLIEST


def test_latest_is_what_comes_after_the_attach() -> None:
    assert parse_start("latest", NOW) == LATEST


def test_a_wrong_start_is_refused_with_the_words_named_that_only_a_start_has() -> None:
    with pytest.raises(ValueError, match="'earliest' or 'latest'"):
        parse_start("first", NOW)


def read(
    bounds: Bounds, info: LogInfo, events: list[tuple[str, int]], start: object = EARLIEST
) -> tuple[list[tuple[str, int]], bool]:
    """Return which of the arriving events are shown, and whether the command waits for more. The timestamp of
    event n is n.
    """
    remaining = Remaining(bounds, info, start)  # type: ignore[arg-type]  # one of Start's
    kept = [(partition, number) for partition, number in events if remaining.wants(partition, number, number)]
    return kept, bool(remaining)


def test_reading_to_the_end_stops_when_every_partition_has_given_what_it_had() -> None:
    info = a_log(2, 0, 1)
    bounds = Bounds(None, ends_of(info))
    assert read(bounds, info, [("0", 0), ("2", 0)]) == ([("0", 0), ("2", 0)], True)
    assert read(bounds, info, [("0", 0), ("2", 0), ("0", 1)]) == ([("0", 0), ("2", 0), ("0", 1)], False)


def test_events_that_came_after_the_start_are_left_out_while_other_partitions_are_read() -> None:
    info = a_log(1, 2)
    bounds = Bounds(None, ends_of(info))
    assert read(bounds, info, [("0", 0), ("0", 1), ("1", 0), ("0", 2), ("1", 1)]) == (
        [("0", 0), ("1", 0), ("1", 1)],
        False,
    )


def test_an_end_that_was_passed_by_retention_is_noticed() -> None:
    """The named last event may have been removed when reading gets there: a later event also ends the
    partition.
    """
    info = a_log(5)
    assert read(Bounds(None, ends_of(info)), info, [("0", 9)]) == ([], False)


def test_an_empty_log_is_not_waited_for() -> None:
    info = a_log(0, 0)
    assert read(Bounds(None, ends_of(info)), info, []) == ([], False)


@pytest.mark.parametrize("start", [LATEST, AfterOffset(4), AfterTime(NOW)])
def test_a_start_after_the_end_is_not_waited_for(start: object) -> None:
    info = a_log(5)
    assert read(Bounds(None, ends_of(info)), info, [], start) == ([], False)


@pytest.mark.parametrize("start", [EARLIEST, AfterOffset(3), AfterTime(NOW - 1)])
def test_a_start_before_the_end_is_waited_for(start: object) -> None:
    info = a_log(5)
    assert read(Bounds(None, ends_of(info)), info, [], start) == ([], True)


@pytest.mark.parametrize("end", [AtOffset(2), AtTime(2)])
def test_the_end_is_exclusive(end: AtOffset | AtTime) -> None:
    info = a_log(5)
    assert read(Bounds(end, ends_of(info)), info, [("0", 0), ("0", 1), ("0", 2)]) == (
        [("0", 0), ("0", 1)],
        False,
    )


def test_an_offset_to_stop_at_ends_reading_with_the_event_before_it() -> None:
    info = a_log(5)
    assert read(Bounds(AtOffset(2), ends_of(info)), info, [("0", 0), ("0", 1)]) == (
        [("0", 0), ("0", 1)],
        False,
    )


def test_following_to_an_end_waits_in_empty_partitions_too() -> None:
    info = a_log(0, 0)
    bounds = Bounds(AtOffset(1), None)
    assert read(bounds, info, [("0", 0)]) == ([("0", 0)], True)
    assert read(bounds, info, [("0", 0), ("1", 0)]) == ([("0", 0), ("1", 0)], False)


def test_only_the_named_partition_has_an_end() -> None:
    info = a_log(3, 7)
    assert ends_of(info, "1") == {"1": 7}
    remaining = Remaining(Bounds(None, ends_of(info, "1")), info, EARLIEST, "1")
    assert remaining.wants("1", 6, None)
    assert not remaining
