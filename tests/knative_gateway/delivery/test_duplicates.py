"""Events that were there before: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry"."""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.delivery.duplicates import Duplicates
from tests.knative_gateway.delivery.made import event


def test_source_and_id_tell_whether_an_event_was_there() -> None:
    """If duplicate detection is implemented, recipients MUST use the source and id attributes."""
    duplicates = Duplicates(window_ms=1000)
    assert not duplicates.seen(event(id="1"), 0)
    assert duplicates.seen(event(id="1", type="other", traceparent="x"), 1)
    assert not duplicates.seen(event(id="2"), 2)
    assert not duplicates.seen(event(id="1", source="/other"), 3)


def test_what_was_seen_is_forgotten_after_the_window() -> None:
    duplicates = Duplicates(window_ms=1000)
    assert not duplicates.seen(event(), 0)
    assert duplicates.seen(event(), 999)
    assert not duplicates.seen(event(), 1000)


def test_no_more_is_remembered_than_the_limit() -> None:
    duplicates = Duplicates(window_ms=1000, remembered_max=2)
    assert [duplicates.seen(event(id=number), 0) for number in ("1", "2", "3")] == [False] * 3
    assert duplicates.seen(event(id="3"), 0)
    assert duplicates.seen(event(id="2"), 0)
    assert not duplicates.seen(event(id="1"), 0)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 400)), max_size=40), st.integers(1, 4))
def test_an_event_that_was_not_seen_within_the_window_is_never_a_duplicate(arrivals: list[tuple[str, int]], most: int) -> None:
    duplicates, now, taken = Duplicates(window_ms=1000, remembered_max=most), 0, dict[str, int]()
    for name, later in arrivals:
        now += later
        if duplicates.seen(event(id=name), now):
            assert now - taken[name] < 1000
        else:
            taken[name] = now
