"""[io] The web console of a node: `amqp-streams console` as a child process, which is restarted when it ends.

Laws: the node binds the address, so an address in use is an error of the start, and browsers wait while the
console starts again. Nothing that happens to the console affects the node. The console ends with the node,
also if the node is killed.
"""

import asyncio
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

import structlog

from amqp_streams.config import ConsoleSettings, NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.listening.sockets import BoundAddress, bind, format_address
from service_parts.children import die_with, end_child
from service_parts.extras import MissingExtraError
from service_parts.networks import EVERYWHERE, reachable

STOP_S_MAX: Final = 5.0
FIRST_WAIT_S: Final = 0.5
WAIT_S_MAX: Final = 30.0
"""The longest pause before a restart."""
STABLE_S: Final = 10.0
"""A console that ran this long is restarted at once. Longer pauses are for one that ends at its start."""
_NEEDED: Final = "jinja2"
"""The library that only the extra `console` has."""

log = structlog.get_logger("amqp_streams.server")


def node_url(addresses: Sequence[BoundAddress]) -> str:
    """Return the URL of the first address without TLS, as a process of this machine reaches it."""
    address = next(one for one in addresses if not one.tls)
    return f"amqp://{format_address(reachable(address.host), address.port)}"


def require_console() -> None:
    """Raises ConfigError: the extra is not installed."""
    if importlib.util.find_spec(_NEEDED) is None:
        raise ConfigError(str(MissingExtraError("the web console", "console")))


class Console:
    """The child process. It runs from `start` to `stop`."""

    def __init__(self, settings: NodeSettings, console: ConsoleSettings, url: str) -> None:
        """`url`: of the node."""
        self.starts = 0
        self._address: Final = console.listen
        self._sockets: list[socket.socket] = []
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._arguments: Final = [
            *(sys.executable, "-m", "amqp_streams.cli", "console"),
            *("--url", url),
            *(() if console.ca is None else ("--ca", str(console.ca))),
            *(word for host in console.hosts for word in ("--allow-host", host)),
            *(word for proxy in settings.trusted_proxies for word in ("--trusted-proxy", proxy)),
            *("--anonymous", console.anonymous),
            *(("--plain-without-tls",) if settings.plain_without_tls else ()),
            *("--log-format", settings.log_format),
        ]

    @property
    def addresses(self) -> list[str]:
        """Where browsers connect."""
        return [format_address(*sock.getsockname()[:2]) for sock in self._sockets]

    @property
    def pid(self) -> int | None:
        """The process id of the child, if it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def location(self, host: str) -> str:
        """Return the URL for a browser that reached the node as `host`."""
        name, port = self._sockets[0].getsockname()[:2]
        if name in EVERYWHERE:
            name = host
        return f"http://{format_address(name, port)}/"

    async def start(self) -> None:
        """Bind the address, and keep the console running.

        Raises:
            ConfigError: the address cannot be bound, or the extra is not installed.
        """
        require_console()
        self._sockets = await bind(self._address)
        self._task = asyncio.create_task(self._keep(), name="console")

    async def stop(self) -> None:
        """End the child. May be called after a failed start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._process is not None and not await end_child(self._process, STOP_S_MAX):
            log.warning("console_killed", after_s=STOP_S_MAX)
        for sock in self._sockets:
            sock.close()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        wait_s = FIRST_WAIT_S
        while True:
            since = loop.time()
            try:
                self._process = await self._spawn()
                ended = f"status {await self._process.wait()}"
            except OSError as error:
                ended = error.strerror or str(error)
            if loop.time() - since >= STABLE_S:
                wait_s = FIRST_WAIT_S
            log.error("console_ended", reason=ended, again_in_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    async def _spawn(self) -> asyncio.subprocess.Process:
        descriptors = [sock.fileno() for sock in self._sockets]
        process = await asyncio.create_subprocess_exec(
            *self._arguments,
            *("--listen", f"fd:{','.join(map(str, descriptors))}"),
            stdin=asyncio.subprocess.DEVNULL,
            # The stdout of the node is for data, and the console writes only log lines.
            stdout=sys.stderr.fileno(),
            pass_fds=descriptors,
            # An interrupt at the terminal must not end the console before the node.
            start_new_session=True,
            preexec_fn=die_with(os.getpid(), signal.SIGTERM),
        )
        self.starts += 1
        log.info("console_started", addresses=self.addresses, pid=process.pid)
        return process
