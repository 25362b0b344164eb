"""[io] The parent process of a gateway with several workers: what exists once, and the start and the stop.

Once exist: the lock of the state database, the reserved addresses, the event log node (unless the settings
name one), the console, and the supervision of the workers. Order of the stop: the workers and the console,
all at once; then the node.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from knative_gateway.config import GatewaySettings
from knative_gateway.engine.embedded import EmbeddedNode, embedded_node
from knative_gateway.errors import ConfigError, GatewayError, InUseError, UnavailableError
from knative_gateway.health.asking import about
from knative_gateway.health.facts import packed as packed_about
from knative_gateway.reloading import warn_of_restart
from knative_gateway.running.console import running_console
from knative_gateway.running.figures import embedded_starts
from knative_gateway.running.stopping import EXIT_S, GRACE_S, Deadline
from knative_gateway.running.supervising import Supervisor
from knative_gateway.store.opening import sqlite_url, store_lock
from knative_gateway.workers.crew import Crew
from knative_gateway.workers.handing import Files, HandedFiles, packed, read_files
from knative_gateway.workers.reserving import reserved
from knative_gateway.workers.shares import share
from service_parts.console_child import ConsoleChild
from service_parts.event_loop import server_runner
from service_parts.health import machine
from service_parts.settings.in_force import Shown
from service_parts.settings.listeners import Listener

Addresses = dict[str, list[str]]
Ready = Callable[[Addresses], None]
Reread = Callable[[], GatewaySettings]
T = TypeVar("T")

KILL_S: Final = EXIT_S / 2
"""How long workers may take to end after their parts have stopped. The rest is for the node."""
LATE_S: Final = 3.0
"""How long the workers of a gateway that was killed may hold its lock and its addresses."""
_AGAIN_S: Final = 0.1
_USAGE_ERROR: Final = 2

log = structlog.get_logger("knative_gateway")


def run(
    settings: GatewaySettings,
    *,
    ready: Ready | None = None,
    reread: Reread | None = None,
    shown: Shown | None = None,
) -> int:
    """Run the workers until SIGTERM or SIGINT. Returns the exit status. See `knative_gateway.server.run`.

    Raises:
        GatewayError: the gateway cannot start; the message gives the reason.
    """
    deadline = Deadline()
    try:
        with server_runner() as runner:
            parent = Parent(settings, ready=ready, reread=reread, shown=shown, deadline=deadline)
            return runner.run(parent.serve())
    finally:
        deadline.disarm()


class Parent:
    """The parent process."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        ready: Ready | None,
        reread: Reread | None,
        deadline: Deadline,
        shown: Shown | None = None,
    ) -> None:
        self._about: Final = about(shown)
        self._settings: Final = settings
        self._ready: Final = ready or (lambda _addresses: None)
        self._reread: Final = reread or (lambda: settings)
        self._deadline: Final = deadline
        self._tasks: Final = Supervisor()
        self._renewed = settings
        """The settings with the tokens, keys and rules of the last reload."""
        self._files: Files = {}
        """The contents of their files."""
        self._listen: tuple[Listener, ...] = ()
        self._node: EmbeddedNode | None = None
        self._console: ConsoleChild | None = None
        self._console_at: Listener | None = None
        self._crew: Crew | None = None

    async def serve(self) -> int:
        """Serve until a signal. Returns the exit status."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        ending = asyncio.create_task(ended.wait())
        working = asyncio.create_task(self._work(ended))
        await asyncio.wait({ending, working}, return_when=asyncio.FIRST_COMPLETED)
        limits = self._settings.limits
        self._deadline.arm(self._settings.shutdown_delay + limits.drain + GRACE_S + EXIT_S)
        if self._crew is None:
            working.cancel()  # nothing runs yet that must stop in order, except the node
        try:
            is_clean = await working
        except asyncio.CancelledError:
            is_clean = True
        ending.cancel()
        log.info("gateway_stopped")
        return 0 if is_clean else 1

    async def _work(self, ended: asyncio.Event) -> bool:
        settings, limits = self._settings, self._settings.limits
        url = settings.store or sqlite_url(settings.state_dir)
        self._files = read_files(settings)
        async with AsyncExitStack() as stack:
            lock = await stack.enter_async_context(_patiently(partial(store_lock, url)))
            self._listen = await stack.enter_async_context(_patiently(partial(reserved, settings.listen)))
            if settings.amqp is None:
                self._node = await stack.enter_async_context(embedded_node(settings, self._tasks))
            if settings.console is not None:
                console = running_console(settings.console, settings, str(self._listen[0]))
                self._console = await stack.enter_async_context(console)
                self._console_at = self._console.address
            crew = self._crew = Crew(
                settings.workers,
                self._of_worker,
                inherited=() if lock is None else (lock.descriptor,),
                files={} if lock is None else lock.files,
                about=self._known,
            )
            if self._node is not None:
                crew.gathering.registry.register(_NodeStarts(self._node))
            crew.start()
            try:
                await self._serve(crew, ended)
            finally:
                within_s = settings.shutdown_delay + limits.drain + GRACE_S + KILL_S
                is_clean, _ = await asyncio.gather(crew.stop(within_s), self._end_console())
        return is_clean

    async def _end_console(self) -> None:
        if self._console is not None:
            await self._console.stop()

    async def _serve(self, crew: Crew, ended: asyncio.Event) -> None:
        announcing = asyncio.create_task(self._announce(crew))
        ending = asyncio.create_task(ended.wait())
        either: set[asyncio.Future[Any]] = {ending, crew.gave_up}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        announcing.cancel()
        ending.cancel()
        if crew.gave_up.done():
            last = crew.gave_up.result()
            message = last.reason or "a worker cannot start: its log lines give the reason"
            raise ConfigError(message) if last.status == _USAGE_ERROR else UnavailableError(message)

    async def _announce(self, crew: Crew) -> None:
        """Report the addresses when all workers are ready."""
        await crew.ready.wait()
        addresses = {"http": [str(listener) for listener in self._listen]}
        if self._node is not None:
            addresses["amqp"] = [self._node.address]
        if self._console is not None:
            addresses["console"] = self._console.addresses
        log.info("workers_ready", workers=self._settings.workers, address=", ".join(addresses["http"]))
        self._ready(addresses)

    def _of_worker(self) -> bytes:
        """Return the settings of a worker, with the contents of their files."""
        settings = share(self._renewed, self._settings.workers)
        changed: dict[str, object] = {"listen": self._listen}
        if self._node is not None:
            changed["amqp"] = self._node.url
        console = settings.console
        if console is not None and self._console_at is not None:
            changed["console"] = console.model_copy(update={"listen": self._console_at})
        return packed(settings.model_copy(update=changed), self._files)

    def _known(self, restarts: int) -> bytes:
        """Return what this process knows about the gateway, packed."""
        starts = None if self._node is None else self._node.starts
        known = self._about.known(memory=machine.memory_bytes(), node_starts=starts, restarts=restarts)
        return packed_about(known)

    def _reload(self) -> None:
        """SIGHUP: read settings, certificates, tokens and rules again, and hand them to the workers.

        If one of them is not valid, nothing changes.
        """
        if self._crew is None:
            return
        try:
            settings = self._reread()
            if _is_open(settings) is not _is_open(self._settings):
                message = "tokens: a reload cannot turn authentication on or off; restart the gateway"
                raise ConfigError(message)
            renewed = self._with_new(settings)
            files = read_files(renewed)
            _check(renewed, files)
        except GatewayError as error:
            log.error("gateway_not_reloaded", reason=str(error))
            self._about.not_reloaded(str(error))
            return
        self._renewed, self._files = renewed, files
        self._crew.reload(self._of_worker())
        self._about.reloaded(warn_of_restart(self._settings, settings))

    def _with_new(self, settings: GatewaySettings) -> GatewaySettings:
        """Return the settings of the start with what a reload changes."""
        kept, subscribers = self._settings, settings.subscribers
        of_subscribers = {
            "ca": subscribers.ca,
            "certificate": subscribers.certificate,
            "key": subscribers.key,
        }
        return kept.model_copy(
            update={
                "tokens": settings.tokens,
                "jwt": settings.jwt,
                "rules": settings.rules,
                "subscribers": kept.subscribers.model_copy(update=of_subscribers),
            }
        )


def _check(settings: GatewaySettings, files: Files) -> None:
    """Check the contents that workers will get: the files may change at any time.

    Raises:
        ConfigError: a file is not valid.
    """
    # The import is late because only a reload needs all of this.
    from knative_gateway.checks import check_files  # noqa: PLC0415

    with HandedFiles() as handed:
        try:
            check_files(handed.settings(packed(settings, files)))
        except GatewayError as error:
            raise ConfigError(handed.words(str(error))) from error


class _NodeStarts(Collector):
    """The metric of the embedded node."""

    def __init__(self, node: EmbeddedNode) -> None:
        self._node: Final = node

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        yield embedded_starts(self._node.starts)


@asynccontextmanager
async def _patiently(enter: Callable[[], AbstractContextManager[T]]) -> AsyncIterator[T]:
    """Enter a context, and wait for the processes of a gateway that was killed to end.

    Raises:
        InUseError: another gateway uses the file or the address.
    """
    loop = asyncio.get_running_loop()
    latest = loop.time() + LATE_S
    while True:
        try:
            context = enter()
            entered = context.__enter__()
            break
        except InUseError:
            if loop.time() > latest:
                raise
        await asyncio.sleep(_AGAIN_S)
    try:
        yield entered
    finally:
        context.__exit__(None, None, None)


def _is_open(settings: GatewaySettings) -> bool:
    """Return whether every client may do everything."""
    return settings.tokens is None and settings.jwt is None
