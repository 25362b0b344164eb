"""The consumer groups of all logs, and their epochs on the disk. Spec: Event Streams 4.5.2."""

from amqp_streams.config import GroupSettings, Limits, LogSettings
from amqp_streams.node.groups import Groups
from amqp_streams.node.writes import Writes
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.groups.ownership import Assigned, Change, Claim, GroupLinkState
from amqp_streams.streams.redirects import NOWHERE
from amqp_streams.testing import MemoryStore
from tests.amqp_streams.node.bench import Bench, attach, member


class Node:
    """The parts of a node that groups need."""

    def __init__(self, store: MemoryStore) -> None:
        self.writes = Writes(store.states)
        self.changes: list[tuple[StoredLog, Change]] = []
        store.states.on_written = lambda number, failure: self.writes.ended(number, failure, 0)
        self.groups = Groups(
            store.states,
            self.writes,
            GroupSettings(),
            Limits(),
            lambda _log: NOWHERE,
            lambda log, change, _now: self.changes.append((log, change)),
        )

    def claim(self, log: StoredLog, epoch: int, group: str = "g") -> None:
        link, changes = self.groups.claim(log, Claim(group, 0, epoch, "m"), 0)
        self.groups.carry_out(log, changes, 0)
        self.link = link


def logs(store: MemoryStore) -> tuple[StoredLog, StoredLog]:
    one = store.create("one", LogSettings(partitions=2), incarnation="i1")
    return one, store.create("two", LogSettings(partitions=2), incarnation="i2")


def test_an_epoch_is_reported_when_it_is_on_the_disk_and_read_again_after_a_restart() -> None:
    store = MemoryStore()
    one, two = logs(store)
    node = Node(store)
    node.claim(one, 3)
    assert node.changes == []
    store.states.complete()
    assert node.changes == [(one, Assigned(node.link))]
    restarted = Node(store).groups
    assert (
        restarted.of(one).epoch("g", 0),
        restarted.of(one).epoch("g", 1),
        restarted.of(two).epoch("g", 0),
    ) == (3, 0, 0)


def test_a_group_that_is_removed_takes_its_epochs_along_and_no_others() -> None:
    store = MemoryStore()
    one, two = logs(store)
    node = Node(store)
    for log, group in ((one, "g"), (one, "h"), (two, "g")):
        node.claim(log, 3, group)
        store.states.complete()
        node.groups.release(log, node.link, 0)
    node.groups.remove(one, "g")
    node.groups.remove(one, "unheard of")
    node = Node(store)
    assert (
        node.groups.of(one).epoch("g", 0),
        node.groups.of(one).epoch("h", 0),
        node.groups.of(two).epoch("g", 0),
    ) == (0, 3, 3)


def test_nothing_more_is_reported_of_a_deleted_log() -> None:
    store = MemoryStore()
    one, two = logs(store)
    node = Node(store)
    node.claim(one, 3)
    node.groups.leave(one)
    node.groups.forget(one.incarnation)
    store.states.complete()
    node.groups.release(one, node.link, 0)
    node.groups.tick(10**6)
    assert node.changes == []
    assert node.link.state is GroupLinkState.RECORDING
    assert store.states.items("") == []
    assert node.groups.of(two).groups() == []


def test_the_groups_of_a_log_whose_deletion_crashed_are_removed_at_the_next_start() -> None:
    """The log's end is on the disk before that of its groups and cursors."""
    bench = Bench()
    bench.consume(member(partition=0, epoch=4, durable=True))
    bench.complete()
    kept = bench.node.create("other", LogSettings(partitions=1))
    there = member(partition=0, epoch=2).properties
    bench.consume(attach("other", consumer=True, durable=True, properties=there))
    bench.complete()
    bench.store.states.write({f"ending/{bench.log.incarnation}": b""})
    bench.store.delete("temps")
    bench.complete()
    bench.restart()
    bench.complete()
    assert {key.split("/")[1] for key, _ in bench.store.states.items("")} == {kept.incarnation}
    assert len(bench.store.states.durable) == 2
