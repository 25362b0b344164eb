"""A client connection with one producer and one consumer link, which does something only when a method is
called: a thousand fit in one process.

On Proton's engine objects and asyncio, without SASL: the node takes such a connection as anonymous.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import proton

READ_BYTES: Final = 64 * 1024


class IdlePeer(asyncio.Protocol):
    """One connection, two links at one address.

    The futures end with what the name says, or with a `ConnectionError`.
    """

    def __init__(self, name: str, address: str) -> None:
        """Prepare the opening frames; they go out when the socket is there."""
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.accepted: asyncio.Future[None] = loop.create_future()
        self.received: asyncio.Future[bytes] = loop.create_future()
        self._socket: asyncio.Transport | None = None
        self._collector = proton.Collector()
        self._transport = proton.Transport(proton.Transport.CLIENT)
        self._connection = proton.Connection()
        self._connection.container = name
        self._connection.collect(self._collector)
        self._transport.bind(self._connection)
        self._connection.open()
        session = self._connection.session()
        session.open()
        self._sender = session.sender(f"{name}-out")
        self._sender.target.address = address
        self._receiver = session.receiver(f"{name}-in")
        self._receiver.source.address = address
        self._sender.open()
        self._receiver.open()
        self._handlers: dict[Any, Callable[[Any], None]] = {
            proton.Event.LINK_REMOTE_OPEN: self._on_link_opened,
            proton.Event.LINK_REMOTE_CLOSE: self._on_refused,
            proton.Event.CONNECTION_REMOTE_CLOSE: self._on_refused,
            proton.Event.DELIVERY: self._on_delivery,
        }

    def send(self, message: bytes) -> None:
        """Send one encoded message; `accepted` gets the outcome."""
        self._sender.delivery("1")
        self._sender.stream(message)
        self._sender.advance()
        self._flush()

    def grant(self, credit: int) -> None:
        """Let the node deliver; `received` is the first message."""
        self._receiver.flow(credit)
        self._flush()

    def close(self) -> None:
        """End the connection in order."""
        self._connection.close()
        self._flush()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._turn()

    def data_received(self, data: bytes) -> None:
        """Bytes of the node."""
        while data:
            room = self._transport.capacity()
            if room <= 0:
                self._fail("the node broke the protocol")
                return
            self._transport.push(data[:room])
            data = data[room:]
            self._turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._fail(f"connection lost: {exc}")
        self._transport.unbind()
        self._handlers.clear()

    def _turn(self) -> None:
        while event := self._collector.peek():
            handler = self._handlers.get(event.type)
            if handler is not None:
                handler(event)
            self._collector.pop()
        self._flush()

    def _on_link_opened(self, _event: Any) -> None:
        active = proton.Endpoint.REMOTE_ACTIVE
        if self._sender.state & active and self._receiver.state & active and not self.opened.done():
            self.opened.set_result(None)

    def _on_refused(self, event: Any) -> None:
        endpoint = event.link or event.connection
        if not self._connection.state & proton.Endpoint.LOCAL_CLOSED:
            self._fail(f"closed by the node: {endpoint.remote_condition}")
        elif self._socket is not None:
            self._socket.close()

    def _on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link.is_sender:
            if (
                delivery.updated
                and delivery.remote_state == proton.Delivery.ACCEPTED
                and not self.accepted.done()
            ):
                self.accepted.set_result(None)
            elif delivery.updated:
                self._fail(f"not accepted: {delivery.remote_state}")
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            message = self._receiver.recv(delivery.pending)
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()
            if message is not None and not self.received.done():
                self.received.set_result(message)

    def _flush(self) -> None:
        while (pending := self._transport.pending()) > 0:
            data = self._transport.peek(pending)
            if self._socket is None or data is None:
                return
            self._socket.write(data)
            self._transport.pop(len(data))

    def _fail(self, reason: str) -> None:
        for future in (self.opened, self.accepted, self.received):
            if not future.done():
                future.set_exception(ConnectionError(reason))
                future.exception()  # marked as seen: often no caller waits for it
