"""Byte streams to a node with one interface: TCP, TLS, and WebSocket (sub-protocol `amqp`)."""

import asyncio
import logging
import ssl
from typing import Final, Protocol, cast

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.errors import ConnectError
from amqp_streams.client.options import TlsOptions
from amqp_streams.client.reasons import reason
from service_parts.certificate_files import load_certificate

READ_BYTES: Final = 256 << 10
WRITE_BYTES_MAX: Final = 1 << 20
"""Unsent bytes from which on `full` is true. Then nothing more should be written."""
# At level DEBUG this logger writes the bytes of each frame, including passwords. It therefore has its own
# name and level, and a program must enable it explicitly.
_FRAMES: Final = logging.getLogger("amqp_streams.client.websocket")
_FRAMES.setLevel(logging.WARNING)
_FRAMES_MAX: Final = 16 << 20
"""The largest WebSocket message in bytes. It may contain many AMQP frames, or a part of one."""
_ANSWER_BYTES_MAX: Final = 1 << 20
"""The most bytes of pongs while the peer does not read. A peer that sends pings without reading the answers
must not fill the client's memory; beyond this the client closes the connection.
"""
_DATA: Final = frozenset({Opcode.BINARY, Opcode.CONT})


class Listener(Protocol):
    """The receiver of a stream's bytes."""

    def received(self, data: memoryview) -> None:
        """Bytes arrived. The view is valid during this call only."""

    def writable(self) -> None:
        """Continue: the stream is not full any more."""

    def lost(self, error: Exception | None) -> None:
        """Process the end of the stream. Called once."""


class Stream(asyncio.BufferedProtocol):
    """A TCP or TLS stream."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._view = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self.full = False

    def write(self, data: bytes) -> None:
        """Send bytes. Buffers what the system does not accept yet. Ignored after `close`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Send what is buffered, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_MAX)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        """Return the read buffer.

        It is a memoryview because asyncio's TLS slices it, and slicing a bytearray copies.
        """
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the received bytes on."""
        self._take(self._view[:nbytes])

    def _take(self, data: memoryview) -> None:
        self._listener.received(data)

    def pause_writing(self) -> None:
        """Mark the stream as full: the peer does not read fast enough."""
        self.full = True

    def resume_writing(self) -> None:
        """Mark the stream as not full any more."""
        self.full = False
        self._listener.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the stream."""
        self._transport = None
        self._listener.lost(exc)


class WebSocketStream(Stream):
    """AMQP bytes inside WebSocket binary messages."""

    def __init__(self, listener: Listener, address: Address) -> None:
        super().__init__(listener)
        self._websocket = ClientProtocol(
            parse_uri(address.url), subprotocols=[Subprotocol("amqp")], max_size=_FRAMES_MAX, logger=_FRAMES
        )
        self._unread_answers = 0
        self.handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        """Send one binary message."""
        try:
            self._websocket.send_binary(data)
        except WebSocketException:
            return  # the WebSocket is closing: `lost` follows
        self._send()

    def close(self) -> None:
        """Send a WebSocket close frame, then close."""
        try:
            self._websocket.send_close(1000)
        except WebSocketException:
            self.abort()
            return
        self._send()
        super().close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request the upgrade to WebSocket."""
        super().connection_made(transport)
        self._websocket.send_request(self._websocket.connect())
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the stream, also to a handshake that is not complete."""
        if not self.handshake.done():
            self.handshake.set_exception(exc or ConnectionResetError("closed during the WebSocket handshake"))
        super().connection_lost(exc)

    def _take(self, data: memoryview) -> None:
        self._websocket.receive_data(bytes(data))
        for event in self._websocket.events_received():
            if isinstance(event, Frame):
                if event.opcode in _DATA:
                    self._listener.received(memoryview(event.data))
            elif not self.handshake.done():
                self._settle_handshake()
        # While the stream is full, everything that is written is an answer to the peer.
        self._unread_answers = self._unread_answers + self._send() if self.full else 0
        self._send()
        if self._unread_answers > _ANSWER_BYTES_MAX:
            self.abort()
        if self._websocket.close_expected() and self._transport is not None:
            self._transport.close()

    def _settle_handshake(self) -> None:
        error = self._websocket.handshake_exc
        if error is None and self._websocket.subprotocol != "amqp":
            error = ConnectError("the peer's WebSocket does not speak AMQP (sub-protocol amqp)")
        if error is None:
            self.handshake.set_result(None)
        else:
            self.handshake.set_exception(error)

    def _send(self) -> int:
        """Write the pending WebSocket frames. Returns their size in bytes."""
        size = 0
        for data in self._websocket.data_to_send():
            if data:
                super().write(data)
                size += len(data)
        return size


async def open_stream(address: Address, tls: TlsOptions | None, listener: Listener) -> Stream:
    """Connect to `address`.

    Raises:
        ConnectError with the address and the reason.
    """
    loop = asyncio.get_running_loop()
    stream = WebSocketStream(listener, address) if address.websocket else Stream(listener)
    try:
        context = _context(tls or TlsOptions()) if address.secure else None
        server_hostname = (
            address.hostname or (tls.server_hostname if tls is not None else None) or address.host
        )
        await loop.create_connection(
            lambda: stream,
            address.ip or address.host,
            address.port,
            ssl=context,
            server_hostname=server_hostname if context is not None else None,
        )
        if isinstance(stream, WebSocketStream):
            await stream.handshake
    # ValueError: the host name is not valid.
    except (OSError, ssl.SSLError, WebSocketException, ValueError) as error:
        stream.abort()
        message = f"{address}: {reason(error)}"
        raise ConnectError(message) from error
    except BaseException:
        stream.abort()
        raise
    return stream


def _context(tls: TlsOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=None if tls.ca_file is None else str(tls.ca_file))
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate_file is not None:
        load_certificate(context, tls.certificate_file, tls.key_file)
    return context
