"""How many events the client fetches ahead."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.consuming.pace import FIRST, Pace


def run(
    pace: Pace, batches: int, size: int, event_s: float, *, now_s: float = 0.0, wait_s: float = 0.0
) -> float:
    """An application that takes `event_s` for each event, and waits `wait_s` for the next batch."""
    for _ in range(batches):
        pace.asked(now_s)
        now_s += wait_s
        pace.gave(size, now_s)
        now_s += size * event_s
    pace.asked(now_s)
    return now_s


def test_little_is_fetched_before_anything_is_known() -> None:
    assert Pace(0.25, 1000).ahead(1) == FIRST
    assert Pace(0.25, 1).ahead(1) == 1


def test_a_quick_application_gets_the_most_within_a_few_turns_and_a_slow_one_event_at_a_time() -> None:
    quick, slow = Pace(0.25, 1000), Pace(0.25, 1000)
    run(quick, 1, 2, 0.00001)
    assert quick.ahead(1) == 8
    run(quick, 5, 8, 0.00001)
    assert quick.ahead(1) == quick.ahead(4) == 1000
    run(slow, 2, 8, 1.0)
    assert slow.ahead(1) == 1


def test_fetched_events_last_for_the_intended_time() -> None:
    pace = Pace(0.25, 1000)
    run(pace, 100, 20, 0.001)
    assert 240 <= pace.ahead(1) <= 250
    assert 60 <= pace.ahead(4) <= 63


def test_waiting_for_events_does_not_count() -> None:
    waited, busy = Pace(0.25, 1000), Pace(0.25, 1000)
    run(waited, 50, 5, 0.001, wait_s=10.0)
    run(busy, 50, 5, 0.001)
    assert waited.ahead(1) == busy.ahead(1)


def test_an_application_that_slows_down_gets_less_soon() -> None:
    pace = Pace(0.25, 1000)
    now_s = run(pace, 50, 100, 0.0001)
    assert pace.ahead(1) == 1000
    run(pace, 4, 100, 0.01, now_s=now_s)
    assert pace.ahead(1) <= 50


def test_asking_again_after_nothing_came_changes_nothing() -> None:
    pace = Pace(0.25, 1000)
    now_s = run(pace, 20, 10, 0.001)
    before = pace.ahead(1)
    for _ in range(10):
        pace.gave(0, now_s)
        pace.asked(now_s := now_s + 1.0)
    assert pace.ahead(1) == before


@given(
    st.lists(st.tuples(st.integers(0, 500), st.floats(0, 100)), max_size=30),
    st.integers(1, 2000),
    st.integers(1, 200),
)
def test_at_least_one_and_at_most_the_most_whatever_happens(
    turns: list[tuple[int, float]], most: int, partitions: int
) -> None:
    pace, now_s = Pace(0.25, most), 0.0
    for count, busy_s in turns:
        pace.gave(count, now_s)
        now_s += busy_s
        pace.asked(now_s)
        assert 1 <= pace.ahead(partitions) <= most
