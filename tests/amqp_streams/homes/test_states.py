"""The states of a bucket: a write ends when its transaction is committed, in order."""

from amqp_streams.errors import StorageError
from amqp_streams.homes.states import BucketStates


def opened() -> tuple[BucketStates, list[int]]:
    states, ended = BucketStates({"old": b"1"}), []

    def written(number: int, failure: StorageError | None) -> None:
        assert failure is None
        ended.append(number)

    states.on_written = written
    return states, ended


def test_a_write_is_visible_at_once_and_ends_with_its_transaction() -> None:
    states, ended = opened()
    assert states.write({"a": b"1"}) == 1
    assert states.write({"a": b"2", "old": None}) == 2
    assert states.get("a") == b"2"
    assert states.get("old") is None
    assert states.take() == {"a": b"2", "old": None}
    states.write({"b": b"3"})
    assert not ended
    states.committed()
    assert ended == [1, 2]
    assert states.unwritten
    assert states.take() == {"b": b"3"}


def test_after_an_abort_the_next_transaction_has_the_changes_unless_later_ones_replaced_them() -> None:
    states, ended = opened()
    states.write({"a": b"1", "b": b"1"})
    taken = states.take()
    states.write({"a": b"2"})
    states.put_back(taken)
    assert states.unwritten
    assert states.take() == {"a": b"2", "b": b"1"}
    states.committed()
    assert ended == [1, 2]


def test_a_write_within_the_end_of_another_waits_for_the_next_transaction() -> None:
    states, _ = opened()

    def written(_number: int, _failure: StorageError | None) -> None:
        states.write({"again": b"1"})

    states.on_written = written
    states.write({"a": b"1"})
    states.take()
    states.committed()
    assert states.unwritten
