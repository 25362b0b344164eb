"""Stores of nodes on one cluster, whose loop is the test."""

import uuid
from collections.abc import Iterator

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.store import KafkaStore
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.storage.ports import Partition
from amqp_streams.testing import ManualLoop
from bench.products.kafka_cluster import Cluster
from tests.amqp_streams.storage.conftest import Hand


def opened(cluster: Cluster, names: TopicNames) -> Hand:
    """A node's store, whose loop is the test."""
    loop = ManualLoop()
    connection = {"bootstrap.servers": cluster.servers, "log_level": 0}
    return Hand(KafkaStore(KafkaOptions(connection, names, readers=2), loop_call=loop.call), loop)


@pytest.fixture
def names() -> TopicNames:
    """Names of topics that no other test has."""
    return TopicNames(f"t{uuid.uuid4().hex[:12]}")


@pytest.fixture
def hand(kafka: Cluster, names: TopicNames) -> Iterator[Hand]:
    """A hand for a store without logs."""
    hand = opened(kafka, names)
    yield hand
    hand.store.close()


@pytest.fixture
def partition(hand: Hand) -> Partition:
    """The one partition of a new log."""
    return hand.store.create("log", LogSettings(), incarnation="i").partitions[0]


@pytest.fixture
def other(kafka: Cluster, names: TopicNames) -> Iterator[Hand]:
    """A hand for the store of another node with the same logs."""
    other = opened(kafka, names)
    yield other
    other.store.close()
