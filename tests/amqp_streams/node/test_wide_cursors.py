"""Cursors of wide logs: what an attach, a write and an end of a link cost."""

from collections.abc import Collection

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.node import consumers, cursors
from amqp_streams.node.attaching import attaches
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.consuming.cursors import Cursors
from amqp_streams.streams.consuming.start import resumed_position, start_position
from amqp_streams.streams.consuming.tracker import Tracker
from tests.amqp_streams.node.bench import EARLIEST, NOW, Bench, attach


def test_few_links_with_many_partitions_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "_POSITIONS_A_FLUSH", 16)
    bench = Bench()
    bench.node.create("wide", LogSettings(partitions=8))
    consumers = [
        bench.consume(attach("wide", consumer=True, link=str(index), durable=True, filters=EARLIEST))
        for index in range(5)
    ]
    bench.store.logs["wide"].partitions[3].append([b"a"], b"\0", NOW)
    bench.store.commit()
    for consumer in consumers:
        bench.settle(consumer, *bench.read(consumer))
    parts = 1
    while bench.node.flush_cursors(NOW, 1000):
        parts += 1
    assert parts == 3


def test_an_attach_looks_once_at_each_partition_and_keeps_no_object_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, opened, kept = list[int](), list[int](), list[int]()
    start, opening, resumed = start_position, Cursors.attach, resumed_position

    def counted(filters: object, partition: Partition, **options: object) -> int:
        looked.append(partition.index)
        return start(filters, partition, **options)  # type: ignore[arg-type]  # what it was called with

    def counted_cursor(
        cursors: Cursors, key: object, user: object, partitions: Collection[Partition], begin: object
    ) -> object:
        opened.extend(partition.index for partition in partitions)
        return opening(cursors, key, user, partitions, begin)  # type: ignore[arg-type]  # as it was called

    def counted_again(filters: object, partition: Partition, *others: object) -> int:
        kept.append(partition.index)
        return resumed(filters, partition, *others)  # type: ignore[arg-type]  # what it was called with

    monkeypatch.setattr(consumers, "start_position", counted)
    monkeypatch.setattr(Cursors, "attach", counted_cursor)
    monkeypatch.setattr(attaches, "resumed_position", counted_again)
    bench = Bench()
    bench.node.create("wide", LogSettings(partitions=64))
    consumer = bench.consume(attach("wide", consumer=True, durable=True, filters=EARLIEST))
    assert looked == opened == kept == list(range(64))
    assert consumer.progress is not None
    assert consumer.progress.trackers == {}


def test_the_end_of_a_link_looks_only_at_the_partitions_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.node.create("wide", LogSettings(partitions=64))
    consumer = bench.consume(attach("wide", consumer=True, durable=True, filters=EARLIEST))
    bench.store.logs["wide"].partitions[7].append([b"a"], b"\0", NOW)
    bench.store.commit()
    bench.settle(consumer, *bench.read(consumer))
    progress = consumer.progress
    assert progress is not None
    looked = 0

    def counted(tracker: Tracker) -> int:
        nonlocal looked
        looked += 1
        return tracker.next

    monkeypatch.setattr(Tracker, "position", property(counted))
    bench.node.detach(consumer, bench.now_ms)
    assert looked == 1
    assert progress.cursor.positions[7] == 1
