"""Cursors of wide logs are written in parts that are bounded by their positions, not only by their links."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.node import cursors
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
