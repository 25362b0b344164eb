"""[io] The HTTP/1.1 listener: sockets, TLS, time limits, start and stop.

A connection whose client does not complete a request, or sends none, is closed in time. A stop answers all
requests that have arrived.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import Final

import structlog

from knative_gateway.config import Limits, TlsSettings
from knative_gateway.errors import ConfigError
from knative_gateway.http.asgi import App, AsgiHandler
from knative_gateway.http.backlog import Backlog
from knative_gateway.http.connection import Connection
from knative_gateway.http.exchange import Exchange, Handler
from knative_gateway.http.service import Service
from knative_gateway.running.supervising import Supervisor
from service_parts.certificate_expiry import expires_at
from service_parts.certificate_files import CertificateFileError, load_certificate
from service_parts.networks import format_address
from service_parts.settings.listeners import Listener

BACKLOG: Final = 2048
HANDSHAKE_S: Final = 10.0
TLS_CLOSE_S: Final = 5.0
HELD_BYTES_MIN: Final = 8 << 20
"""The connections may hold at least this much more than one body, whatever `limits.pending` is: a request to
the API, with what was read ahead, must have room.
"""
SHED_REPORT_S: Final = 10.0
"""The shortest time between two log lines about the requests that were refused, and the clients that were
disconnected, because of the bytes held.
"""
_TICK_S: Final = 1.0
LOOKS_AT_ONCE: Final = 200
"""Connections whose time limits are checked in one iteration of the event loop."""
_LOOK_S: Final = 0.01
_GRACE_S: Final = 5.0
"""Additional time before a connection is closed. A handler that waits for a request has its own, shorter time
limit, and answers.
"""

Shortcut = Callable[[Exchange], Handler | None]
"""Returns a handler for an exchange; None: the application answers it."""

log = structlog.get_logger("knative_gateway")


class HttpServer:
    """The listener. `serve_http` creates it."""

    def __init__(
        self,
        app: App,
        *,
        limits: Limits,
        tls: TlsSettings | None,
        shortcut: Shortcut | None = None,
        tasks: Supervisor | None = None,
        shares_port: bool = False,
    ) -> None:
        """`shares_port`: other processes listen on the same port, and the kernel distributes connections."""
        self._shares_port: Final = shares_port
        self.addresses: Final[list[str]] = []
        self._app: Final = app
        self._shortcut: Final = shortcut
        self._limits: Final = limits
        self._supervisor: Final = tasks or Supervisor()
        self._tls: Final = tls
        self._context: Final = None if tls is None else server_context(tls)
        self.certificate_expires_at = None if tls is None else expires_at(tls.certificate)
        """In seconds since 1970. None without TLS, or if it is not known."""
        self._servers: Final[list[asyncio.Server]] = []
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._ticking: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._service: Final = Service[Connection](
            self._handler,
            loop.time,
            Backlog(loop.call_soon),
            connections_max=limits.connections,
            held_max=max(limits.pending, limits.body + HELD_BYTES_MIN),
        )
        self._shed = 0
        self._cut = 0
        self._shed_reported_s = -SHED_REPORT_S

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._service.connections)

    async def open(self, listener: Listener) -> None:
        """Listen on one address.

        Raises:
            ConfigError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        self._tick()
        if self._ticking is None:
            self._ticking = self._supervisor.keep("listener.tick", self._tick_on)
        try:
            server = await loop.create_server(
                self._connection,
                listener.host,
                listener.port,
                ssl=self._context,
                backlog=BACKLOG,
                reuse_port=self._shares_port or None,
                ssl_handshake_timeout=None if self._context is None else HANDSHAKE_S,
                ssl_shutdown_timeout=None if self._context is None else TLS_CLOSE_S,
            )
        except OSError as error:
            # asyncio replaces the text of the system by one with a Python tuple.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
            message = f"cannot listen on {listener}: {reason}"
            raise ConfigError(message) from error
        # Appended after the bind, so that `close` finds only servers that listen.
        self._servers.append(server)
        self.addresses.extend(map(_address, server.sockets))
        log.info("gateway_listening", address=", ".join(self.addresses), tls=self._tls is not None)

    def reload(self) -> None:
        """Read the certificate again, for new connections.

        Raises:
            ConfigError: it is not valid; the current certificate stays.
        """
        if self._tls is not None and self._context is not None:
            # First into a new context: if the files are not valid, this raises and the context in use does
            # not change.
            server_context(self._tls)
            load_certificate(self._context, self._tls.certificate, self._tls.key)
            self.certificate_expires_at = expires_at(self._tls.certificate)

    def leave(self) -> None:
        """Keep serving, but close each connection after its next answer, so that clients connect
        elsewhere.
        """
        self._service.is_leaving = True

    async def close(self, drain_s: float) -> None:
        """Stop listening, close idle connections, wait up to `drain_s` for answers, then close all
        connections.
        """
        loop = asyncio.get_running_loop()
        latest = loop.time() + drain_s
        self.leave()
        for server in self._servers:
            server.close()
        await asyncio.sleep(_LOOK_S)  # the event loop reads requests that have already arrived
        connections = self._service.connections
        for connection in list(connections):
            # Connections without a request close now. A load balancer would otherwise keep them until the end
            # of the drain.
            connection.shut()
        # The transports call their protocols, not us.
        while (connections or self._tasks) and loop.time() < latest:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        for connection in list(connections):
            connection.abort()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait({self._ticking})
        for task in self._tasks:
            task.cancel()

    def _connection(self) -> Connection:
        return Connection(self._service)

    def _handler(self, exchange: Exchange) -> Handler:
        handler = self._shortcut(exchange) if self._shortcut is not None else None
        return AsgiHandler(exchange, self._app, self._tasks) if handler is None else handler

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._tick()
            await self._look()

    def _tick(self) -> None:
        """Update the date of the answers."""
        # Formatting the date for each answer would be slow, and its resolution is one second.
        self._service.headers = [(b"date", formatdate(usegmt=True).encode())]
        self._report_shed(asyncio.get_running_loop().time())

    async def _look(self) -> None:
        """End connections that exceed a time limit."""
        connections, loop = self._service.connections, asyncio.get_running_loop()
        for number, connection in enumerate(list(connections), start=1):
            if connection in connections:  # it may have ended in the meantime
                connection.look(
                    loop.time(), request_s=self._limits.request + _GRACE_S, idle_s=self._limits.idle
                )
            if number % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)  # 5,000 of them at once would delay events by 10 ms

    def _report_shed(self, now: float) -> None:
        holdings, unread = self._service.holdings, self._service.unread
        shed, cut = holdings.shed_count - self._shed, unread.cut_count - self._cut
        if (shed or cut) and now >= self._shed_reported_s + SHED_REPORT_S:
            if shed:
                log.warning("requests_refused", count=shed, bytes=holdings.bytes)
            if cut:
                log.warning("slow_clients_disconnected", count=cut, bytes=unread.bytes)
            self._shed, self._cut, self._shed_reported_s = holdings.shed_count, unread.cut_count, now


async def serve_http(
    app: App,
    listeners: Sequence[Listener],
    *,
    limits: Limits,
    tls: TlsSettings | None = None,
    shortcut: Shortcut | None = None,
    tasks: Supervisor | None = None,
    shares_port: bool = False,
) -> HttpServer:
    """Listen on all addresses.

    Raises:
        ConfigError: an address cannot be bound, or the certificate cannot be read.
    """
    server = HttpServer(app, limits=limits, tls=tls, shortcut=shortcut, tasks=tasks, shares_port=shares_port)
    try:
        for listener in listeners:
            await server.open(listener)
    except ConfigError:
        await server.close(0.0)
        raise
    return server


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of the listener.

    Raises:
        ConfigError: the certificate or the key cannot be read.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        load_certificate(context, tls.certificate, tls.key)
    except CertificateFileError as error:
        raise ConfigError(str(error)) from error
    return context


def _address(sock: socket.socket) -> str:
    return format_address(*sock.getsockname()[:2])
