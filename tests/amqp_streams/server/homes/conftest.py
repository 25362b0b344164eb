"""Nodes and strangers of the tests of this folder, over real sockets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.amqp_streams.server.homes.joined import Connect, Start, connecting, starting


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts nodes that know each other's secret."""
    async with starting(tmp_path) as made:
        yield made


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects strangers to nodes."""
    async with connecting() as made:
        yield made
