"""Recently accepted events are known for the configured time, and no longer."""

from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.ingress.duplicates import Window, identity_of


def test_an_event_is_known_within_the_window() -> None:
    window = Window(100)
    assert not window.knows(("/s", "1"), 0)
    window.note(("/s", "1"), 0)
    assert window.knows(("/s", "1"), 100)
    assert not window.knows(("/s", "1"), 101)
    assert not window.knows(("/s", "2"), 1)
    assert not window.knows(("/t", "1"), 1)


def test_old_ids_are_forgotten() -> None:
    window = Window(100)
    for at in range(1000):
        window.note(("/s", str(at)), at)
    assert len(window) == 101


def test_the_number_of_remembered_ids_is_bounded() -> None:
    window = Window(1000, events_max=10)
    for number in range(100):
        window.note(("/s", str(number)), 0)
    assert len(window) == 10
    assert window.knows(("/s", "99"), 0)


@given(st.text("ab", max_size=9), st.text("ab", max_size=9))
def test_long_identities_take_little_memory_and_stay_different(one: str, other: str) -> None:
    long_one, long_other = one + "x" * 100_000, other + "x" * 100_000
    assert max(map(len, identity_of(long_one, long_other))) <= 65
    assert (identity_of(long_one, "1") == identity_of(long_other, "1")) is (one == other)
    assert identity_of("/s", "1") == ("/s", "1")


def test_seen_again_it_is_as_new() -> None:
    window = Window(100)
    window.note(("/s", "1"), 0)
    window.note(("/s", "1"), 90)
    window.note(("/s", "2"), 150)
    assert window.knows(("/s", "1"), 190)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40))))
def test_it_is_as_looking_through_everything(steps: list[tuple[int, int]]) -> None:
    window, noted, now = Window(50), dict[str, int](), 0
    for event, later in steps:
        now += later
        expected = str(event) in noted and now - noted[str(event)] <= 50
        assert window.knows(("/s", str(event)), now) is expected
        window.note(("/s", str(event)), now)
        noted[str(event)] = now
