"""A node with one partitioned log, and a client of Proton's. On Kafka: tests/kafka_spec."""

from collections.abc import Iterator

import pytest

from amqp_streams.testing_amqp import EnginePair, InMemoryNode
from tests.stores import on_directory

LOGS = {"temps": 4, "single": 1}


@pytest.fixture(params=["memory", "directory"])
def node(request: pytest.FixtureRequest) -> Iterator[InMemoryNode]:
    if request.param == "memory":
        yield InMemoryNode(LOGS)
        return
    node = on_directory(LOGS)
    yield node
    node.store.close()


@pytest.fixture
def client(node: InMemoryNode) -> EnginePair:
    return EnginePair(node)
