"""Retention removes only whole closed segments, from the oldest on, and no more than necessary."""

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.plans.retention import (
    AHEAD_MS,
    HOLD_MS,
    ClosedSegment,
    SteadyClock,
    aging_from,
    expired,
    must_roll,
    notice,
)

SEGMENTS = [ClosedSegment(number * 10, number * 10 + 10, 100, number * 1000) for number in range(5)]


def _expired(*, active: int = 50, now_ms: int = 0, age: int | None = None, size: int | None = None) -> int:
    return expired(SEGMENTS, total_bytes=active + 500, now_ms=now_ms, retention_ms=age, retention_bytes=size)


def test_without_a_bound_nothing_goes() -> None:
    assert _expired(now_ms=10**15) == 0


def test_by_age_a_segment_goes_when_its_last_record_is_too_old() -> None:
    assert _expired(now_ms=5000, age=3000) == 2
    assert _expired(now_ms=5001, age=3000) == 3
    assert _expired(now_ms=10**9, age=3000) == 5


def test_by_bytes_what_stays_still_holds_the_bound() -> None:
    assert _expired(size=550) == 0
    assert _expired(size=450) == 1
    assert _expired(size=449) == 1
    assert _expired(size=350) == 2
    assert _expired(size=1) == 5


def test_either_bound_is_enough() -> None:
    assert _expired(now_ms=5000, age=3000, size=450) == 2
    assert _expired(now_ms=5000, age=10**6, size=350) == 2


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 50))), st.integers(0, 100), st.integers(1, 500))
def test_by_bytes_the_least_number_of_segments_is_kept(
    parts: list[tuple[int, int]], active: int, bound: int
) -> None:
    segments = [ClosedSegment(place, place + 1, size, stamp) for place, (size, stamp) in enumerate(parts)]
    count = expired(
        segments,
        total_bytes=active + sum(size for size, _ in parts),
        now_ms=0,
        retention_ms=None,
        retention_bytes=bound,
    )
    left = active + sum(size for size, _ in parts[count:])
    assert count == 0 or left >= bound
    assert count == len(parts) or left - parts[count][0] < bound


def test_a_segment_is_closed_at_its_size_or_age() -> None:
    for size, age, roll in ((99, 9, False), (100, 9, True), (99, 10, True)):
        assert (
            must_roll(first_timestamp_ms=50, bytes_=size, now_ms=50 + age, segment_ms=10, segment_bytes=100)
            is roll
        )


def test_segments_after_the_first_that_stays_are_not_examined() -> None:
    looked_at: list[int] = []

    def segments() -> Iterator[ClosedSegment]:
        for segment in SEGMENTS:
            looked_at.append(segment.base)
            yield segment

    assert expired(segments(), total_bytes=500, now_ms=5000, retention_ms=4500, retention_bytes=None) == 1
    assert looked_at == [0, 10]


def test_a_timestamp_in_the_future_counts_from_when_it_was_noticed() -> None:
    assert aging_from(900, None, 1000) == (900, None)
    assert aging_from(1000 + AHEAD_MS, None, 1000) == (1000 + AHEAD_MS, None)
    assert aging_from(10**9, None, 1000) == (1000, 1000)
    assert aging_from(10**9, 1000, 5000) == (1000, 1000)
    assert aging_from(10**9, 5000, 1000) == (1000, 1000), "the clock went back"
    assert aging_from(10**9, 1000, 10**9) == (10**9, None), "the clock has come there"


@dataclass
class _Segment:
    last_timestamp_ms: int
    noticed_ms: int | None = None


def test_all_segments_of_the_future_are_noticed_at_once() -> None:
    segments = [_Segment(10), _Segment(20), _Segment(10**9), _Segment(10**9)]
    notice(segments, 1000)
    assert [segment.noticed_ms for segment in segments] == [None, None, 1000, 1000]
    segments.append(_Segment(10**9))
    notice(segments, 2000)
    assert [segment.noticed_ms for segment in segments] == [None, None, 1000, 1000, 2000]


def test_the_clock_of_retention_follows_the_wall_clock() -> None:
    clock = SteadyClock()
    for second in range(0, 90_000, 5):
        assert clock.now_ms(10**12 + second * 1003, second * 1000) == 10**12 + second * 1003, (
            "a clock that is slewed is not a jump"
        )
        assert clock.ahead_ms == 0


def test_a_clock_that_jumps_ahead_for_a_moment_removes_nothing() -> None:
    clock = SteadyClock()
    clock.now_ms(10**12, 0)
    assert clock.now_ms(10**12 + 10**10, 5000) == 10**12 + 5000
    assert clock.ahead_ms == 10**10 - 5000
    assert clock.now_ms(10**12 + 10_000, 10_000) == 10**12 + 10_000
    assert clock.ahead_ms == 0


def test_a_jump_that_lasts_is_followed() -> None:
    clock = SteadyClock()
    clock.now_ms(0, 0)
    assert clock.now_ms(10**12, 5000) == 5000
    assert clock.now_ms(10**12 + HOLD_MS, 5000 + HOLD_MS) == 10**12 + HOLD_MS
    assert clock.ahead_ms == 0
    assert clock.now_ms(10**12 + HOLD_MS + 1, 5001 + HOLD_MS) == 10**12 + HOLD_MS + 1


def test_a_clock_that_goes_back_is_followed_at_once() -> None:
    clock = SteadyClock()
    clock.now_ms(10**12, 0)
    assert clock.now_ms(5, 5000) == 5
