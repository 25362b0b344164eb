"""The tests of the specification (tests/spec), on nodes whose logs are in Kafka.

`EXCEPTIONS` has the tests that do not hold on Kafka, and why. They run as well: one that passes fails.
`make heavy` runs the tests in `SAMPLE`, and `make kafka-spec` all.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams.kafka.asking import KafkaOptions
from amqp_streams.kafka.topics import TopicNames
from amqp_streams.testing import ManualLoop
from amqp_streams.testing_amqp import EnginePair
from bench.products.kafka_cluster import Cluster
from tests.homed_node import WithHomes
from tests.kafka_spec.exceptions import EXCEPTIONS, HOMED, PLAIN_SAMPLE, RETENTION, SAMPLE
from tests.spec.conftest import LOGS
from tests.stores import StoreNode, WatchedStore

FOLDER = Path(__file__).parent


class HomedStoreNode(WithHomes, StoreNode):
    """Its groups and cursors have homes; their states are in memory."""


@pytest.fixture
def calls() -> ManualLoop:
    """What the store calls on the loop's thread."""
    return ManualLoop()


@pytest.fixture
def store(kafka: Cluster, calls: ManualLoop) -> Iterator[WatchedStore]:
    """A store whose topics no other test has."""
    options = KafkaOptions(
        {"bootstrap.servers": kafka.servers, "log_level": 0},
        TopicNames(f"t{uuid.uuid4().hex[:12]}"),
        readers=1,
    )
    store = WatchedStore(options, calls)
    yield store
    for name in tuple(store.logs):
        store.delete(name)
    store.close()


@pytest.fixture
def node(request: pytest.FixtureRequest, store: WatchedStore, calls: ManualLoop) -> StoreNode:
    """A node with new logs."""
    if request.node.name.partition("[")[0] not in HOMED:
        return StoreNode(LOGS, store=store, calls=calls, busy=lambda: store.busy)
    node = HomedStoreNode(LOGS, store=store, calls=calls, busy=lambda: store.busy)
    node.join()
    return node


@pytest.fixture
def client(node: StoreNode) -> EnginePair:
    """See tests/spec."""
    return EnginePair(node)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that do not hold on Kafka, and those that `make heavy` leaves out."""
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        name = item.name.partition("[")[0]
        reason = EXCEPTIONS.get(item.name) or EXCEPTIONS.get(name)
        if reason is not None:
            # Whether Kafka has removed the events when the test looks depends on the speed of the machine.
            item.add_marker(pytest.mark.xfail(strict=True, run=reason != RETENTION, reason=reason))
        if name not in SAMPLE | PLAIN_SAMPLE and {"node", "hand"} & set(item.fixturenames):  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.slow)
