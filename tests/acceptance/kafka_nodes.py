"""Nodes that keep their logs in Kafka, for tests with several of them."""

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.products.kafka_cluster import Cluster
from bench.products.kafka_node import KafkaNode
from examples.node import NodeProcess

LOG = "temps"
PROGRAM = Path(sys.executable).with_name("amqp-streams")


@pytest.fixture
def start(kafka: Cluster, tmp_path: Path) -> Iterator[Callable[..., NodeProcess]]:
    """Starts nodes that share logs with no other test."""
    prefix, nodes = f"t{uuid.uuid4().hex[:12]}", list[NodeProcess]()

    def started(folder: str, *options: str) -> NodeProcess:
        where = ("--store", "kafka", "--kafka-servers", kafka.servers, "--kafka-prefix", prefix)
        node = KafkaNode(tmp_path / folder, *where, *options, log=f"{LOG}:2")
        nodes.append(node)
        return node.start()

    try:
        yield started
        for node in nodes:
            assert "Traceback" not in node.words, node.words
    finally:
        for node in nodes:
            node.__exit__()
