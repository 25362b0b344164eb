"""How many deliveries are in flight: knative-eventing-test-spec, "Event Acknowledgement and Delivery
Retry".
"""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery.congestion import (
    HANGING_LIMIT,
    LIMIT_MIN,
    PROBE_LIMIT,
    SILENCES_MAX,
    START_LIMIT,
    Congestion,
)


def rounds(
    congestion: Congestion, count: int, *, bears: int, elapsed_ms: int = 100, queues: bool = False
) -> list[int]:
    """The limit after each round of a subscriber that refuses (or delays) requests above its capacity."""
    limits, now = [], 0
    for _ in range(count):
        in_flight = congestion.limit
        took = elapsed_ms * max(1, -(-in_flight // bears)) if queues else elapsed_ms
        now += took
        for number in range(in_flight):
            if number < bears or queues:
                congestion.succeeded(took, in_flight)
            else:
                congestion.overloaded(now)
        limits.append(congestion.limit)
    return limits


def test_it_begins_low_and_doubles_while_all_goes_well() -> None:
    assert rounds(Congestion(limit_max=200), 6, bears=1000) == [16, 32, 64, 128, 200, 200]
    assert Congestion().limit == START_LIMIT


def test_it_adapts_to_the_capacity_of_a_subscriber() -> None:
    """Brokers and Channels MUST implement congestion control."""
    for bears in (1, 2, 3, 10, 50, 300):
        settled = rounds(Congestion(), 400, bears=bears)[-100:]
        assert bears / 3 <= sum(settled) / 100 <= bears + 1
        assert max(settled) <= 2 * bears + 1


def test_it_finds_more_room_when_it_becomes_available() -> None:
    congestion = Congestion()
    assert rounds(congestion, 100, bears=10)[-1] <= 20
    assert rounds(congestion, 200, bears=1000)[-1] > 100


def test_a_subscriber_that_lets_wait_is_not_given_ever_more() -> None:
    """Its answers take longer the more requests are in flight, so a higher limit would not help."""
    limits = rounds(Congestion(), 600, bears=10, elapsed_ms=50, queues=True)
    assert max(limits) <= 100
    assert limits.count(PROBE_LIMIT) < 60


def test_a_subscriber_that_stays_slower_is_given_more_again() -> None:
    """Its latency is measured again from time to time, with few requests in flight."""
    congestion = Congestion()
    rounds(congestion, 3, bears=1000, elapsed_ms=30)
    congestion.overloaded(1_000_000)
    congestion.overloaded(2_000_000)
    low = congestion.limit
    assert rounds(congestion, 60, bears=1000, elapsed_ms=3000)[-1] <= low + 1
    assert rounds(congestion, 200, bears=1000, elapsed_ms=3000)[-1] > low + 50


def test_an_overload_ends_the_measuring() -> None:
    congestion = Congestion()
    rounds(congestion, 2, bears=1000, elapsed_ms=30)
    while congestion.limit > PROBE_LIMIT:
        congestion.succeeded(3000, congestion.limit)
    congestion.overloaded(0)
    assert congestion.limit == 16


def test_answers_from_before_the_measuring_are_not_measured() -> None:
    congestion = Congestion()
    rounds(congestion, 2, bears=1000, elapsed_ms=30)
    while congestion.limit > PROBE_LIMIT:
        congestion.succeeded(3000, congestion.limit)
    for _ in range(100):
        congestion.succeeded(3000, in_flight=30)
    assert congestion.limit == PROBE_LIMIT


def test_a_round_of_failures_is_one_decrease() -> None:
    congestion = Congestion(start_limit=64)
    for _ in range(64):
        congestion.overloaded(1000)
    assert congestion.limit == 32
    congestion.overloaded(1100)
    assert congestion.limit == 16


def test_a_dead_subscriber_is_asked_one_at_a_time() -> None:
    congestion = Congestion()
    for now in range(0, 10_000, 100):
        congestion.overloaded(now)
    assert congestion.limit == LIMIT_MIN


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    congestion = Congestion()
    for _ in range(1000):
        congestion.succeeded(10, in_flight=1)
    assert congestion.limit == START_LIMIT


def test_the_limit_of_a_trigger_is_kept() -> None:
    assert Congestion(limit_max=1).limit == 1
    assert rounds(Congestion(limit_max=3), 50, bears=1000)[-1] == 3


EVENTS = st.lists(st.tuples(st.booleans(), st.integers(0, 5000), st.integers(0, 500)), max_size=200)


@given(st.integers(1, 1024), st.integers(0, 2000), EVENTS)
def test_the_limit_stays_within_bounds_and_never_goes_the_wrong_way(
    most: int, start: int, events: list[tuple[bool, int, int]]
) -> None:
    congestion, now = Congestion(limit_max=most, start_limit=start), 0
    for well, elapsed, later in events:
        now += later
        before = congestion.limit
        if well:
            congestion.succeeded(elapsed, in_flight=before)
            assert before <= congestion.limit or congestion.limit == PROBE_LIMIT
        else:
            congestion.overloaded(now)
            assert before // 2 <= congestion.limit <= before
        assert LIMIT_MIN <= congestion.limit <= most


def test_a_subscriber_that_hangs_is_asked_for_many_until_it_answers() -> None:
    """One at a time, its backlog would never get to its dead letter sink."""
    congestion = Congestion()
    limits = []
    for number in range(40):
        congestion.silent(number * 60_000)
        limits.append(congestion.limit)
    assert min(limits) == LIMIT_MIN
    assert limits[SILENCES_MAX - 1 :] == [HANGING_LIMIT] * (40 - SILENCES_MAX + 1)
    congestion.succeeded(100, HANGING_LIMIT)
    assert congestion.limit <= 2
    congestion.silent(60_000_000)
    assert congestion.limit == LIMIT_MIN, "silences are counted anew"


def test_a_trigger_that_hangs_is_not_asked_for_more_than_it_allows() -> None:
    congestion = Congestion(limit_max=4)
    for number in range(SILENCES_MAX):
        congestion.silent(number * 60_000)
    assert congestion.limit == 4


def test_negative_answers_do_not_count_as_silence() -> None:
    congestion = Congestion()
    for number in range(10 * SILENCES_MAX):
        congestion.overloaded(number * 60_000)
        congestion.silent(number * 60_000 + 30_000)
    assert congestion.limit == LIMIT_MIN
