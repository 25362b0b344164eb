"""The HTTP side of the server: health, readiness, metrics, and AMQP over WebSocket, on one listener.

Law: it answers from the start (a node that recovers is alive and not ready) until the end. No request of an
untrusted client ends it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, cast

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from amqp_streams.config import Limits, Listener
from amqp_streams.server.limits.logins import network_of
from amqp_streams.server.listening.channel import ConnectionFactory
from amqp_streams.server.listening.listener import LINGER_S
from amqp_streams.server.listening.sockets import Acceptor, Admission, BoundAddress, Seldom, bind
from amqp_streams.server.listening.tls import TlsContext
from amqp_streams.server.listening.websocket import SUBPROTOCOLS, WebSocketChannel, chosen_subprotocol, refuse
from amqp_streams.server.observing.metrics import CONTENT_TYPE, Metrics

# HTTP connections beside the AMQP connections that WebSockets are: probes and scrapers must get through when
# those are all taken.
HTTP_CONNECTIONS_MAX: Final = 256
# How long a stranger may take for its request, and how long its connection may last if it does not become a
# WebSocket.
REQUEST_S: Final = 10.0
ANSWER_S: Final = 30.0
# One WebSocket message from a peer; two of the largest AMQP frames fit.
MESSAGE_BYTES_MIN: Final = 1 << 20
# Pings and empty frames that a peer may send in a second.
EMPTY_FRAMES_MAX: Final = 1000
# Parsed at once: all frames in it are, and the smallest have 6 bytes.
PARSED_BYTES: Final = 16 << 10
# What may wait to be sent when a ping is answered. Beyond the WebSocket's own queue at most one message and a
# little more waits.
PONG_BYTES_MAX: Final = 256 << 10
WEBSOCKET_PATHS: Final = ("/", "/amqp", "/$servicebus/websocket")

_TRANSPORT: Final = "transport"

log = structlog.get_logger("amqp_streams.server")


class Phase(StrEnum):
    """The state of the server. Each is the word that `/readyz` returns."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


