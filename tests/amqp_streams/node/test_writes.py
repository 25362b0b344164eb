"""States on their way to the disk."""

import pytest

from amqp_streams.errors import StorageError
from amqp_streams.node.writes import Writes
from amqp_streams.testing.memory_states import MemoryStates


def test_a_waiting_caller_learns_once_how_its_own_write_ended() -> None:
    states = MemoryStates()
    writes, told = Writes(states), list[tuple[str, StorageError | None, int]]()
    writes.write({"a": b"1"}, lambda failure, now_ms: told.append(("a", failure, now_ms)))
    writes.write({"b": b"2"})
    writes.write({"c": b"3"}, lambda failure, now_ms: told.append(("c", failure, now_ms)))
    first, _, third = states.waiting
    error = StorageError("gone")
    writes.ended(third, error, 20)
    for _ in range(2):
        writes.ended(first, None, 10)
    assert told == [("c", error, 20), ("a", None, 10)]
    writes.ended(99, None, 10)


def test_a_cursor_that_cannot_be_stored_is_a_storage_failure_that_blocks_no_caller() -> None:
    writes = Writes(MemoryStates())
    with pytest.raises(StorageError, match="bytes"):
        writes.write({"k" * 5000: b""}, lambda _failure, _now_ms: pytest.fail("nothing was written"))
    writes.ended(1, None, 0)


def test_a_caller_can_wait_for_all_writes_so_far() -> None:
    states = MemoryStates()
    writes, called = Writes(states), list[str]()
    states.on_written = lambda number, failure: writes.ended(number, failure, 0)
    assert writes.settled().over, "nothing is in flight"
    writes.write({"a": b"1"}, lambda _failure, _now_ms: called.append("a"))
    wait = writes.settled()
    wait.then(lambda: called.append("settled"))
    assert (wait.over, states.written) == (False, 1), "no write is added"
    states.complete()
    assert (wait.over, wait.failure, called) == (True, None, ["a", "settled"])
    wait.then(lambda: called.append("at once"))
    assert called[-1] == "at once"


def test_after_a_failed_write_a_caller_waits_for_the_next_one() -> None:
    """A failed write is repeated with the next, so its changes are durable when the next one succeeds."""
    states = MemoryStates()
    writes = Writes(states)
    states.on_written = lambda number, failure: writes.ended(number, failure, 0)
    writes.write({"a": b"1"})
    failed = writes.settled()
    states.fail(StorageError("gone"))
    states.complete()
    assert str(failed.failure) == "gone"
    again = writes.settled()
    assert not again.over
    states.complete()
    assert (again.over, again.failure, states.durable) == (True, None, {"a": b"1"})
    assert writes.settled().over
