import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from amqp_streams.config import Limits, Listener
from amqp_streams.server.listening.admin import AdminServer, Phase, serve_admin
from amqp_streams.server.listening.channel import ByteChannel, Connection
from amqp_streams.server.observing.metrics import Metrics
from tests.amqp_streams.server.listening.dialing import LOCAL, Open, Start


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def serve(
            factory: Callable[[ByteChannel], Connection], listener: Listener = LOCAL, **settings: Any
        ) -> AdminServer:
            server = await serve_admin(
                listener, Metrics(), **{"limits": Limits(), "linger_s": 1.0, **settings}
            )
            stack.push_async_callback(server.close)
            server.factory, server.phase = factory, Phase.READY
            return server

        yield serve


@pytest.fixture
async def dial() -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            server: AdminServer, path: str = "/", *names: str, scheme: str = "ws", **settings: Any
        ) -> ClientConnection:
            protocols = [Subprotocol(name) for name in names or ("amqp",)]
            url = f"{scheme}://{server.addresses[0]}{path}"
            client = await connect(url, subprotocols=protocols, proxy=None, compression=None, **settings)
            stack.callback(client.transport.abort)
            return client

        yield start
