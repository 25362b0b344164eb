"""Nodes as their users run them: real processes, real sockets, a data directory each; all end with 0 and
without a traceback.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.node import NodeProcess
from tests.amqp_streams.server.peers import Authority

StartNode = Callable[..., NodeProcess]
Cli = Callable[..., str]

COMMAND_SECONDS_MAX = 120


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Starts nodes; `folder` names the data they use, the other arguments are NodeProcess' own."""
    nodes: list[NodeProcess] = []

    def start(*options: str, folder: str = "node", **more: Any) -> NodeProcess:
        node = NodeProcess(tmp_path / folder, *options, **more)
        nodes.append(node)
        return node.start()

    try:
        yield start
        for node in nodes:
            if node.process is not None and node.process.poll() is None:
                assert node.stop() == 0, node.words
            assert "Traceback" not in node.words, node.words
    finally:
        for node in nodes:
            node.__exit__()


@pytest.fixture
def cli() -> Cli:
    """Runs `amqp-streams` against a node and returns its stdout."""

    def run(
        node: NodeProcess, *arguments: str, given: str = "", status: int = 0, url: str | None = None
    ) -> str:
        program = str(Path(sys.executable).parent / "amqp-streams")
        environment = {**os.environ, "AMQP_STREAMS_URL": url or node.url}
        done = subprocess.run(
            [program, *arguments],
            input=given,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == status, (arguments, done.stderr, node.words)
        return done.stdout or done.stderr

    return run


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
