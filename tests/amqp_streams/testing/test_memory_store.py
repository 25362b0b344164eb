"""The memory store ends commits on request, and loses data on request."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import StorageError
from amqp_streams.storage.ports import LATER, CommitDone, ReadRequest
from amqp_streams.storage.questions import Find, Refresh
from amqp_streams.testing import Lateness, ManualLoop, MemoryStore

NOW = 1_700_000_000_000


@pytest.mark.parametrize("separate", [False, True])
def test_a_reopened_store_has_what_was_visible_and_continues_after_it(*, separate: bool) -> None:
    store = MemoryStore(auto=False, separate=separate)
    partition = store.create("log", LogSettings(), incarnation="i").partitions[0]
    partition.append([b"a"], b"\0", NOW)
    store.commit()
    partition.queue.complete()  # type: ignore[attr-defined]  # of the memory store
    partition.append([b"lost"], b"\0", NOW)
    again, done = store.reopened(), list[CommitDone]()
    again.on_commit = done.append
    (partition,) = again.logs["log"].partitions
    assert (partition.end, again.pending_bytes) == (1, 0)
    assert partition.append([b"b"], b"\0", NOW) == 1
    again.commit()
    partition.queue.complete()  # type: ignore[attr-defined]  # of the memory store
    assert (partition.end, [one.events for one in done]) == (2, [1])


def test_nothing_is_visible_before_the_commit_ends() -> None:
    store, done = MemoryStore(auto=False), list[CommitDone]()
    store.on_commit = done.append
    partition = store.create("log", LogSettings(), incarnation="i").partitions[0]
    assert partition.append([b"a", b"b"], b"\0\0", NOW) == 0
    assert store.queue.sequence == 0
    store.commit()
    assert (store.queue.sequence, partition.end, partition.read(0, 100)) == (1, 0, None)
    store.complete()
    assert partition.end == 2
    assert [(one.sequence, one.events, one.bytes, dict(one.failures)) for one in done] == [(0, 2, 2, {})]


def test_a_failed_commit_fails_the_appends_after_it_and_then_offsets_continue_without_a_gap() -> None:
    store, done = MemoryStore(auto=False), list[CommitDone]()
    store.on_commit = done.append
    partition = store.create("log", LogSettings(), incarnation="i").partitions[0]
    partition.append([b"a"], b"\0", NOW)
    store.commit()
    partition.append([b"b"], b"\0", NOW)
    store.commit()
    store.fail(partition, StorageError("full"), stop=False)
    store.complete()
    store.complete()
    assert [list(one.failures) for one in done] == [[partition], [partition]]
    assert partition.append([b"c"], b"\0", NOW) == 0
    store.commit()
    store.complete()
    chunk = partition.read(0, 100)
    assert chunk is not None
    assert list(chunk.messages) == [b"c"]


def test_what_another_node_does_is_seen_when_the_store_is_asked() -> None:
    loop, request = ManualLoop(), ReadRequest("one", lambda: None)
    store = MemoryStore(late=Lateness(loop.call))
    log = store.create_elsewhere("log", LogSettings(), incarnation="i")
    store.append_elsewhere(log.partitions[0], [b"a", b"b"], NOW)
    assert not store.logs
    assert store.ask(Find("log"), request) is LATER
    loop.run_ready()
    assert store.ask(Find("log"), request) is log
    assert store.logs == {"log": log}
    (partition,) = log.partitions
    assert partition.end == 0
    assert store.ask(Refresh("log", (0,)), request) is LATER
    loop.run_ready()
    assert store.ask(Refresh("log", (0,)), request) is None
    chunk = partition.read(0, 100)
    assert chunk is not None
    assert list(chunk.messages) == [b"a", b"b"]
