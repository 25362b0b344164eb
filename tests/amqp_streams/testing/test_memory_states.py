"""Writes of states that end when the test requests it."""

from amqp_streams.errors import StorageError
from amqp_streams.testing import ManualLoop, MemoryStates, MemoryStore
from amqp_streams.testing_amqp import InMemoryNode

Told = list[tuple[int, str | None]]


def listen(states: MemoryStates) -> Told:
    told: Told = []
    states.on_written = lambda number, failure: told.append((number, str(failure) if failure else None))
    return told


def test_without_a_loop_writes_wait_for_the_test() -> None:
    states = MemoryStates()
    told = listen(states)
    assert (states.write({"a": b"1"}), states.write({"a": b"2"})) == (1, 2)
    assert (told, states.waiting, states.get("a"), states.durable) == ([], (1, 2), b"2", {})
    states.complete()
    assert (told, states.waiting, states.durable) == ([(1, None), (2, None)], (), {"a": b"2"})


def test_with_a_loop_they_end_in_its_next_turn_unless_they_are_held() -> None:
    states, loop = MemoryStates(), ManualLoop()
    told = listen(states)
    states.defer = loop.call
    states.write({"a": b"1"})
    assert told == []
    loop.run_ready()
    assert told == [(1, None)]
    states.held = True
    states.write({"a": b"2"})
    assert loop.run_ready() == 0
    states.complete()
    assert told == [(1, None), (2, None)]


def test_a_failed_write_is_visible_and_repeated_with_the_next() -> None:
    states = MemoryStates()
    told = listen(states)
    states.fail(StorageError("the disk is gone"))
    states.write({"a": b"1"})
    states.complete()
    assert (told, states.get("a"), states.durable) == ([(1, "the disk is gone")], b"1", {})
    states.write({"b": b"2"})
    states.complete()
    assert (told[1:], states.durable) == ([(2, None)], {"a": b"1", "b": b"2"})


def test_survivors_have_what_was_durable_and_nothing_else() -> None:
    states = MemoryStates()
    states.write({"a": b"1"})
    states.complete()
    states.write({"a": b"2", "b": b"3"})
    assert states.survivors().items("") == [("a", b"1")]
    assert MemoryStore(states=states.survivors()).states.get("a") == b"1"


def test_a_node_in_memory_gets_the_results_of_its_writes_in_its_iterations() -> None:
    node = InMemoryNode()
    told = listen(node.store.states)
    node.store.states.write({"a": b"1"})
    assert told == []
    node.run()
    assert told == [(1, None)]
