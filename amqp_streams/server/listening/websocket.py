"""AMQP over WebSocket: a byte channel over binary messages (AMQP WebSocket Binding 1.0).

Law: the messages carry one byte stream in each direction; where a message begins and ends has no meaning.
Reading stops while the connection is paused, and writing waits for the client, as with TCP. `Connection.lost`
is called exactly once.
"""

import asyncio
import contextlib
from collections import deque
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import structlog
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from amqp_streams.server.listening.channel import (
    DRAINED_BELOW,
    DRAINED_WHEN_ABOVE,
    Connection,
    ConnectionFactory,
)
from service_parts.networks import format_address, is_loopback, is_this_machine

# The registered name (section 2.1), and the name that older clients of Azure use.
SUBPROTOCOLS: Final = ("amqp", "AMQPWSB10")
# How many bytes one sent message has at most. Clients refuse messages beyond their own limit, commonly 1 MiB.
SEND_BYTES: Final = 64 << 10

# Headers that proxies add to a request.
_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
# The close code for unsupported data (RFC 6455, 7.4.1).
_UNSUPPORTED_DATA: Final = 1003

log = structlog.get_logger("amqp_streams.server")


class Underneath(Protocol):
    """What the channel needs of the transport below the WebSocket."""

    def get_extra_info(self, name: str) -> Any:
        """See `asyncio.BaseTransport.get_extra_info`. `peercert` is used."""

    def abort(self) -> None:
        """Cut the connection."""


def chosen_subprotocol(offered: list[str]) -> str | None:
    """Return the sub-protocol to use, or None if none of the client's is known.

    The registered name is preferred.
    """
    return next((name for name in SUBPROTOCOLS if name in offered), None)


