"""The sessions of a console."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.sessions.book import Book, FullError


def book(*, most: int = 3, most_of_one: int = 2) -> Book[str]:
    return Book(most=most, most_of_one=most_of_one, idle_s=100.0, life_s=1000.0)


def test_a_session_ends_when_it_was_not_used_for_the_idle_time() -> None:
    sessions = book()
    sessions.add("t", "anna", address="a", now_s=0)
    assert sessions.use("t", 90) == "anna"
    assert sessions.use("t", 180) == "anna"
    assert sessions.use("t", 281) is None
    assert sessions.expired(281) == ["anna"]
    assert len(sessions) == 0


def test_a_session_ends_after_its_life_however_much_it_is_used() -> None:
    sessions = book()
    sessions.add("t", "anna", address="a", now_s=0)
    for now in range(0, 1001, 50):
        assert sessions.use("t", now) == "anna"
    assert sessions.use("t", 1001) is None


def test_an_address_that_has_its_share_does_not_end_sessions_of_others() -> None:
    sessions = book()
    sessions.add("other", "bert", address="b", now_s=0)
    sessions.add("1", "anna", address="a", now_s=10)
    sessions.add("2", "anna", address="a", now_s=20)
    with pytest.raises(FullError):
        sessions.add("3", "anna", address="a", now_s=30)
    assert sessions.add("3", "anna", address="a", now_s=75) == "anna"
    assert sessions.use("1", 75) is None
    assert sessions.use("other", 75) == "bert"


def test_an_unknown_token_has_no_session_and_a_removed_one_neither() -> None:
    sessions = book()
    sessions.add("t", "anna", address="a", now_s=0)
    assert sessions.use("x", 1) is None
    assert sessions.remove("t") == "anna"
    assert sessions.remove("t") is None
    assert sessions.use("t", 1) is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 200)), max_size=60))
def test_there_are_never_more_sessions_than_may_be_and_none_is_forgotten(
    steps: list[tuple[str, float]],
) -> None:
    sessions, now, begun, ended = book(), 0.0, 0, 0
    for number, (address, wait_s) in enumerate(steps):
        now += wait_s
        ended += len(sessions.expired(now))
        try:
            ended += sessions.add(str(number), address, address=address, now_s=now) is not None
            begun += 1
        except FullError:
            pass
        assert begun - ended == len(sessions) <= 3
        assert max(list(sessions).count(each) for each in "abcd") <= 2
