"""[io] Kafka for tests: three real brokers where Java and `make kafka` are, and librdkafka's mock brokers.

The tests with real brokers share one cluster of a process (`tests/forks.py` runs their files as one unit), so
each uses topics with names of its own, and leaves all brokers running.
"""

from collections.abc import Iterator

import pytest

from bench.products import kafka_cluster
from bench.products.kafka_cluster import Cluster


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three Kafka brokers."""
    if why := kafka_cluster.why_not():
        pytest.skip(f"Kafka: {why}")
    cluster = kafka_cluster.made(tmp_path_factory.mktemp("kafka") / "cluster")
    try:
        for broker in cluster.brokers:
            broker.start(with_parent=True)
        cluster.await_ready()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def mock_kafka() -> Iterator[str]:
    """The address of librdkafka's mock brokers, which live in a client of this process and need no Java.

    They take records and transactions, and create each topic that a client names; they have no settings of
    topics, no retention and no topic ids.
    """
    from confluent_kafka import Producer  # noqa: PLC0415 - few tests need it

    owner = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=60.0).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.close()
