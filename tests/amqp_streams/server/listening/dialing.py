"""WebSocket clients and the node's listener for them."""

from collections.abc import Awaitable, Callable

from websockets.asyncio.client import ClientConnection

from amqp_streams.config import Listener
from amqp_streams.server.listening.admin import AdminServer

LOCAL = Listener(host="127.0.0.1", port=0)

Start = Callable[..., Awaitable[AdminServer]]
Open = Callable[..., Awaitable[ClientConnection]]


async def take(client: ClientConnection, size: int) -> bytes:
    """The next `size` bytes, however they are divided into messages."""
    got = bytearray()
    while len(got) < size:
        message = await client.recv()
        assert isinstance(message, bytes)
        got += message
    assert len(got) == size
    return bytes(got)