class WebSocketChannel:
    """The ByteChannel over one WebSocket. It lives as long as `run`."""

    def __init__(self, socket: WebSocket, underneath: Underneath, *, linger_s: float) -> None:
        host, port = (socket.client.host, socket.client.port) if socket.client else ("?", 0)
        self.peer: Final = format_address(host, port)
        self.protocol: Final = "websocket"
        # Only local programs count as loopback. A web page from anywhere may make a local browser connect to
        # this machine, and a local proxy forwards remote clients.
        forwarded = any(name in socket.headers for name in _FORWARDED)
        origin = socket.headers.get("origin")
        is_local = _is_local_origin(origin)
        self.loopback: Final = is_loopback(host) and is_local and not forwarded
        self.foreign: Final = not is_local and not _is_same_host(origin, socket.headers.get("host"))
        self.secure: Final = socket.url.scheme == "wss"
        self.certificate: Final[dict[str, Any] | None] = underneath.get_extra_info("peercert")
        self._socket: Final = socket
        self._underneath: Final = underneath
        self._linger_s: Final = linger_s
        self._linger: asyncio.TimerHandle | None = None
        self._connection: Connection | None = None
        self._queue: Final[deque[bytes]] = deque()
        self._head_at = 0  # how many bytes of the first element were sent
        self._queued = 0
        self._was_above = False
        self._closing = False
        self._aborted = False
        self._gone = False
        self._to_send: Final = asyncio.Event()
        self._reading: Final = asyncio.Event()
        self._reading.set()

    # -- ByteChannel: what the connection calls

    def write(self, data: bytes) -> None:
        """See ByteChannel."""
        if self._closing or not data:
            return
        self._queue.append(data)
        self._queued += len(data)
        self._was_above = self._was_above or self._queued > DRAINED_WHEN_ABOVE
        self._to_send.set()

    def pending(self) -> int:
        """See ByteChannel.

        Bytes that wait below the WebSocket (at most about 64 KiB and one message) are not counted.
        """
        return self._queued

    def pause_reading(self) -> None:
        """See ByteChannel. At most one message that has already arrived is kept back."""
        if not self._closing:
            self._reading.clear()

    def resume_reading(self) -> None:
        """See ByteChannel."""
        self._reading.set()

    def close(self) -> None:
        """See ByteChannel."""
        if self._closing:
            return
        self._closing = True
        # A receiver that is paused must run to drop what arrives, and to see the client's close.
        self._reading.set()
        self._to_send.set()
        self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._underneath.abort)

    def abort(self) -> None:
        """See ByteChannel."""
        self._closing = self._aborted = True
        self._reading.set()
        self._to_send.set()
        if not self._gone:
            self._underneath.abort()

    # -- its life

    async def run(self, factory: ConnectionFactory, subprotocol: str) -> None:
        """Accept the WebSocket, carry bytes until either side ends, and notify the connection.

        Returns when the channel has ended.
        """
        try:
            await self._socket.accept(subprotocol)
        except WebSocketDisconnect:
            # The client left during the handshake, so no connection began.
            return
        try:
            self._connection = factory(self)
        except Exception:
            log.exception("connection_not_made", peer=self.peer)
            self._underneath.abort()
            return
        try:
            await self._carry()
        finally:
            self._end()

    async def _carry(self) -> None:
        sending, receiving = asyncio.create_task(self._send()), asyncio.create_task(self._receive())
        try:
            # The sender ends when everything is sent after `close`, or when the client has gone. The receiver
            # ends when the client has closed.
            await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await self._goodbye()
        finally:
            for task in (sending, receiving):
                task.cancel()
            for result in await asyncio.gather(sending, receiving, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect):
                    log.error("connection_failed", peer=self.peer, exc_info=result)
                    self._underneath.abort()

    async def _receive(self) -> None:
        while not self._gone:
            await self._reading.wait()
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            # The connection may have been paused while the message was awaited.
            await self._reading.wait()
            if self._closing:
                continue  # read and dropped: a reset must not destroy what is still being sent
            data = message.get("bytes")
            if data is None:
                await self._socket.close(_UNSUPPORTED_DATA, "AMQP needs binary messages")
                return
            assert self._connection is not None
            self._connection.received(memoryview(data))

    async def _send(self) -> None:
        while True:
            while self._queue and not self._aborted:
                message = self._next()
                await self._socket.send_bytes(message)
                self._queued -= len(message)
                self._notify_drained()
            if self._closing:
                return
            self._to_send.clear()
            await self._to_send.wait()

    def _next(self) -> bytes:
        """Return the next bytes to send, at most SEND_BYTES."""
        taken: list[bytes] = []
        room = SEND_BYTES
        while self._queue and room:
            piece = self._queue[0][self._head_at : self._head_at + room]
            taken.append(piece)
            room -= len(piece)
            self._head_at += len(piece)
            if self._head_at == len(self._queue[0]):
                self._queue.popleft()
                self._head_at = 0
        return b"".join(taken)

    def _notify_drained(self) -> None:
        if self._was_above and self._queued <= DRAINED_BELOW and not self._closing:
            self._was_above = False
            assert self._connection is not None
            self._connection.drained()

    async def _goodbye(self) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            # The client may have gone or closed in the meantime.
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.close()

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        self._closing = self._gone = True
        self._queue.clear()
        self._queued = 0
        if self._linger is not None:
            self._linger.cancel()
        if connection is None:
            return
        try:
            connection.lost()
        except Exception:
            log.exception("connection_failed", peer=self.peer, during="lost")


async def refuse(socket: WebSocket, status: int, words: str) -> None:
    """Answer the opening handshake with an HTTP status and a text."""
    await socket.send_denial_response(PlainTextResponse(words + "\n", status_code=status))


def _is_local_origin(origin: str | None) -> bool:
    # Without this header the client is not a browser.
    return origin is None or is_this_machine(_host_of(origin) or "")


def _is_same_host(origin: str | None, host: str | None) -> bool:
    """Whether a page comes from the host that the browser connects to, on any port."""
    name = _host_of(origin)
    return name is not None and name == _host_of(f"//{host or ''}")


def _host_of(url: str | None) -> str | None:
    """The host of a URL; None: it has none."""
    try:
        return urlsplit(url or "").hostname
    except ValueError:
        return None  # not a URL
