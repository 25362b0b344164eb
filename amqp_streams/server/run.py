"""Start, run and stop a node: the order in which things come up and go down.

Up: engine checked, admin listener answering (alive, not ready), store opened with its lock held, configured
logs made, AMQP listeners bound, ready. Down (SIGTERM, SIGINT): not ready, no new connections, connections
closed with the reason, what is pending committed and synced, exit 0.
"""

import asyncio
import gc
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog
import uvloop

from amqp_streams import names
from amqp_streams.config import NodeSettings
from amqp_streams.errors import ConfigError, PeerError
from amqp_streams.proton.engine import require_engine
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.identity.guard import Guard
from amqp_streams.server.identity.password_checks import RUNNING_MAX
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.listening.admin import AdminServer, Phase, serve_admin
from amqp_streams.server.listening.channel import ByteChannel, Connection
from amqp_streams.server.listening.descriptors import connections_possible
from amqp_streams.server.listening.listener import Listeners, listen
from amqp_streams.server.listening.sockets import Admission
from amqp_streams.server.listening.tls import TlsContext
from amqp_streams.server.observing.metrics import Metrics
from amqp_streams.server.reload import (
    Reread,
    reload_certificates,
    reload_parts,
    reload_settings,
    reload_tokens,
    reload_users,
    warn_if_open,
)
from amqp_streams.server.service import EventService
from amqp_streams.storage import DirectoryStore, Severity
from amqp_streams.storage.ports import Store
from service_parts.open_files import raise_open_files

log = structlog.get_logger("amqp_streams")

Ready = Callable[[dict[str, list[str]]], None]


