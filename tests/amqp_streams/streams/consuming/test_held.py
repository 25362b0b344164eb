"""The memory of all readers together is bounded, and data that was taken from them is read again."""

from array import array

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.storage.ports import Chunk, StoredLog
from amqp_streams.streams.consuming.held import Held
from amqp_streams.streams.consuming.reader import Reader, Run
from amqp_streams.testing import MemoryStore

NOW = 1_700_000_000_000
MESSAGE = b"\x00\x53\x75\xb0\x00\x00\x03\xe8" + bytes(1000)


class Cursor:
    """Holds a chunk on request."""

    def __init__(self, held: Held) -> None:
        self.used = False
        self.forgotten = 0
        self._held = held

    def forget(self) -> None:
        self.forgotten += 1
        self._held.release(self)


def chunk(size: int) -> Chunk:
    return Chunk(0, array("q", [NOW]), b"\0", [bytes(size)])


def log_of(partitions: int, events: int) -> StoredLog:
    store = MemoryStore()
    log = store.create("temps", LogSettings(partitions=partitions), incarnation="x")
    for partition in log.partitions:
        if events:
            partition.append([MESSAGE] * events, bytes(events), NOW)
    store.commit()
    return log


def test_those_that_read_longest_ago_make_room() -> None:
    held = Held(11_000)
    first, second, third = cursors = [Cursor(held) for _ in range(3)]
    for cursor in cursors:
        held.hold(cursor, chunk(4000))
    assert [cursor.forgotten for cursor in cursors] == [1, 0, 0]
    held.hold(second, chunk(4000))
    held.hold(first, chunk(4000))
    assert third.forgotten == 1
    assert second.forgotten == 0
    assert held.bytes <= 11_000


def test_one_chunk_is_held_whatever_its_size() -> None:
    held = Held(1000)
    only = Cursor(held)
    held.hold(only, chunk(1 << 20))
    assert only.forgotten == 0
    held.release(only)
    assert held.bytes == 0


def test_memory_unused_since_the_last_check_is_freed() -> None:
    held = Held()
    used, idle = Cursor(held), Cursor(held)
    for cursor in (used, idle):
        held.hold(cursor, chunk(10))
    used.used = True
    held.age()
    assert (used.forgotten, idle.forgotten) == (0, 1)
    held.age()
    assert used.forgotten == 1
    assert held.bytes == 0


@pytest.mark.parametrize("bytes_max", [1, 50_000, 1 << 30])
def test_many_readers_of_many_partitions_read_everything_in_order_within_the_bound(bytes_max: int) -> None:
    log, held = log_of(8, 20), Held(bytes_max)
    readers = [Reader([(partition, 0) for partition in log.partitions], held=held) for _ in range(5)]
    got: list[list[tuple[int, int]]] = [[] for _ in readers]
    going = True
    while going:
        going = False
        for reader, positions in zip(readers, got, strict=True):
            run = reader.take(3)
            if isinstance(run, Run):
                going = True
                positions += [(run.partition.index, run.first + index) for index in range(run.count)]
            assert held.bytes <= max(bytes_max, 25_000)
    for positions in got:
        for index in range(8):
            assert [number for partition, number in positions if partition == index] == list(range(20))
    assert held.bytes == 0, "nothing is held of what was read to its end"


def test_a_reader_of_many_partitions_keeps_a_cursor_only_for_those_with_events() -> None:
    log = log_of(100, 0)
    reader = Reader([(partition, partition.end) for partition in log.partitions])
    assert len(reader._cursors) == 0
    log = log_of(100, 1)
    reader = Reader(
        [(partition, 0 if partition.index == 7 else partition.end) for partition in log.partitions]
    )
    assert isinstance(reader.take(10), Run)
    assert len(reader._cursors) == 1
    assert reader.take(10) is None
    assert len(reader._cursors) == 0
    assert reader.positions == dict.fromkeys(range(100), 1)
