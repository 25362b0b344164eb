"""The values of states in memory."""

import pytest

from amqp_streams.storage.formats.state_values import StateValues


def test_values_are_set_removed_and_found_by_prefix() -> None:
    given = {"b": b"0"}
    values = StateValues(given)
    values.change({"a/1": b"1", "a/0": b"", "b": None, "unknown": None})
    assert values.items("a/") == [("a/0", b""), ("a/1", b"1")]
    assert (values.get("b"), values.get("a/1")) == (None, b"1")
    assert given == {"b": b"0"}


def test_a_change_beyond_a_bound_changes_nothing() -> None:
    values = StateValues()
    with pytest.raises(ValueError, match="key"):
        values.change({"a": b"1", "": b""})
    assert values.items("") == []
