"""Consumers of a partition whose durable records were lost."""

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.node.losses import require_left
from amqp_streams.storage.ports import Partition
from amqp_streams.streams.attach import Closed
from amqp_streams.wire.types import Symbol
from tests.amqp_streams.node.bench import EARLIEST, Bench, attach

BOUND = {names.PARTITION: Symbol("0")}


def test_only_links_behind_the_first_lost_record_are_closed() -> None:
    bench = Bench()
    bench.append(*[0] * 6)
    behind = bench.consume(attach(consumer=True, filters=EARLIEST, properties=BOUND))
    agnostic = bench.consume(attach(consumer=True, filters=EARLIEST))
    before = bench.consume(attach(consumer=True, filters=EARLIEST, properties=BOUND))
    other = bench.consume(attach(consumer=True, filters=EARLIEST, properties={names.PARTITION: Symbol("1")}))
    assert len(bench.read(behind)) == len(bench.read(agnostic)) == 6
    assert len(bench.read(before, 4)) == 4
    bench.node.truncated(bench.log.partitions[0], 4, 0)
    effects = bench.node.take_effects()
    closed = {effect.grant: effect.error for effect in effects if isinstance(effect, Closed)}
    assert closed.keys() == {behind, agnostic}
    for error in closed.values():
        assert error.condition == names.RESOURCE_DELETED
        assert "partition 0 of log 'temps' from offset 4 on were lost" in error.description
    assert set(bench.node.consumers()) == {before, other}
    # What is in the log now is read again, not what was in memory.
    assert bench.read(before) == [(0, 4), (0, 5)]


def test_a_position_of_lost_records_is_refused_and_no_other() -> None:
    bench = Bench()
    bench.append(0, 0)
    partition = bench.log.partitions[0]

    def gone(asked: Partition, position: int) -> str | None:
        assert asked is partition
        return "lost" if position < 9 else None

    # At the end and in front of it, nothing is missing.
    require_left([(partition, 0), (partition, 2), (partition, 9)], gone)
    with pytest.raises(PeerError, match="lost") as refused:
        require_left([(partition, 3)], gone)
    assert refused.value.condition == names.RESOURCE_DELETED
