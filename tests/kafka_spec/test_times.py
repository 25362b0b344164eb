"""Readers that begin at a time, on Kafka: they are exact where times fall, and read nothing before it."""

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.testing import ManualLoop
from amqp_streams.testing_amqp import EnginePair, filter_of
from bench.products.kafka_cluster import Cluster
from tests.spec.test_filtex import sql
from tests.stores import StoreNode, WatchedStore

FALLING = (500, 300, 700, 700, 200, 600, 900, 100, 800)
"""Times of producers, as after a change to a leader with a slower clock."""


@pytest.fixture
def falling(kafka: Cluster) -> Iterator[StoreNode]:
    """A node with a topic of other programs, `falling-…`, whose events have the times `FALLING`."""
    connection: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.servers, "log_level": 0}
    topic, calls = f"falling-{uuid.uuid4().hex[:12]}", ManualLoop()
    admin = AdminClient(connection)
    kept = {"retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, 1, 3, config=kept)])[topic].result(60)
    producer = Producer(connection)
    for number, time_ms in enumerate(FALLING):
        producer.produce(topic, b"%d" % number, timestamp=time_ms)
    assert producer.flush(60) == 0
    names = TopicNames(f"t{uuid.uuid4().hex[:12]}", frozenset({topic}))
    store = WatchedStore(KafkaOptions(connection, names, readers=1), calls)
    yield StoreNode(store=store, calls=calls, busy=lambda: store.busy)
    store.close()
    admin.delete_topics([topic])[topic].result(60)


def test_a_time_matches_exactly_the_later_events_though_times_fall(falling: StoreNode) -> None:
    (topic,) = falling.store.logs
    partition = falling.store.logs[topic].partitions[0]
    client = EnginePair(falling)
    for after_ms in (0, 99, *sorted({*FALLING, *(each - 1 for each in FALLING)}), 901):
        later = [number for number, time_ms in enumerate(FALLING) if time_ms > after_ms]
        assert partition.seek_timestamp(after_ms) == (later[0] if later else len(FALLING))
        for filters in (filter_of(None, after_ms), sql(f"d.event-streams-timestamp > {after_ms}")):
            receiver = client.receiver(topic, credit=100, filters=filters)
            assert receiver.bodies == [b"%d" % number for number in later]
            client.detach(receiver)


def test_a_reader_that_begins_near_the_end_reads_nothing_before_it(
    node: StoreNode, store: WatchedStore, client: EnginePair
) -> None:
    for _ in range(20):
        node.append("single", *[b"x" * 100] * 1000)
    chunk = node.store.logs["single"].partitions[0].read(19_999, 1)
    assert chunk is not None
    before_ms = chunk.timestamps[0]
    time.sleep(0.005)
    node.append("single", b"y", b"z")
    for filters in (
        filter_of(None, before_ms),
        sql(f"d.event-streams-timestamp > {before_ms} AND a IS NULL"),
    ):
        store.positions.clear()
        assert client.receiver("single", credit=10, filters=filters).bodies == [b"y", b"z"]
        assert min(store.positions) == 20_000
