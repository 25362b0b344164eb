"""Both event loops a node can run on, and certificates."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.amqp_streams.server.peers import Authority, Echoes


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A module that says BOTH_LOOPS runs its tests on asyncio's loop and on uvloop's."""
    if getattr(getattr(item, "module", None), "BOTH_LOOPS", False):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def echoes() -> Echoes:
    return Echoes()
