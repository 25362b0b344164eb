"""A node in memory with one partitioned log, and a client of Proton's."""

import pytest

from amqp_streams.testing_amqp import EnginePair, InMemoryNode


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode({"temps": 4, "single": 1})


@pytest.fixture
def client(node: InMemoryNode) -> EnginePair:
    return EnginePair(node)
