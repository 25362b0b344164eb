"""Both event loops a node can run on, certificates, listeners and their peers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from amqp_streams.config import Limits, Listener
from amqp_streams.server.listening.channel import ConnectionFactory
from amqp_streams.server.listening.listener import Listeners, listen
from tests.amqp_streams.server.peers import LOCAL, Authority, Connect, Echoes, Listen, Peer


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of a module with BOTH_LOOPS on the event loops of asyncio and uvloop."""
    if getattr(getattr(item, "module", None), "BOTH_LOOPS", False):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def echoes() -> Echoes:
    return Echoes()


@pytest.fixture
async def serve() -> AsyncIterator[Listen]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(factory: ConnectionFactory, *where: Listener, **settings: Any) -> Listeners:
            made = await listen(
                where or (LOCAL,), factory, **{"limits": Limits(), "linger_s": 1.0, **settings}
            )
            stack.push_async_callback(made.close)
            return made

        yield start


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    writers: list[asyncio.StreamWriter] = []

    async def start(listeners: Listeners, **settings: Any) -> Peer:
        address = listeners.addresses[settings.pop("index", 0)]
        reader, writer = await asyncio.open_connection(address.host, address.port, **settings)
        writers.append(writer)
        return reader, writer

    yield start
    for writer in writers:
        if (
            not writer.transport.is_closing()
        ):  # early releases of Python 3.11 cannot abort TLS that is closed already
            writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
