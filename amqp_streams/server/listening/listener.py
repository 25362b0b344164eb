"""AMQP listeners for TCP and TLS, and the byte channels over their connections.

Law: `Connection.lost` is called exactly once for every connection, as the last call, however it ends. No
exception of a connection reaches the event loop. All channels of a process share one receive buffer: the loop
asks for it, fills it and passes it on within one call, also with TLS (asyncio and uvloop both decrypt into it
synchronously). An idle connection therefore holds no buffer.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import structlog

from amqp_streams.config import Limits, Listener
from amqp_streams.server.listening.channel import (
    DRAINED_BELOW,
    DRAINED_WHEN_ABOVE,
    Connection,
    ConnectionFactory,
)
from amqp_streams.server.listening.sockets import (
    Acceptor,
    Admission,
    BoundAddress,
    bind,
)
from amqp_streams.server.listening.tls import TlsContext
from service_parts.networks import format_address, is_loopback

RECEIVE_BYTES: Final = 256 << 10
# After close: how long a client may take to read what is buffered and to close its side, before it is cut
# off.
LINGER_S: Final = 5.0

log = structlog.get_logger("amqp_streams.server")


class Channel(asyncio.BufferedProtocol):
    """The ByteChannel over one TCP or TLS connection."""

    protocol = "amqp"
    foreign = False

    __slots__ = (
        "_buffer",
        "_closing",
        "_connection",
        "_linger",
        "_listeners",
        "_paused",
        "_transport",
        "certificate",
        "loopback",
        "peer",
        "secure",
    )

    def __init__(self, listeners: "Listeners", *, secure: bool) -> None:
        self.peer = "?"
        self.loopback = False
        self.secure = secure
        self.certificate: dict[str, Any] | None = None
        self._listeners = listeners
        self._buffer = listeners.buffer
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._paused = False
        self._closing = False
        self._linger: asyncio.TimerHandle | None = None

    # -- ByteChannel: what the connection calls

    def write(self, data: bytes) -> None:
        """See ByteChannel."""
        if not self._closing and (transport := self._alive()) is not None:
            transport.write(data)

    def pending(self) -> int:
        """See ByteChannel.

        With TLS, bytes that wait below the encryption (at most about 64 KiB and one write) are not counted.
        """
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """See ByteChannel."""
        if not self._paused and not self._closing and (transport := self._alive()) is not None:
            self._paused = True
            transport.pause_reading()

    def resume_reading(self) -> None:
        """See ByteChannel."""
        if self._paused and (transport := self._alive()) is not None:
            self._paused = False
            transport.resume_reading()

    def close(self) -> None:
        """See ByteChannel.

        Bytes that the client still sends are read and dropped: closing a socket with unread bytes sends a
        reset, which would destroy our last frames on the way.
        """
        if self._closing:
            return
        self.resume_reading()
        self._closing = True
        if (transport := self._alive()) is None:
            return
        self._linger_from_now()
        if transport.can_write_eof():
            transport.write_eof()
        else:
            # TLS: sends close_notify, waits for the client's, and drops what arrives in between
            transport.close()

    def abort(self) -> None:
        """See ByteChannel."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _alive(self) -> asyncio.Transport | None:
        # A transport that broke calls `connection_lost` in a later loop iteration. Until then each write to
        # it would log a warning.
        return None if self._transport is None or self._transport.is_closing() else self._transport

    # -- asyncio.BufferedProtocol: what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Create the connection with the factory."""
        # uvloop's transport has the methods of asyncio.Transport, but does not inherit from it.
        self._transport = transport = cast("asyncio.Transport", transport)
        if self._closing:  # aborted between accept and this call
            transport.abort()
            return
        transport.set_write_buffer_limits(high=DRAINED_WHEN_ABOVE, low=DRAINED_BELOW)
        # None if the client reset the connection before this line
        name = transport.get_extra_info("peername") or ("?", 0)
        self.peer, self.loopback = format_address(*name[:2]), is_loopback(name[0])
        self.certificate = transport.get_extra_info("peercert")
        try:
            self._connection = self._listeners.factory(self)
        except Exception:
            log.exception("connection_not_made", peer=self.peer)
            self.abort()
            return
        if self._paused:  # uvloop starts reading after this call, even if it was paused within it
            asyncio.get_running_loop().call_soon(self._pause_again)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Return the process's receive buffer."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the bytes to the connection, which consumes them before this returns."""
        if self._closing or self._connection is None:
            return
        try:
            self._connection.received(self._buffer[:nbytes])
        except Exception:
            log.exception("connection_failed", peer=self.peer, during="received")
            self.abort()

    def eof_received(self) -> None:
        """End after the client's last byte: send what is buffered, then close."""
        self._closing = True
        self._linger_from_now()

    def pause_writing(self) -> None:
        """Nothing to do: writers check `pending`."""

    def resume_writing(self) -> None:
        """Notify the connection that there is space."""
        if self._connection is None or self._closing:
            return
        try:
            self._connection.drained()
        except Exception:
            log.exception("connection_failed", peer=self.peer, during="drained")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """Notify the connection of its end, once."""
        connection, self._connection = self._connection, None
        self._transport = None
        self._closing = True
        if self._linger is not None:
            self._linger.cancel()
        self._listeners.forget(self)
        if connection is None:
            return
        try:
            connection.lost()
        except Exception:
            log.exception("connection_failed", peer=self.peer, during="lost")

    def _pause_again(self) -> None:
        if self._paused and (transport := self._alive()) is not None:
            transport.pause_reading()

    def _linger_from_now(self) -> None:
        if self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(self._listeners.linger_s, self.abort)


