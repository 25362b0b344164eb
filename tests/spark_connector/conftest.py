"""One Spark session for all tests, and a node for each that wants one.

A file with a test that takes `spark: SparkSession` runs in the one worker that starts a JVM
(tests/conftest.py).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.node import NodeProcess
from tests.spark_connector import sessions

StartNode = Callable[..., NodeProcess]

SECONDS_MAX = 600


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session: local[2], times in UTC, one shuffle partition."""
    session = sessions.start(tmp_path_factory.mktemp("spark"))
    try:
        yield session
    finally:
        sessions.stop(session)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that all tests share: `url`, and logs that each test creates under its own name."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as running:
        yield running
        assert "Traceback" not in running.words, running.words


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Starts nodes of this test's own, which it may kill:

    `folder` names the data they use, the other arguments are NodeProcess' own.
    """
    nodes: list[NodeProcess] = []

    def start(*options: str, folder: str = "node", **more: Any) -> NodeProcess:
        nodes.append(NodeProcess(tmp_path / folder, *options, **more))
        return nodes[-1].start()

    try:
        yield start
    finally:
        for one in nodes:
            one.__exit__()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that is called off while it waits for the JVM leaves the session useless for all after it:
    rather wait longer.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))