class AdminServer:
    """The admin listener. Made by `serve_admin`; the owner moves `phase`, and sets `factory` before it is
    READY.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        limits: Limits,
        admission: Admission,
        linger_s: float,
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        self.phase = Phase.STARTING
        self.factory: ConnectionFactory | None = None
        self.metrics: Final = metrics
        self.channels: Final[set[WebSocketChannel]] = set()
        self._admission: Final = admission
        self._limits: Final = limits
        self._linger_s: Final = linger_s
        self._crowded: Final = Seldom("http_limit_reached")
        self._acceptors: Final[list[Acceptor]] = []
        self._guests: dict[asyncio.BaseProtocol, str] = {}
        """HTTP connections by their addresses, the oldest first; those that ended are taken out when there
        are many.
        """
        self._state: Final = ServerState()
        self._config: Final = uvicorn.Config(
            _one_request(self._app()),
            http=_Http,
            ws=_WebSocket,
            ws_max_size=max(MESSAGE_BYTES_MIN, 2 * limits.frame_bytes),
            ws_ping_interval=None,  # a paused reader sees no pong; AMQP has heartbeats of its own
            ws_per_message_deflate=False,  # a stranger's bytes stay their size; AMQP has nothing to gain
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(
                trusted_proxies
            ),  # said here so that no environment variable says otherwise
        )
        self._config.load()

    @property
    def addresses(self) -> tuple[BoundAddress, ...]:
        """The bound address."""
        return tuple(acceptor.address for acceptor in self._acceptors)

    async def open(self, listener: Listener, tls: TlsContext | None) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be bound.
        """
        assert not listener.tls or tls is not None, "NodeSettings has no TLS listener without a certificate"
        for sock in await bind(listener):
            acceptor = Acceptor(
                sock,
                self._http,
                enter=self._enter,
                leave=self._forget,
                tls=tls.current if listener.tls and tls else None,
                handshake_s=self._limits.unauthenticated_ms / 1000,
            )
            self._acceptors.append(acceptor)
            log.info("admin_listening", address=str(acceptor.address), tls=listener.tls)

    async def close(self, drain_s: float = 0.0) -> None:
        """Stop accepting, close idle connections, wait up to `drain_s` for requests and WebSockets, then cut
        the others.
        """
        self.phase = Phase.STOPPING
        for acceptor in self._acceptors:
            acceptor.stop()
        for channel in list(self.channels):
            channel.close()
        for connection in list(self._state.connections):
            if isinstance(connection, _Http):
                connection.shutdown()
        if self._state.tasks and drain_s > 0:
            await asyncio.wait(self._state.tasks, timeout=drain_s)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for channel in list(self.channels):
            channel.abort()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks)
        while self._state.connections:  # noqa: ASYNC110  (the transports tell their protocols in the next turns; nothing tells us)
            await asyncio.sleep(0)

    def _http(self) -> asyncio.BaseProtocol:
        return self._config.http_protocol_class(config=self._config, server_state=self._state, app_state={})  # type: ignore[call-arg]  # uvicorn's own protocols take these

    def _enter(self, protocol: asyncio.BaseProtocol, peer: str) -> bool:
        """Accept every connection.

        If there are too many, close the oldest one of the address with the most, so that probes get through.
        """
        if len(self._guests) >= HTTP_CONNECTIONS_MAX:
            self._guests = {guest: host for guest, host in self._guests.items() if self._is_here(guest)}
        if len(self._guests) >= HTTP_CONNECTIONS_MAX:
            crowd, _ = Counter(self._guests.values()).most_common(1)[0]
            oldest = next(guest for guest, host in self._guests.items() if host == crowd)
            del self._guests[oldest]
            self._send_away(oldest)
            self._crowded.warning(address=crowd, limit=HTTP_CONNECTIONS_MAX)
        self._guests[protocol] = network_of(peer)
        return True

    def _forget(self, guest: asyncio.BaseProtocol) -> None:
        self._guests.pop(guest, None)

    def _is_here(self, guest: asyncio.BaseProtocol) -> bool:
        return guest in self._state.connections or any(
            guest in acceptor.opening for acceptor in self._acceptors
        )

    def _send_away(self, guest: asyncio.BaseProtocol) -> None:
        for acceptor in self._acceptors:
            acceptor.give_up(guest)
        if isinstance(guest, _Http) and guest in self._state.connections:
            guest.transport.abort()

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
                *(WebSocketRoute(path, self._websocket) for path in WEBSOCKET_PATHS),
                WebSocketRoute("/{path:path}", self._no_websocket),
            ],
            exception_handlers={HTTPException: _in_words},  # type: ignore[dict-item]  # Starlette calls it with this exception only
        )

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def _readyz(self, _request: Request) -> Response:
        if self.phase is not Phase.READY:
            return PlainTextResponse(f"{self.phase}\n", status_code=503)
        source = self.metrics.source
        reason = None if source is None else source.not_ready()
        if reason is not None:
            return PlainTextResponse(f"not ready: {reason}\n", status_code=503)
        return PlainTextResponse("ready\n")

    async def _metrics(self, _request: Request) -> Response:
        return Response(await self.metrics.shared_text(), media_type=CONTENT_TYPE)

    async def _websocket(self, socket: WebSocket) -> None:
        subprotocol = chosen_subprotocol(socket.scope["subprotocols"])
        if subprotocol is None:
            await refuse(
                socket,
                400,
                "this address serves AMQP over WebSocket: offer the sub-protocol"
                f" {' or '.join(SUBPROTOCOLS)}",
            )
        elif self.phase is not Phase.READY or self.factory is None:
            await refuse(socket, 503, str(self.phase))
        else:
            await self._serve(socket, self.factory, subprotocol)

    async def _serve(self, socket: WebSocket, factory: ConnectionFactory, subprotocol: str) -> None:
        channel = WebSocketChannel(socket, socket.scope["state"][_TRANSPORT](), linger_s=self._linger_s)
        if not self._admission.enter(channel, peer=channel.peer, send_away=channel.abort):
            await refuse(socket, 503, "too many connections")
            return
        self.channels.add(channel)
        try:
            await channel.run(factory, subprotocol)
        finally:
            self.channels.discard(channel)
            self._admission.leave(channel)

    async def _no_websocket(self, socket: WebSocket) -> None:
        await refuse(
            socket, 404, f"{socket.url.path} is not a WebSocket path: AMQP is at {', '.join(WEBSOCKET_PATHS)}"
        )


