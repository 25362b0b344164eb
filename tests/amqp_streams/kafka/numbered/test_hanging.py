"""A transaction that hangs, on real brokers: its producer is used again, and ends it."""

from collections.abc import Callable

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.kafka.brokers.taking import Place
from amqp_streams.kafka.numbered.records import ProducerKey, ProducerRecord, encoded
from amqp_streams.storage.ports import Reached
from bench.products import kafka_cluster
from bench.products.kafka_cluster import Cluster
from tests import hanging
from tests.amqp_streams.kafka.numbered.test_numbers import Node, nodes, reached

__all__ = ["nodes"]
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(bool(kafka_cluster.why_not()), reason=kafka_cluster.why_not() or "Kafka runs here"),
]


def test_the_next_attach_ends_a_hanging_transaction_and_its_events_are_stored(
    kafka: Cluster, nodes: Callable[..., Node]
) -> None:
    node = nodes()
    stored = node.store.create("log", LogSettings(partitions=2), incarnation="i")
    view, _ = node.attach()
    node.send(view, 0)
    assert node.ended().failures == {}
    node.store.others.detached(view)
    names = node.store.options.names
    key, record = ProducerKey(stored.incarnation, "p"), ProducerRecord("killed", 0, {0: 1})
    with hanging.unverified(kafka):
        hanging.hang(
            kafka,
            key.transactional_id(names.prefix),
            {
                Place(names.of_log("log"), 0): (None, b"1"),
                Place(names.numbers, key.bucket): (key.state.encode(), encoded(record)),
            },
        )
    # Without this producer, nobody can read on.
    other = nodes()
    view, _ = other.attach()
    assert reached(view) == [Reached(1, 0), None]
    other.send(view, 2)
    assert other.ended().failures == {}
    assert other.read(3) == [b"0", b"1", b"2"]
