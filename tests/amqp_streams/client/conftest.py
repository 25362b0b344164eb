"""A node in memory to which clients connect without a network, and the real node in a separate process."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import pytest
import uvloop

from amqp_streams.client import RetryPolicy
from amqp_streams.client.connection import connector, transport
from amqp_streams.client.connection.stream import Listener, Stream
from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.endpoints.rotation import Choice
from amqp_streams.client.errors import ConnectError
from amqp_streams.client.options import TlsOptions
from tests.amqp_streams.client.peer import Node, Peer


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of a module with BOTH_LOOPS on the event loops of asyncio and uvloop."""
    if getattr(getattr(item, "module", None), "BOTH_LOOPS", False):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


AT_ONCE = RetryPolicy(first_ms=0, jitter=lambda: 0.0)
"""Retries without waiting."""


class MemoryStream:
    """A stream whose other end is a peer in this process. Bytes move in the next iteration of the event
    loop.
    """

    def __init__(self, listener: Listener, peer: Peer) -> None:
        self._listener = listener
        self.peer = peer
        self.full = False
        self.open = True

    def write(self, data: bytes) -> None:
        if self.open:
            asyncio.get_running_loop().call_soon(self._carry, data)

    def _carry(self, data: bytes) -> None:
        if self.open and not self.peer.node.mute:
            self.peer.receive(data)
            self.pump()

    def pump(self) -> None:
        """Deliver the bytes that the peer has written."""
        if self.open and (output := self.peer.take_output()):
            self._listener.received(memoryview(output))

    def close(self) -> None:
        if self.open:
            self.open = False
            asyncio.get_running_loop().call_soon(self._listener.lost, None)

    def abort(self) -> None:
        self.close()

    def cut(self) -> None:
        """The client has left, and data in flight is lost."""
        self.open = False
        self._listener.lost(None)


class MemoryNode(Node):
    """A node and its connections; `lose` breaks them as a pulled cable does."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[MemoryStream] = []
        self.unreachable = 0
        self.asked: list[Address] = []
        self.away: set[str] = set()
        """Hosts that refuse connections."""
        self.stores: dict[str, str] = {}
        """By host: the store that its node tells. Each such host is a container of its own."""
        self.containers: dict[str, str] = {}

    async def open_stream(self, address: Address, _tls: TlsOptions | None, listener: Listener) -> Stream:
        self.asked.append(address)
        if self.unreachable > 0:
            self.unreachable -= 1
            message = f"{address}: refused"
            raise ConnectError(message)
        if address.host in self.away:
            message = f"{address}: away"
            raise ConnectError(message)
        peer = Peer(self)
        if (store := self.stores.get(address.host)) is not None:
            peer.container, peer.store = self.containers.get(address.host, address.host), store
        stream = MemoryStream(listener, peer)
        self.streams.append(stream)
        return cast("Stream", stream)

    def replace_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lead all connections of clients to this node."""
        monkeypatch.setattr(transport, "open_stream", self.open_stream)
        monkeypatch.setattr(connector, "choices_of", self.choices_of)

    async def choices_of(self, addresses: Iterable[Address], _limit_s: float) -> list[Choice]:
        return list(map(Choice, addresses))

    @property
    def peer(self) -> Peer:
        """The latest connection's."""
        return self.streams[-1].peer

    def lose(self) -> None:
        """Break the latest connection."""
        self.streams[-1].cut()

    def work(self) -> None:
        """Let the latest peer act on the changes of the test."""
        self.peer.work()
        self.streams[-1].pump()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> MemoryNode:
    memory = MemoryNode()
    memory.replace_network(monkeypatch)
    return memory