class Listeners:
    """All AMQP listeners of a node, and their channels. `listen` creates it."""

    def __init__(
        self,
        factory: ConnectionFactory,
        *,
        limits: Limits,
        admission: Admission,
        tls: TlsContext | None,
        linger_s: float,
    ) -> None:
        self.factory: Final = factory
        self.admission: Final = admission
        self.buffer: Final = memoryview(bytearray(RECEIVE_BYTES))
        self.linger_s: Final = linger_s
        self.channels: Final[dict[Channel, None]] = {}
        self._tls: Final = tls
        self._handshake_s: Final = limits.unauthenticated_ms / 1000
        self._acceptors: Final[list[Acceptor]] = []
        self._empty: Final = asyncio.Event()
        self._empty.set()

    @property
    def addresses(self) -> tuple[BoundAddress, ...]:
        """The bound addresses, in the order of the configuration."""
        return tuple(acceptor.address for acceptor in self._acceptors)

    async def open(self, listener: Listener) -> None:
        """Listen on one more address.

        Raises:
            ConfigError: the address cannot be bound.
        """
        assert not listener.tls or self._tls is not None, (
            "NodeSettings has no TLS listener without a certificate"
        )
        for sock in await bind(listener):
            acceptor = Acceptor(
                sock,
                lambda: Channel(self, secure=listener.tls),
                enter=self._enter,
                leave=self.forget,
                tls=self._tls.current if listener.tls and self._tls else None,
                handshake_s=self._handshake_s,
            )
            self._acceptors.append(acceptor)
            log.info("listening", address=str(acceptor.address), tls=listener.tls)

    def stop(self) -> None:
        """Stop accepting. Established connections stay. May be called twice."""
        for acceptor in self._acceptors:
            acceptor.stop()

    async def wait_closed(self, timeout_s: float) -> bool:
        """Wait until all channels have ended. Returns False after `timeout_s`. Call `stop` first."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            # The caller cuts what is left.
            return False
        return True

    async def close(self, drain_s: float = 0.0) -> None:
        """Stop accepting, and close every channel.

        Clients have up to `drain_s` to read what is buffered, then the remaining channels are cut.
        """
        self.stop()
        for channel in list(self.channels):
            channel.close()
        if drain_s <= 0 or not await self.wait_closed(drain_s):
            for channel in list(self.channels):
                channel.abort()
            await self._empty.wait()

    def forget(self, channel: asyncio.BaseProtocol) -> None:
        """Remove a closed channel, and free its share of the limit on connections."""
        assert isinstance(channel, Channel)
        self.admission.leave(channel)
        self.channels.pop(channel, None)
        if not self.channels:
            self._empty.set()

    def _send_away(self, channel: Channel) -> None:
        channel.abort()
        # Its TLS handshake may still be running: then only the acceptor can end it.
        for acceptor in self._acceptors:
            acceptor.give_up(channel)

    def _enter(self, channel: asyncio.BaseProtocol, peer: str) -> bool:
        assert isinstance(channel, Channel)
        if not self.admission.enter(channel, peer=peer, send_away=partial(self._send_away, channel)):
            return False
        self.channels[channel] = None
        self._empty.clear()
        return True


async def listen(
    listeners: Sequence[Listener],
    factory: ConnectionFactory,
    *,
    limits: Limits,
    tls: TlsContext | None = None,
    admission: Admission | None = None,
    linger_s: float = LINGER_S,
) -> Listeners:
    """Listen on every address of `listeners`. Each connection is passed to `factory`.

    `admission`: share it with other listeners (WebSocket) that have the same limit on connections.

    Raises:
        ConfigError: an address cannot be bound. In this case none is bound.
    """
    made = Listeners(
        factory,
        limits=limits,
        admission=Admission(limits.connections) if admission is None else admission,
        tls=tls,
        linger_s=linger_s,
    )
    try:
        for listener in listeners:
            await made.open(listener)
    except BaseException:
        made.stop()
        raise
    return made
