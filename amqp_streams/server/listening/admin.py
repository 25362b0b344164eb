"""The admin listener: health, readiness, metrics, and AMQP over WebSocket, over HTTP/1.1.

Law: it answers from the start (a node during recovery is alive and not ready) until the end. No request of an
unauthenticated client ends it.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Protocol, cast

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from amqp_streams.config import Limits, Listener
from amqp_streams.server.limits.logins import peer_network
from amqp_streams.server.listening.channel import ConnectionFactory
from amqp_streams.server.listening.listener import LINGER_S
from amqp_streams.server.listening.sockets import Acceptor, Admission, BoundAddress, Seldom, bind
from amqp_streams.server.listening.tls import TlsContext
from amqp_streams.server.listening.websocket import SUBPROTOCOLS, WebSocketChannel, chosen_subprotocol, refuse
from amqp_streams.server.listening.websocket_frames import FRAMES, TRANSPORT, FrameTurns, WebSocketFrames
from amqp_streams.server.observing.metrics import CONTENT_TYPE, Metrics

# HTTP connections in addition to the AMQP connections over WebSocket: probes and scrapers must be served when
# the limit on connections is reached.
HTTP_CONNECTIONS_MAX: Final = 256
# How long a client may take to send its request, and how long its connection may last if it does not become a
# WebSocket. Without these limits, idle clients could occupy all HTTP connections.
REQUEST_S: Final = 10.0
ANSWER_S: Final = 30.0
# The smallest limit for one WebSocket message from a client. The limit is at least two AMQP frames.
MESSAGE_BYTES_MIN: Final = 1 << 20
# The SDKs of Azure Event Hubs and Service Bus connect to one of the last two paths by default: .NET, Python
# and Rust with a slash at the end; Java, JavaScript and Go without one.
WEBSOCKET_PATHS: Final = ("/", "/amqp", "/$servicebus/websocket", "/$servicebus/websocket/")

log = structlog.get_logger("amqp_streams.server")


class Phase(StrEnum):
    """The state of the server. `/readyz` answers with the value."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


class WebConsole(Protocol):
    """The console of the node."""

    def location(self, host: str) -> str:
        """Return the URL for a browser that reached the node as `host`."""


class AdminServer:
    """The admin listener.

    `serve_admin` creates it. The owner sets `phase`, and sets `factory` before READY.
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
        self.console: WebConsole | None = None
        self.metrics: Final = metrics
        self.channels: Final[set[WebSocketChannel]] = set()
        self._admission: Final = admission
        self._limits: Final = limits
        self._linger_s: Final = linger_s
        self._limit_line: Final = Seldom("http_limit_reached")
        self._acceptors: Final[list[Acceptor]] = []
        self._guests: dict[asyncio.BaseProtocol, str] = {}
        """The network of each HTTP connection, oldest connection first. Ended connections are removed only
        when the limit is reached.
        """
        self._state: Final = ServerState()
        self._app_state: Final = {FRAMES: FrameTurns(lambda call: asyncio.get_running_loop().call_soon(call))}
        self._config: Final = uvicorn.Config(
            _one_request(self._app()),
            http=_Http,
            ws=WebSocketFrames,
            ws_max_size=max(MESSAGE_BYTES_MIN, 2 * limits.frame_bytes),
            ws_ping_interval=None,  # a paused reader sees no pong, and AMQP has its own heartbeats
            ws_per_message_deflate=False,  # compressed bytes could expand without limit; AMQP gains little
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            # Given explicitly, so that uvicorn does not read the environment variable FORWARDED_ALLOW_IPS.
            forwarded_allow_ips=list(trusted_proxies),
        )
        self._config.load()

    @property
    def addresses(self) -> tuple[BoundAddress, ...]:
        """The bound addresses."""
        return tuple(acceptor.address for acceptor in self._acceptors)

    async def open(self, listener: Listener, tls: TlsContext | None) -> None:
        """Listen on one address.

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
        """Stop accepting, and close all connections.

        Idle connections are closed at once. Requests and WebSockets have up to `drain_s`, then they are cut.
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
        # asyncio calls `connection_lost` in later loop iterations, and offers nothing to wait for.
        while self._state.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def _http(self) -> asyncio.BaseProtocol:
        # uvicorn's own protocols take these arguments.
        make: Any = self._config.http_protocol_class
        return cast(
            "asyncio.BaseProtocol",
            make(config=self._config, server_state=self._state, app_state=self._app_state),
        )

    def _enter(self, protocol: asyncio.BaseProtocol, peer: str) -> bool:
        """Accept every connection.

        At the limit, close the oldest connection of the network with the most: one client cannot keep probes
        out.
        """
        # Ended connections are removed only now: counting each end would cost every request.
        if len(self._guests) >= HTTP_CONNECTIONS_MAX:
            self._guests = {guest: host for guest, host in self._guests.items() if self._is_here(guest)}
        if len(self._guests) >= HTTP_CONNECTIONS_MAX:
            busiest, _ = Counter(self._guests.values()).most_common(1)[0]
            oldest = next(guest for guest, host in self._guests.items() if host == busiest)
            del self._guests[oldest]
            self._send_away(oldest)
            self._limit_line.warning(address=busiest, limit=HTTP_CONNECTIONS_MAX)
        self._guests[protocol] = peer_network(peer)
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
                Route("/console", self._to_console),
                *(WebSocketRoute(path, self._websocket) for path in WEBSOCKET_PATHS),
                WebSocketRoute("/{path:path}", self._no_websocket),
            ],
            # Starlette calls it with this exception only.
            exception_handlers={HTTPException: _in_words},  # type: ignore[dict-item]
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

    async def _to_console(self, request: Request) -> Response:
        if self.console is None:
            raise HTTPException(404)
        return RedirectResponse(self.console.location(request.url.hostname or "localhost"))

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
        channel = WebSocketChannel(socket, socket.scope["state"][TRANSPORT](), linger_s=self._linger_s)
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
    """Start the admin listener in the phase STARTING.

    `admission`: share it with the AMQP listeners, so that connections over WebSocket count toward the same
    limit. `trusted_proxies`: addresses and networks of proxies whose forwarding headers are trusted.

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
    """Close each HTTP connection after its first answer.

    An idle connection would occupy one of HTTP_CONNECTIONS_MAX.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await app(scope, receive, closing if scope["type"] == "http" else send)

    return answer


class _Http(H11Protocol):
    """uvicorn's HTTP/1.1 with time limits.

    REQUEST_S until the request is complete, ANSWER_S until the answer is sent.
    """

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
        # No request is complete yet, so there is nothing to answer.
        if cast("object | None", self.cycle) is None:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(max(0.0, ANSWER_S - REQUEST_S), self.transport.abort)
