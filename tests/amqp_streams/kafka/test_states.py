"""The states of a node on Kafka: the suite of stores tests them with Kafka, and this needs none."""

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.kafka.states import LocalStates
from amqp_streams.testing import ManualLoop


def test_writes_are_reported_later_and_in_order() -> None:
    loop, written = ManualLoop(), list[tuple[int, StorageError | None]]()
    states = LocalStates(loop.call)
    states.on_written = lambda number, failure: written.append((number, failure))
    assert [states.write({"a/1": b"1", "b": b"2"}), states.write({"b": None, "a/0": b""})] == [1, 2]
    assert written == []
    assert states.items("a/") == [("a/0", b""), ("a/1", b"1")]
    assert (states.get("b"), states.get("a/1")) == (None, b"1")
    loop.run_ready()
    assert written == [(1, None), (2, None)]


def test_a_write_beyond_the_bounds_changes_nothing() -> None:
    states = LocalStates(ManualLoop().call)
    with pytest.raises(ValueError, match="key"):
        states.write({"a": b"1", "": b""})
    assert states.get("a") is None