async def serve_admin(
    listener: Listener,
    metrics: Metrics,
    *,
    limits: Limits,
    tls: TlsContext | None = None,
    admission: Admission | None = None,
    linger_s: float = LINGER_S,
    trusted_proxies: Sequence[str] = (),
) -> AdminServer:
    """Start the admin server, STARTING. `admission` is the AMQP listeners', so that WebSockets count among
    the connections.

    `trusted_proxies`: addresses and networks of proxies whose forwarding headers are trusted.

    Raises:
        ConfigError: the address cannot be bound.
    """
    server = AdminServer(
        metrics,
        limits=limits,
        admission=Admission(limits.connections) if admission is None else admission,
        linger_s=linger_s,
        trusted_proxies=trusted_proxies,
    )
    await server.open(listener, tls)
    return server


async def _in_words(request: Request, error: HTTPException) -> Response:
    words = (
        f"{request.url.path} does not exist: use /healthz, /readyz or /metrics"
        if error.status_code == 404
        else error.detail
    )
    return PlainTextResponse(words + "\n", status_code=error.status_code, headers=error.headers)


def _one_request(app: ASGIApp) -> ASGIApp:
    """Answer one request on each connection: an idle one would take the place of a probe."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await app(scope, receive, closing if scope["type"] == "http" else send)

    return answer


class _Http(H11Protocol):
    """uvicorn's HTTP/1.1 with a bound on the time to the request, and on that to the end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # asyncio's signature; it is a Transport
        self._timer = self.loop.call_later(REQUEST_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._timer.cancel()
        super().handle_websocket_upgrade(event)

    def _give_up(self) -> None:
        if cast("object | None", self.cycle) is None:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(max(0.0, ANSWER_S - REQUEST_S), self.transport.abort)


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket that lets the application see its transport: how much waits in it, whose
    certificate it has, to cut it off.

    Frames that carry nothing cost more than they are: pongs that the peer does not read, and empty messages,
    end the connection.
    """

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], **more: Any
    ) -> None:
        super().__init__(config, server_state, {**app_state, _TRANSPORT: lambda: self.transport}, **more)
        self._empty = 0
        self._second_ends = 0.0

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), PARSED_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[at : at + PARSED_BYTES])

    def handle_ping(self) -> None:
        self._count_empty()
        if self.transport.get_write_buffer_size() > PONG_BYTES_MAX:
            self.transport.abort()
        if self.transport.is_closing():
            self.conn.data_to_send()  # dropped
        else:
            super().handle_ping()

    def handle_bytes(self, event: Frame) -> None:
        if event.data:
            super().handle_bytes(event)
            return
        self._count_empty()
        if not event.fin:
            super().handle_bytes(event)  # what follows belongs to it

    def handle_cont(self, event: Frame) -> None:
        if not event.data:
            self._count_empty()
        if event.data or event.fin:
            super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        # The application refuses every text message. uvicorn would decode this one first, and log a traceback
        # if it is not UTF-8.
        if self.curr_msg_data_type == "text":
            self.frames = [b""]
        super().send_receive_event_to_app()

    def _count_empty(self) -> None:
        now = self.loop.time()
        if now >= self._second_ends:
            self._empty, self._second_ends = 0, now + 1
        self._empty += 1
        if self._empty > EMPTY_FRAMES_MAX:
            self.transport.abort()
