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
