"""States of every store."""

import pytest

from tests.amqp_streams.storage.conftest import Hand


def test_a_written_value_is_visible_at_once_and_reported_later(hand: Hand) -> None:
    states = hand.store.states
    assert states.get("a") is None
    first = states.write({"a": b"1", "b": b"2"})
    second = states.write({"b": None, "c": b""})
    assert second == first + 1
    assert hand.written == []
    assert (states.get("a"), states.get("b"), states.get("c")) == (b"1", None, b"")
    hand.loop.run_until(lambda: len(hand.written) == 2)
    assert hand.written == [(first, None), (second, None)]


def test_items_are_those_with_the_prefix_by_key(hand: Hand) -> None:
    hand.keep({"cursor/b": b"2", "cursor/a": b"1", "curs": b"3", "epoch/a": b"4"})
    assert hand.store.states.items("cursor/") == [("cursor/a", b"1"), ("cursor/b", b"2")]
    assert [key for key, _ in hand.store.states.items("")] == ["curs", "cursor/a", "cursor/b", "epoch/a"]
    assert hand.store.states.items("x") == []


def test_a_write_beyond_the_bounds_is_refused_and_changes_nothing(hand: Hand) -> None:
    hand.keep({"a": b"1"})
    with pytest.raises(ValueError, match="key"):
        hand.store.states.write({"a": b"2", "": b"x"})
    assert hand.store.states.get("a") == b"1"
    assert hand.keep({"a": b"3"}) is None


def test_writes_of_nothing_end_too(hand: Hand) -> None:
    assert hand.keep({}) is None
    assert hand.keep({"not there": None}) is None
    assert hand.store.states.items("") == []