def run(settings: NodeSettings, *, ready: Ready | None = None, reread: Reread | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status. `ready` gets the bound addresses: {"amqp":
    [...], "admin": [...]}.

    `reread` reads the settings again on SIGHUP, and raises ConfigError if they are not valid.

    Raises:
        AmqpStreamsError: the node cannot start. The message says why.
    """
    require_engine()
    raise_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings, ready=ready, reread=reread))


async def serve(
    settings: NodeSettings,
    *,
    ready: Ready | None = None,
    stop: asyncio.Event | None = None,
    store: Store | None = None,
    reread: Reread | None = None,
) -> int:
    """The same on a running loop, for tests and for programs that embed a node.

    `stop` ends it like SIGTERM and then no signal handlers are set; `store` replaces the data directory.
    """
    loop = asyncio.get_running_loop()
    node = Server(settings, reread=reread)
    stopping = stop or asyncio.Event()
    handlers = (
        {}
        if stop
        else {signal.SIGTERM: stopping.set, signal.SIGINT: stopping.set, signal.SIGHUP: node.reload}
    )
    if not stop:  # first, because recovery may take long, and an unhandled SIGHUP ends the process
        loop.add_signal_handler(signal.SIGHUP, node.reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        opened = store or open_directory(settings, loop)
        for (
            number,
            handler,
        ) in handlers.items():  # until here SIGTERM is sudden, which loses nothing and waits for nothing
            loop.add_signal_handler(number, handler)
        await node.start(opened)
        if ready is not None:
            ready(node.addresses)
        await stopping.wait()
        await node.announce_stop()
    finally:
        await node.stop()
        for number in handlers:
            loop.remove_signal_handler(number)
    log.info("stopped")
    return 0


def open_directory(settings: NodeSettings, loop: asyncio.AbstractEventLoop) -> Store:
    """Open the embedded store, recover it, and log the findings.

    Raises:
        StorageError: it is locked or too damaged to read, or the disk fails.
    """
    store = DirectoryStore.open(settings.data_dir, settings.sync, loop_call=loop.call_soon_threadsafe)
    for finding in store.findings:
        write = log.error if finding.severity is Severity.DAMAGE else log.info
        write(
            "recovery",
            severity=str(finding.severity),
            file=str(finding.file),
            position=finding.position,
            detail=finding.words,
        )
    return store


class Server:
    """A node with everything around it: listeners, admin, users, certificates."""

    def __init__(self, settings: NodeSettings, *, reread: Reread | None = None) -> None:
        self.settings: Final = settings
        self._reread: Final = reread
        self.addresses: Final[dict[str, list[str]]] = {}
        self.service: EventService | None = None
        self._admission: Final = Admission(settings.limits.connections)
        self._metrics: Final = Metrics(data_dir=settings.data_dir, refused=lambda: self._admission.refused)
        self._tls: Final = None if settings.tls is None else TlsContext(settings.tls)
        self._users: Final = None if settings.users_file is None else UsersFile.load(settings.users_file)
        self._executor: Final = ThreadPoolExecutor(RUNNING_MAX, thread_name_prefix="passwords")
        self._guard: Guard | None = None
        self._admin: AdminServer | None = None
        self._listeners: Listeners | None = None
        self._reload_when_ready = False

    async def start(self, store: Store) -> None:
        """Bind all listeners and accept connections. This object owns the store from here on.

        Raises:
            ConfigError: an address cannot be bound, or a configured log contradicts the existing log.
        """
        settings, limits = self.settings, self.settings.limits
        self.service = EventService(settings, store, asyncio.get_running_loop())
        self._guard = Guard(
            settings, self.service, executor=self._executor, passwords=self._users, keys=self._users
        )
        self._metrics.logins = self._guard.counts
        self.service.on_commit = self._metrics.commits.observe
        self.service.on_open = self._admission.opened
        self._metrics.source = self.service
        if settings.admin_listen is not None:
            self._admin = await serve_admin(
                settings.admin_listen,
                self._metrics,
                limits=limits,
                tls=self._tls,
                admission=self._admission,
                trusted_proxies=settings.trusted_proxies,
            )
            self._admin.factory = self._connect
            self.addresses["admin"] = [str(address) for address in self._admin.addresses]
        self._make_logs(store)
        self._bound_connections(store)
        self._listeners = await listen(
            settings.listen, self._connect, limits=limits, tls=self._tls, admission=self._admission
        )
        self.addresses["amqp"] = [str(address) for address in self._listeners.addresses]
        self.service.start()
        self.service.ready = True
        if self._admin is not None:
            self._admin.phase = Phase.READY
        gc.collect()
        gc.freeze()  # what start-up made stays; collections then look at connections only
        warn_if_open(settings)
        if self._reload_when_ready:
            self.reload()
        log.info("ready", logs=len(store.logs), sync=str(settings.sync), data_dir=str(settings.data_dir))

    def _bound_connections(self, store: Store) -> None:
        """Reserve descriptors for the store and the probes."""
        assert self.service is not None
        wanted, descriptors = self.settings.limits.connections, raise_open_files(0)
        partitions = sum(len(log.partitions) for log in store.logs.values())
        self._admission.limit = self.service.connections_max = possible = connections_possible(
            wanted, descriptors=descriptors, partitions=partitions
        )
        if possible < wanted:
            log.warning(
                "connections_bounded",
                connections=possible,
                limit=wanted,
                descriptors=descriptors,
                partitions=partitions,
            )

    def _make_logs(self, store: Store) -> None:
        """Create the configured logs that do not exist, and change those whose settings differ."""
        assert self.service is not None
        for name, wanted in self.settings.logs.items():
            found = store.logs.get(name)
            if found is None:
                self.service.node.create(name, wanted)
                log.info("log_created", log=name, partitions=wanted.partitions)
                continue
            said = {setting: getattr(wanted, setting) for setting in wanted.model_fields_set}
            if said.get("partitions", found.settings.partitions) != found.settings.partitions:
                message = (
                    f"log {name!r} has {found.settings.partitions} partitions in {self.settings.data_dir},"
                    f" but the configuration says {wanted.partitions}: the number is fixed when the log is"
                    " created. Change the configuration, or delete the log"
                )
                raise ConfigError(message)
            changed = found.settings.model_copy(update=said)
            if changed != found.settings:
                store.update(name, changed)
                log.info("log_updated", log=name)

    async def announce_stop(self) -> None:
        """Answer 503 on `/readyz` and keep serving for a while, so that load balancers stop sending clients
        here.
        """
        if self._admin is not None:
            self._admin.phase = Phase.STOPPING
        if self.settings.shutdown_delay_ms:
            log.info("stopping", shutdown_delay_ms=self.settings.shutdown_delay_ms)
            await asyncio.sleep(self.settings.shutdown_delay_ms / 1000)

    async def stop(self) -> None:
        """Notify clients, close connections, commit and sync pending records. Safe after a failed start."""
        if self._admin is not None:
            self._admin.phase = Phase.STOPPING
        drain_s = self.settings.limits.drain_ms / 1000
        if self.service is not None:
            self.service.stop()
            if self._listeners is not None:
                self._listeners.stop()
            await self.service.quiet(drain_s)
            error = PeerError(names.CONNECTION_FORCED, "the server is shutting down")
            for connection in tuple(self.service.connections):
                connection.shut(error)
        if self._listeners is not None:
            await self._listeners.close(drain_s)
        if self._admin is not None:
            await self._admin.close(drain_s)
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self.service is not None:
            self.service.finish()
            self.service.store.close()

    def reload(self) -> None:
        """SIGHUP: read settings, certificates and users again. A part with an error keeps its old value.
        Before the node is ready, this waits.
        """
        service, guard = self.service, self._guard
        if service is None or guard is None or not service.ready:
            self._reload_when_ready = True
            return
        reload_parts(
            {
                "settings": lambda: reload_settings(service, guard, self._reread),
                "users": lambda: reload_users(service, self._users),
                "tls": lambda: reload_certificates(self._tls),
                "oauth": lambda: reload_tokens(guard),
            }
        )

    def _connect(self, channel: ByteChannel) -> Connection:
        assert self.service is not None
        assert self._guard is not None
        return AmqpConnection(self.service, channel, self._guard)
