"""The HTTP side of the server: health, readiness, metrics, and AMQP over WebSocket, on one listener.

Law: it answers from the first moment (a node that recovers is alive and not ready) to the last, and no stranger's request ends it.
"""

import asyncio
from enum import StrEnum
from typing import Any, Final, cast

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from amqp_streams.config import Limits, Listener
from amqp_streams.server.channel import ConnectionFactory
from amqp_streams.server.listener import LINGER_S
from amqp_streams.server.metrics import CONTENT_TYPE, Metrics
from amqp_streams.server.sockets import Acceptor, Admission, BoundAddress, bind
from amqp_streams.server.tls import TlsContext
from amqp_streams.server.websocket import SUBPROTOCOLS, WebSocketChannel, chosen_subprotocol, refuse

# HTTP connections beside the AMQP connections that WebSockets are: probes and scrapers must get through when those are all taken.
HTTP_CONNECTIONS_MAX: Final = 256
# How long a stranger may take for a first request.
FIRST_REQUEST_S: Final = 10.0
# One WebSocket message from a peer; two of the largest AMQP frames fit.
MESSAGE_BYTES_MIN: Final = 1 << 20
WEBSOCKET_PATHS: Final = ("/", "/amqp", "/$servicebus/websocket")

_TRANSPORT: Final = "transport"
_LOCAL_PROXIES: Final = ("127.0.0.1", "::1")

log = structlog.get_logger("amqp_streams.server")


class Phase(StrEnum):
    """Where the server is in its life; each is the word `/readyz` says."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


class AdminServer:
    """The admin listener. Made by `serve_admin`; the owner moves `phase`, and sets `factory` before it is READY."""

    def __init__(self, metrics: Metrics, *, limits: Limits, admission: Admission, linger_s: float) -> None:
        self.phase = Phase.STARTING
        self.factory: ConnectionFactory | None = None
        self.metrics: Final = metrics
        self.channels: Final[set[WebSocketChannel]] = set()
        self._admission: Final = admission
        self._limits: Final = limits
        self._linger_s: Final = linger_s
        self._acceptors: Final[list[Acceptor]] = []
        self._state: Final = ServerState()
        self._config: Final = uvicorn.Config(
            self._app(),
            http=_Http,
            ws=_WebSocket,
            ws_max_size=max(MESSAGE_BYTES_MIN, 2 * limits.frame_bytes),
            ws_ping_interval=None,  # a paused reader sees no pong; AMQP has heartbeats of its own
            ws_per_message_deflate=False,  # a stranger's bytes stay their size; AMQP has nothing to gain
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            forwarded_allow_ips=list(_LOCAL_PROXIES),  # said here so that no environment variable says otherwise
        )
        self._config.load()

    @property
    def addresses(self) -> tuple[BoundAddress, ...]:
        """Where it listens."""
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
                leave=lambda _: None,
                tls=tls.current if listener.tls and tls else None,
                handshake_s=self._limits.unauthenticated_ms / 1000,
            )
            self._acceptors.append(acceptor)
            log.info("admin_listening", address=str(acceptor.address), tls=listener.tls)

    async def close(self, drain_s: float = 0.0) -> None:
        """Accept no more, close what is idle, wait up to `drain_s` for requests and WebSockets, cut off the rest."""
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

    def _enter(self, _protocol: asyncio.BaseProtocol, peer: str) -> bool:
        here = len(self._state.connections) - len(self.channels) + sum(len(acceptor.opening) for acceptor in self._acceptors)
        if here < HTTP_CONNECTIONS_MAX:
            return True
        log.debug("admin_connection_refused", peer=peer, limit=HTTP_CONNECTIONS_MAX)
        return False

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
        if source is not None and not source.status().ready:
            return PlainTextResponse("not ready: the node takes no events now\n", status_code=503)
        return PlainTextResponse("ready\n")

    async def _metrics(self, _request: Request) -> Response:
        return Response(await self.metrics.text(), media_type=CONTENT_TYPE)

    async def _websocket(self, socket: WebSocket) -> None:
        subprotocol = chosen_subprotocol(socket.scope["subprotocols"])
        if subprotocol is None:
            await refuse(socket, 400, f"this is AMQP over WebSocket: offer the sub-protocol {' or '.join(SUBPROTOCOLS)}")
        elif self.phase is not Phase.READY or self.factory is None:
            await refuse(socket, 503, str(self.phase))
        else:
            await self._serve(socket, self.factory, subprotocol)

    async def _serve(self, socket: WebSocket, factory: ConnectionFactory, subprotocol: str) -> None:
        channel = WebSocketChannel(socket, socket.scope["state"][_TRANSPORT](), linger_s=self._linger_s)
        if not self._admission.enter(channel, peer=channel.peer):
            await refuse(socket, 503, "too many connections")
            return
        self.channels.add(channel)
        try:
            await channel.run(factory, subprotocol)
        finally:
            self.channels.discard(channel)
            self._admission.leave(channel)

    async def _no_websocket(self, socket: WebSocket) -> None:
        await refuse(socket, 404, f"no WebSocket at {socket.url.path}: AMQP is at {', '.join(WEBSOCKET_PATHS)}")


async def serve_admin(
    listener: Listener,
    metrics: Metrics,
    *,
    limits: Limits,
    tls: TlsContext | None = None,
    admission: Admission | None = None,
    linger_s: float = LINGER_S,
) -> AdminServer:
    """Start the admin server, STARTING. `admission` is the AMQP listeners', so that WebSockets count among the connections.

    Raises:
        ConfigError: the address cannot be bound.
    """
    server = AdminServer(
        metrics, limits=limits, admission=Admission(limits.connections) if admission is None else admission, linger_s=linger_s
    )
    await server.open(listener, tls)
    return server


async def _in_words(request: Request, error: HTTPException) -> Response:
    words = f"no {request.url.path} here: there are /healthz, /readyz, /metrics" if error.status_code == 404 else error.detail
    return PlainTextResponse(words + "\n", status_code=error.status_code, headers=error.headers)


class _Http(H11Protocol):
    """uvicorn's HTTP/1.1 with a bound on the time to the first request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # asyncio's signature; it is a Transport
        self.loop.call_later(FIRST_REQUEST_S, self._give_up)

    def _give_up(self) -> None:
        asked = cast("object | None", self.cycle) is not None or self not in self.connections  # an upgrade takes it out of the connections
        if not asked:
            self.transport.abort()


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket that lets the application see its transport: how much waits in it, whose certificate it has, to cut it off."""

    def __init__(self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, {**app_state, _TRANSPORT: lambda: self.transport}, **more)
