"""Only whole closed segments go, from the oldest on, and no more than must."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.retention import ClosedSegment, expired, must_roll

SEGMENTS = [ClosedSegment(number * 10, number * 10 + 10, 100, number * 1000) for number in range(5)]


def _expired(*, active: int = 50, now_ms: int = 0, age: int | None = None, size: int | None = None) -> int:
    return expired(SEGMENTS, active_bytes=active, now_ms=now_ms, retention_ms=age, retention_bytes=size)


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
def test_by_bytes_the_least_number_of_segments_is_kept(parts: list[tuple[int, int]], active: int, bound: int) -> None:
    segments = [ClosedSegment(place, place + 1, size, stamp) for place, (size, stamp) in enumerate(parts)]
    count = expired(segments, active_bytes=active, now_ms=0, retention_ms=None, retention_bytes=bound)
    left = active + sum(size for size, _ in parts[count:])
    assert count == 0 or left >= bound
    assert count == len(parts) or left - parts[count][0] < bound


def test_a_segment_is_closed_at_its_size_or_age() -> None:
    for size, age, roll in ((99, 9, False), (100, 9, True), (99, 10, True)):
        assert must_roll(first_timestamp_ms=50, bytes_=size, now_ms=50 + age, segment_ms=10, segment_bytes=100) is roll
