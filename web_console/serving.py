"""[io] Runs a console as a process: one listener, until a signal."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn

from amqp_streams.errors import ConfigError
from service_parts.networks import format_address, is_loopback
from service_parts.open_files import raise_open_files
from web_console.app import Application, application
from web_console.http.connections import Connection
from web_console.product import Product
from web_console.sessions.visitor import REQUESTS_MAX, STREAMS_MAX, WAITING_MAX
from web_console.settings import ConsoleSettings

_CONNECTIONS: Final = 512
"""Connections, in addition to those that sessions may use for their requests and streams."""
_HEAD_BYTES_MAX: Final = 64 << 10
"""The head of a request: that of live figures names the logs of a page."""
_DRAIN_S: Final = 3
_TICKS_OF_A_SECOND: Final = 10
_UNIX: Final = "unix:"
_INHERITED: Final = "fd:"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""The hosts on a loopback address: a page under a name of its own must not reach the console."""

log = structlog.get_logger("web_console")


def bind(listen: str) -> tuple[list[socket.socket], str]:
    """Return sockets for `HOST:PORT`, `unix:PATH` or `fd:NUMBER,…`, and the first address.

    `fd:`: sockets that the parent process has bound.

    Raises:
        ConfigError: the address is not valid, or cannot be bound.
    """
    if listen.startswith(_INHERITED):
        return _inherited(listen.removeprefix(_INHERITED))
    sock, address = _bound(listen)
    return [sock], address


def _inherited(numbers: str) -> tuple[list[socket.socket], str]:
    try:
        sockets = [socket.socket(fileno=int(number)) for number in numbers.split(",")]
        bound = sockets[0].getsockname()
    except (OSError, ValueError) as error:
        message = f"listen: {_INHERITED}{numbers} is not a list of descriptors of bound sockets"
        raise ConfigError(message) from error
    return sockets, _written(bound)


def _bound(listen: str) -> tuple[socket.socket, str]:
    if listen.startswith(_UNIX):
        return _bind_unix(Path(listen.removeprefix(_UNIX)))
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        message = f"listen: {listen!r} is not an address: give HOST:PORT or unix:PATH"
        raise ConfigError(message)
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, int(port)))
    except OSError as error:
        sock.close()
        message = f"listen: cannot listen on {listen}: {error.strerror or error}"
        raise ConfigError(message) from error
    return sock, _written(sock.getsockname())


def _written(bound: Any) -> str:
    return format_address(*bound[:2])


def _bind_unix(path: Path) -> tuple[socket.socket, str]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A socket of an earlier process: nothing listens there any more, or the bind must fail.
        with suppress(ConnectionRefusedError, FileNotFoundError):
            sock.connect(str(path))
            message = f"listen: another process listens on {path}"
            raise ConfigError(message)
        sock.close()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        sock.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        sock.close()
        message = f"listen: cannot listen on {path}: {error.strerror or error}"
        raise ConfigError(message) from error
    return sock, f"{_UNIX}{path}"


def serve(settings: ConsoleSettings, product: Product, listen: str, ready: Callable[[str], None]) -> None:
    """Serve the console of a product until SIGTERM or SIGINT. `ready` is called with the address."""
    sockets, address = bind(listen)
    if not settings.hosts and is_loopback(address.rpartition(":")[0].strip("[]")):
        settings = replace(settings, hosts=_LOCAL)
    raise_open_files()
    app = application(settings, product)
    config = uvicorn.Config(
        app,
        lifespan="on",
        loop="uvloop",
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the shield reads them
        h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
        limit_concurrency=connections_max(settings),
        timeout_graceful_shutdown=_DRAIN_S,
        timeout_keep_alive=30,
    )

    asyncio.run(_Server(config, app, partial(_begun, settings, product, address, ready)).serve(sockets))
    log.info("console_stopped", address=address)


def connections_max(settings: ConsoleSettings) -> int:
    """Return how many connections and requests there may be at the same time; more get 503.

    Logged-in people alone cannot use all of them.
    """
    return _CONNECTIONS + settings.sessions_max * (REQUESTS_MAX + WAITING_MAX + STREAMS_MAX)


def _begun(settings: ConsoleSettings, product: Product, address: str, ready: Callable[[str], None]) -> None:
    log.info("console_listening", address=address, **{product.noun: settings.url.rpartition("@")[2]})
    ready(address)


class _Server(uvicorn.Server):
    """uvicorn's server, which ends with status 0 after a signal, and ends streams first."""

    def __init__(self, config: uvicorn.Config, app: Application, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self._app: Final = app
        self._begun: Final = begun

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal. uvicorn's own method raises the signal again at the end."""
        loop = asyncio.get_running_loop()
        for sent in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sent, self.handle_exit, sent, None)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report the address when the console listens."""
        await super().startup(sockets)
        if not self.should_exit:
            self._begun()

    async def on_tick(self, counter: int) -> bool:
        """End the connections whose clients are late, once a second."""
        if counter % _TICKS_OF_A_SECOND == 0:
            now = asyncio.get_running_loop().time()
            for each in list(self.server_state.connections):
                if isinstance(each, Connection):
                    each.look(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would keep their connections open, then the rest."""
        for session in self._app.console.book:
            session.end_streams()
        await super().shutdown(sockets)
