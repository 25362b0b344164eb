"""[io] The HTTP/1.1 listener: uvicorn's protocol over httptools, on sockets of our own.

Laws: no stranger holds a connection for ever without a request that gets on, or memory by a head without an end; who has closed its side
after a request gets the answer all the same; going down, every request that is here is answered.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from typing import Any, Final

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from knative_gateway.config import Limits, Listener, TlsSettings
from knative_gateway.errors import ConfigError
from knative_gateway.running.supervising import Supervisor

BACKLOG: Final = 2048
_TICK_S: Final = 1.0
_LOOK_S: Final = 0.01
_GRACE_S: Final = 5.0
"""A request that the application waits for has its own time; only then its connection is closed."""

HEAD_BYTES_MAX: Final = 64 << 10
"""Of a request line and headers; what came with the first read of them is not counted."""
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 26\r\nconnection: close\r\n\r\nthe headers are too large\n"
)

App = Callable[[Any, Any, Any], Awaitable[None]]

log = structlog.get_logger("knative_gateway")


class Protocol(HttpToolsProtocol):
    """One connection; `waiting_since` is when it was opened or began a request that is not here whole."""

    waiting_since: float | None = None
    connections_max = 1 << 30
    _head_bytes = 0
    _half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's narrowing
        """Take it, unless there are too many."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        if len(self.connections) > self.connections_max:
            transport.abort()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.waiting_since = self.loop.time()

    def on_message_complete(self) -> None:
        """All of it is here."""
        super().on_message_complete()
        if self.cycle is not None:
            self.cycle.more_body = False  # also when it was answered before
        self.waiting_since = None

    def data_received(self, data: bytes) -> None:
        """Of a request, or several; a head that goes on for ever is refused before it takes much memory."""
        before = self.waiting_since
        super().data_received(data)
        # A time of its own for each request: still this very object, it is still this very request.
        if before is None or self.waiting_since is not before or (self.cycle is not None and self.cycle.more_body):
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's closes whatever is under way
        """The client sends no more; True: what it sent is answered first. Who only watches or reads is taken to be gone."""
        cycle: Any = self.cycle
        under_way = cycle is not None and self.waiting_since is None and (bool(self.pipeline) or not cycle.response_complete)
        reads = getattr(cycle, "scope", {}).get("method") in {"GET", "HEAD"}
        self._half_closed = under_way and not reads and self.scheme == "http"  # TLS has no half-closed connections
        return self._half_closed

    def on_response_complete(self) -> None:
        """The next request's turn, or the end."""
        super().on_response_complete()
        if self._half_closed and not self.pipeline and self.cycle.response_complete:
            self.transport.close()


class HttpServer:
    """Listens; made by `serve_http`."""

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        tls: TlsSettings | None,
        protocol: type[Protocol] = Protocol,
        tasks: Supervisor | None = None,
    ) -> None:
        self.addresses: Final[list[str]] = []
        self._limits: Final = limits
        self._supervisor: Final = tasks or Supervisor()
        self._tls: Final = tls
        self._context: Final = None if tls is None else server_context(tls)
        self._state: Final = ServerState()
        self._servers: Final[list[asyncio.Server]] = []
        self._leaving = False
        self._ticking: asyncio.Task[None] | None = None
        self._protocol: Final = type("Connection", (protocol,), {"connections_max": limits.connections})
        self._config: Final = uvicorn.Config(
            app,
            http=self._protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, round(limits.idle)),
        )
        self._config.load()

    async def open(self, listener: Listener) -> None:
        """Listen. Raises ConfigError: the address cannot be bound."""
        loop = asyncio.get_running_loop()
        self._tick()
        if self._ticking is None:
            self._ticking = self._supervisor.keep("listener.tick", self._tick_on)
        try:
            server = await loop.create_server(self._accept, listener.host, listener.port, ssl=self._context, backlog=BACKLOG)
        except OSError as error:
            message = f"cannot listen on {listener}: {error.strerror or error}"
            raise ConfigError(message) from error
        self._servers.append(server)
        self.addresses.extend(map(_address, server.sockets))
        log.info("gateway_listening", address=", ".join(self.addresses), tls=self._tls is not None)

    def reload(self) -> None:
        """Read the certificate again, for the connections that come. Raises ConfigError, and the old one stays."""
        if self._tls is not None and self._context is not None:
            server_context(self._tls)
            self._context.load_cert_chain(self._tls.certificate, self._tls.key)

    def leave(self) -> None:
        """Keep serving, but close each connection with its answer, so that clients go elsewhere."""
        self._leaving = True
        self._tick()

    async def close(self, drain_s: float) -> None:
        """Accept no more, close what is idle, wait for requests, cut off the rest."""
        for server in self._servers:
            server.close()
        connections = self._connections()
        for connection in connections:
            connection.shutdown()
        loop = asyncio.get_running_loop()
        latest = loop.time() + drain_s
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=drain_s)
        # Not every request has a task: a connection whose last answer is out closes itself.
        while self._state.connections and loop.time() < latest:  # noqa: ASYNC110  (the transports tell their protocols; nothing tells us)
            await asyncio.sleep(_LOOK_S)
        for connection in self._connections():
            connection.transport.abort()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait({self._ticking})
        for task in self._state.tasks:
            task.cancel()

    def _accept(self) -> asyncio.BaseProtocol:
        protocol = self._protocol(config=self._config, server_state=self._state, app_state={})
        assert isinstance(protocol, Protocol)
        return protocol

    def _connections(self) -> list[Protocol]:
        return [connection for connection in self._state.connections if isinstance(connection, Protocol)]

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._tick()

    def _tick(self) -> None:
        """The date for answers; an end to those who keep a request to themselves."""
        last = [(b"connection", b"close")] if self._leaving else []
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode()), *last]
        latest = asyncio.get_running_loop().time() - self._limits.request - _GRACE_S
        for connection in self._connections():
            if connection.waiting_since is not None and connection.waiting_since < latest:
                log.debug("connection_cut", peer=connection.client, reason="its request does not get on")
                connection.transport.abort()


async def serve_http(
    app: App,
    listeners: Sequence[Listener],
    *,
    limits: Limits,
    tls: TlsSettings | None = None,
    protocol: type[Protocol] = Protocol,
    tasks: Supervisor | None = None,
) -> HttpServer:
    """Listen on all of them. `protocol`: of a connection.

    Raises:
        ConfigError: an address cannot be bound, or the certificate cannot be read.
    """
    server = HttpServer(app, limits=limits, tls=tls, protocol=protocol, tasks=tasks)
    try:
        for listener in listeners:
            await server.open(listener)
    except ConfigError:
        await server.close(0.0)
        raise
    return server


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        message = f"tls: {tls.certificate} and {tls.key}: {error.strerror or error}"
        raise ConfigError(message) from error
    return context


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
