"""[io] The web console of a service: a child process, which is restarted when it ends.

Laws: the service binds the address, so an address in use is an error of the start, and browsers wait while
the console starts again. Nothing that happens to the console affects the service. The console ends with the
service, also if the service is killed.
"""

import asyncio
import errno
import importlib.util
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from service_parts.binding import bind, close_all
from service_parts.children import die_with, end_child
from service_parts.errors import SettingError
from service_parts.extras import MissingExtraError
from service_parts.networks import EVERYWHERE, format_address
from service_parts.settings.choices import LogFormat
from service_parts.settings.consoles import ConsoleSettings
from service_parts.settings.listeners import Listener

STOP_S_MAX: Final = 5.0
FIRST_WAIT_S: Final = 0.5
WAIT_S_MAX: Final = 30.0
"""The first and the longest pause before a restart."""
STABLE_S: Final = 10.0
"""After a console that ran this long, the pause is `FIRST_WAIT_S` again."""
BIND_S_MAX: Final = 3.0
"""How long an address in use is tried: the console of a service that was killed may still hold it."""
_BIND_AGAIN_S: Final = 0.1
_NEEDED: Final = "jinja2"
"""The library that only the extra `console` has."""
_NOT_INHERITED: Final = ("NOTIFY_SOCKET",)
"""Variables of the service. With this one, the console would report to systemd that the service is ready."""

log = structlog.get_logger("service_parts.console")


def check_console(console: ConsoleSettings) -> None:
    """Check what a console needs, except its address.

    Raises:
        SettingError: the extra is not installed, or a file cannot be read.
    """
    if importlib.util.find_spec(_NEEDED) is None:
        raise SettingError(str(MissingExtraError("the web console", "console")))
    for name, file in (("ca", console.ca), ("oidc_ca", console.oidc_ca)):
        try:
            if file is not None:
                ssl.create_default_context(cafile=str(file))
        except OSError as error:
            message = f"console.{name}: cannot read {file}: {error.strerror or error}"
            raise SettingError(message) from error
    secret = console.oidc_client_secret
    # Only its metadata: the console reads the secret, and the service does not need it.
    if secret is not None and (not secret.is_file() or secret.stat().st_mode & 0o077):
        message = (
            f"console.oidc_client_secret: {secret} must be a file that only its owner can read (chmod 600)"
        )
        raise SettingError(message)


def location(address: Listener, host: str) -> str:
    """Return the URL for a browser that reached the service as `host`. `address`: of the console."""
    name = host if address.host in EVERYWHERE else address.host
    return f"http://{format_address(name, address.port)}/"


def options(
    console: ConsoleSettings, proxies: Iterable[str], log_format: LogFormat, *, plain_without_tls: bool
) -> Sequence[str]:
    """Return the options of the command `console`, without the URL and the address."""
    return (
        *(() if console.ca is None else ("--ca", str(console.ca))),
        *(word for host in console.hosts for word in ("--allow-host", host)),
        *(word for proxy in proxies for word in ("--trusted-proxy", proxy)),
        *("--anonymous", console.anonymous.value),
        *(("--plain-without-tls",) if plain_without_tls else ()),
        *("--log-format", log_format.value),
        *_oidc(console),
    )


def _oidc(console: ConsoleSettings) -> Sequence[str]:
    if console.oidc_issuer is None:
        return ()
    single = {
        "--oidc-issuer": console.oidc_issuer,
        "--oidc-client-id": console.oidc_client_id,
        "--oidc-client-secret": console.oidc_client_secret,
        "--oidc-token": console.oidc_token.value,
        "--oidc-url": console.oidc_url,
        "--oidc-ca": console.oidc_ca,
    }
    return (
        *(word for name, value in single.items() if value is not None for word in (name, str(value))),
        *(word for scope in console.oidc_scopes for word in ("--oidc-scope", scope)),
        *(word for host in console.oidc_hosts for word in ("--oidc-host", host)),
    )


class ConsoleChild:
    """The child process. It runs from `start` to `stop`."""

    def __init__(self, console: ConsoleSettings, module: str, arguments: Sequence[str]) -> None:
        """`module`: the module of the program with the command `console`. `arguments`: those of the command,
        without the address.
        """
        self.starts = 0
        self._console: Final = console
        self._sockets: list[socket.socket] = []
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._command: Final = [sys.executable, "-m", module, "console", *arguments]

    @property
    def addresses(self) -> list[str]:
        """Where browsers connect."""
        return [format_address(*sock.getsockname()[:2]) for sock in self._sockets]

    @property
    def address(self) -> Listener:
        """The first of the addresses."""
        host, port = self._sockets[0].getsockname()[:2]
        return Listener(host=host, port=port)

    @property
    def pid(self) -> int | None:
        """The process id of the child, if it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def start(self) -> None:
        """Bind the address, and keep the console running.

        Raises:
            SettingError: the address cannot be bound, or what the console needs is missing.
        """
        check_console(self._console)
        self._sockets = await self._bind()
        self._task = asyncio.create_task(self._keep(), name="console")

    async def stop(self) -> None:
        """End the child. May be called after a failed start, and twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._process is not None and not await end_child(self._process, STOP_S_MAX):
            log.warning("console_killed", after_s=STOP_S_MAX)
        close_all(self._sockets)
        self._sockets = []

    async def _bind(self) -> list[socket.socket]:
        loop = asyncio.get_running_loop()
        latest_s = loop.time() + BIND_S_MAX
        while True:
            try:
                return await bind(self._console.listen)
            except SettingError as error:
                cause = error.__cause__
                is_used = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
                if not is_used or loop.time() > latest_s:
                    raise
            await asyncio.sleep(_BIND_AGAIN_S)

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
            except subprocess.SubprocessError as error:
                ended = str(error)
            if loop.time() - since >= STABLE_S:
                wait_s = FIRST_WAIT_S
            log.error("console_ended", reason=ended, again_in_s=wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    async def _spawn(self) -> asyncio.subprocess.Process:
        descriptors = [sock.fileno() for sock in self._sockets]
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *("--listen", f"fd:{','.join(map(str, descriptors))}"),
            stdin=asyncio.subprocess.DEVNULL,
            # The stdout of the service is for data, and the console writes only log lines.
            stdout=sys.stderr.fileno(),
            env={name: value for name, value in os.environ.items() if name not in _NOT_INHERITED},
            pass_fds=descriptors,
            # An interrupt at the terminal must not end the console before the service.
            start_new_session=True,
            # Not SIGTERM: a console that hangs would keep the address, and the service could not start again.
            # It keeps nothing that a stop would have to save.
            preexec_fn=die_with(os.getpid(), signal.SIGKILL),
        )
        self.starts += 1
        log.info("console_started", addresses=self.addresses, pid=process.pid)
        return process
