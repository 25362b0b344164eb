"""A state topic that the tests of this folder share. Each test has a bucket of its own."""

import time
import uuid
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.kafka.brokers.administration import Administration, FoundTopic
from amqp_streams.kafka.brokers.consuming import CONSUMING
from amqp_streams.kafka.brokers.taking import is_end
from amqp_streams.kafka.sharing.producing import BucketProducer
from amqp_streams.kafka.sharing.state_topic import find_or_create
from bench.products.kafka_cluster import Cluster

_BUCKETS = count()


def connection(servers: str) -> dict[str, object]:
    return {"bootstrap.servers": servers, "log_level": 0}


def boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@pytest.fixture(scope="session")
def administration(kafka: Cluster) -> Administration:
    return Administration(connection(kafka.servers))


@pytest.fixture(scope="session")
def topic(administration: Administration) -> FoundTopic:
    """The state topic of nodes with a prefix that no other test has."""
    name = f"t{uuid.uuid4().hex[:12]}.state"
    return find_or_create(administration, name, BUCKETS, replicas=3, weak=False)


@pytest.fixture
def bucket() -> int:
    """A bucket of the shared topic that no other test uses."""
    number = next(_BUCKETS)
    assert number < BUCKETS, "make another topic for the tests of this folder"
    return number


class Producers:
    """The producers of a test, which are closed at its end."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers = servers
        self.topic = topic
        self._made: list[BucketProducer] = []

    def open(self, bucket: int) -> BucketProducer:
        """Another producer of a bucket, as another node would have it. It has not fenced."""
        made = BucketProducer(
            connection(self.servers),
            self.topic,
            bucket,
            transactional_id=f"{self.topic}.bucket.{bucket}",
            boot_ms=boot_ms,
        )
        self._made.append(made)
        return made

    def fenced(self, bucket: int) -> BucketProducer:
        """Another producer of a bucket, which has fenced those before it."""
        made = self.open(bucket)
        made.fence(60)
        return made

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture
def producers(kafka: Cluster, topic: FoundTopic) -> Iterator[Producers]:
    made = Producers(kafka.servers, topic.name)
    yield made
    made.close()


def committed(servers: str, topic: str, bucket: int) -> list[tuple[str, bytes | None]]:
    """All committed records of a bucket that Kafka has, in their order."""
    reader = Consumer({**CONSUMING, **connection(servers)})
    reader.assign([TopicPartition(topic, bucket, OFFSET_BEGINNING)])
    found = []
    while (message := reader.poll(60)) is not None:
        error = message.error()
        if error is not None and is_end(error):
            break
        if error is None:
            found.append(((message.key() or b"").decode(), message.value()))
    reader.close()
    return found
