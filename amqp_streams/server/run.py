"""Starts, runs and stops a node.

Start: check Proton, open the admin listener (alive, not ready), open and lock the store, create the
configured logs, bind the AMQP listeners, report ready. Stop (SIGTERM, SIGINT): report not ready, accept no
connections, close the connections with the reason, commit and sync what is pending, exit with status 0.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from amqp_streams import names
from amqp_streams.config import LogSettings, NodeSettings
from amqp_streams.errors import ConfigError, PeerError, SettingRefusedError
from amqp_streams.proton import compiled
from amqp_streams.proton.engine import require_engine
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.console import Console, node_url
from amqp_streams.server.garbage import Garbage
from amqp_streams.server.identity.guard import Guard
from amqp_streams.server.identity.password_checks import checking_threads
from amqp_streams.server.identity.users import UsersFile
from amqp_streams.server.listening.admin import AdminServer, Phase, serve_admin
from amqp_streams.server.listening.channel import ByteChannel, Connection
from amqp_streams.server.listening.descriptors import connections_possible
from amqp_streams.server.listening.listener import Listeners, listen
from amqp_streams.server.listening.sockets import Admission
from amqp_streams.server.listening.tls import TlsContext
from amqp_streams.server.observing.metrics import Metrics
from amqp_streams.server.opening import open_store
from amqp_streams.server.reload import (
    AT_ONCE_NAMES,
    Reloaded,
    Reread,
    note_certificates,
    note_reload,
    reload_certificates,
    reload_parts,
    reload_settings,
    reload_tokens,
    reload_users,
    warn_if_open,
)
from amqp_streams.server.service import EventService
from amqp_streams.storage.ports import Store
from service_parts.event_loop import server_runner
from service_parts.open_files import raise_open_files
from service_parts.settings.in_force import SettingsInForce, Shown

_DRAINS_AT_STOP: Final = 2
"""A stop may take this many times `limits.drain`, as the documentation promises."""
_CLOSE_S_MIN: Final = 1.0

log = structlog.get_logger("amqp_streams")

Ready = Callable[[dict[str, list[str]]], None]


def run(
    settings: NodeSettings,
    *,
    ready: Ready | None = None,
    reread: Reread | None = None,
    shown: Shown | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status.

    `ready` is called with the bound addresses: {"amqp": [...], "admin": [...]}. `reread` reads the settings
    again on SIGHUP, and raises ConfigError if they are not valid. `shown` reads them with their sources.

    Raises:
        AmqpStreamsError: the node cannot start. The message says why.
    """
    require_engine()
    raise_open_files()
    with server_runner() as runner:
        return runner.run(serve(settings, ready=ready, reread=reread, shown=shown, alone=True))


async def serve(
    settings: NodeSettings,
    *,
    ready: Ready | None = None,
    stop: asyncio.Event | None = None,
    store: Store | None = None,
    reread: Reread | None = None,
    shown: Shown | None = None,
    alone: bool = False,
) -> int:
    """Serve on a running event loop, for tests and for programs that embed a node. Returns the exit status.

    `stop` ends it like SIGTERM; if it is given, no signal handlers are set. `store` replaces the data
    directory. `alone`: the process does nothing else, so the rule for garbage is that of a node.
    """
    loop = asyncio.get_running_loop()
    node = Server(settings, reread=reread, shown=shown)
    garbage = Garbage(loop)
    stopping = stop or asyncio.Event()
    handlers = (
        {}
        if stop
        else {signal.SIGTERM: stopping.set, signal.SIGINT: stopping.set, signal.SIGHUP: node.reload}
    )
    # Before recovery, which may take long: an unhandled SIGHUP ends the process.
    if not stop:
        loop.add_signal_handler(signal.SIGHUP, node.reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        opened = store or await open_store(settings, loop)
        # Not earlier: during recovery SIGTERM ends the process at once, which loses nothing.
        for (
            number,
            handler,
        ) in handlers.items():
            loop.add_signal_handler(number, handler)
        await node.start(opened)
        if alone:
            garbage.start()
        if ready is not None:
            ready(node.addresses)
        await stopping.wait()
        await node.announce_stop()
    finally:
        garbage.stop()
        clean = await node.stop()
        for number in handlers:
            loop.remove_signal_handler(number)
    log.info("stopped", clean=clean)
    return 0


class _Homes(Protocol):
    """What decides about groups and cursors on Kafka: `server/homes/joining.py`."""

    def reload(self) -> bool:
        """Read secret and certificates again. Returns False if a file has an error, which is logged."""

    async def stop(self) -> None:
        """Leave in order, after the links have ended."""

    def close(self) -> None:
        """End the threads, before the store is closed."""


class Server:
    """A node with its listeners, users and certificates."""

    def __init__(
        self, settings: NodeSettings, *, reread: Reread | None = None, shown: Shown | None = None
    ) -> None:
        self.settings: Final = settings
        self._shown: Final = SettingsInForce(shown, AT_ONCE_NAMES)
        self._certificate: Final = None if settings.tls is None else settings.tls.certificate
        self._reread: Final = reread
        self.addresses: Final[dict[str, list[str]]] = {}
        self.service: EventService | None = None
        self._admission: Final = Admission(settings.limits.connections)
        self._metrics: Final = Metrics(
            data_dir=settings.data_dir,
            refused=lambda: self._admission.refused,
            expires_at=lambda: None if self._tls is None else self._tls.expires_at,
        )
        # Certificates and users are read here, before the store is opened: an error in them costs no
        # recovery.
        self._tls: Final = None if settings.tls is None else TlsContext(settings.tls)
        self._users: Final = None if settings.users_file is None else UsersFile.load(settings.users_file)
        self._executor: Final = checking_threads()
        self._guard: Guard | None = None
        self._admin: AdminServer | None = None
        self._console: Console | None = None
        self._homes: _Homes | None = None
        self._listeners: Listeners | None = None
        self._reload_when_ready = False
        self._place: Final = str(settings.data_dir or "Kafka")
        """Where the events are, for people."""

    async def start(self, store: Store) -> None:
        """Bind all listeners and accept connections. From here on, this object owns the store.

        Raises:
            ConfigError: an address cannot be bound, or a configured log contradicts the existing log.
        """
        settings, limits = self.settings, self.settings.limits
        self.service = EventService(settings, store, asyncio.get_running_loop())
        self.service.about.settings = self._shown
        note_certificates(self.service, self._certificate)
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
            # Set after the service exists: WebSocket requests before this point are answered with 503.
            self._admin.factory = self._connect
            self.addresses["admin"] = [str(address) for address in self._admin.addresses]
        # Before the AMQP listeners: the first client must find the configured logs.
        self._make_logs(store)
        if settings.node is not None:
            # Only here: a node with a data directory does not need the library.
            from amqp_streams.server.homes.joining import join_homes  # noqa: PLC0415

            self._homes = await join_homes(self.service, store, settings.node)
        self._bound_connections(store)
        self._listeners = await listen(
            settings.listen, self._connect, limits=limits, tls=self._tls, admission=self._admission
        )
        self.addresses["amqp"] = [str(address) for address in self._listeners.addresses]
        if settings.console is not None:
            url = settings.console.url or node_url(self._listeners.addresses)
            self._console = Console(settings, settings.console, url)
            await self._console.start()
            self.addresses["console"] = self._console.addresses
        self.service.start()
        self.service.ready = True
        if self._admin is not None:
            self._admin.phase = Phase.READY
            self._admin.console = self._console
        warn_if_open(settings)
        if self._reload_when_ready:
            self.reload()
        log.info(
            "ready",
            logs=len(store.logs),
            sync=str(settings.sync),
            store=self._place,
            loops=compiled.KIND,
        )

    def _bound_connections(self, store: Store) -> None:
        """Lower the limit on connections to what the file descriptors allow.

        The store and the probes need some of them.
        """
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
        """Create the configured logs that do not exist, and update those whose settings differ.

        Raises:
            ConfigError: the number of partitions differs, or a setting is not supported here.
        """
        for name, wanted in self.settings.logs.items():
            try:
                self._make_log(store, name, wanted)
            except SettingRefusedError as error:
                message = f"log {name!r}: {error}"
                raise ConfigError(message) from error

    def _make_log(self, store: Store, name: str, wanted: LogSettings) -> None:
        assert self.service is not None
        found = store.logs.get(name)
        if found is None:
            try:
                self.service.node.create(name, wanted)
            except ValueError:
                # Other nodes may create it at the same time.
                found = store.logs.get(name)
                if found is None:
                    raise
            else:
                log.info("log_created", log=name, partitions=wanted.partitions)
                return
        # Only settings that the configuration states: others may have been changed with `$management`.
        said = {setting: getattr(wanted, setting) for setting in wanted.model_fields_set}
        if said.get("partitions", found.settings.partitions) != found.settings.partitions:
            message = (
                f"log {name!r} has {found.settings.partitions} partitions in {self._place},"
                f" but the configuration has {wanted.partitions}: the number is fixed when the log is"
                " created. Change the configuration, or delete the log"
            )
            raise ConfigError(message)
        changed = found.settings.model_copy(update=said)
        if changed != found.settings:
            store.update(name, changed)
            log.info("log_updated", log=name)

    async def announce_stop(self) -> None:
        """Answer 503 on `/readyz`, and serve for `shutdown_delay_ms`.

        Load balancers then stop sending clients to this node.
        """
        if self._admin is not None:
            self._admin.phase = Phase.STOPPING
        if self.service is not None:
            self.service.stopping = True
        if self.settings.shutdown_delay_ms:
            log.info("stopping", shutdown_delay_ms=self.settings.shutdown_delay_ms)
            await asyncio.sleep(self.settings.shutdown_delay_ms / 1000)

    async def stop(self) -> bool:
        """Close the connections with the reason, and commit and sync pending records.

        May be called after a failed start.

        Takes about twice `limits.drain`. Returns whether the next start needs no recovery.
        """
        # Before the connections are closed: their time counts toward the promised twice `limits.drain`.
        deadline = time.monotonic() + _DRAINS_AT_STOP * self.settings.limits.drain_ms / 1000
        if self._admin is not None:
            self._admin.phase = Phase.STOPPING
        drain_s = self.settings.limits.drain_ms / 1000
        if self.service is not None:
            # Regular work first: it must not touch links while they end.
            self.service.stop()
            if self._listeners is not None:
                self._listeners.stop()
            # Producers get the outcomes of their last events before their connections are closed.
            await self.service.quiet(drain_s)
            error = PeerError(names.CONNECTION_FORCED, "the server is shutting down")
            for connection in tuple(self.service.connections):
                connection.shut(error)
        if self._homes is not None:
            # After the links have ended, so that their last positions are written.
            await self._homes.stop()
        if self._console is not None:
            await self._console.stop()
        if self._listeners is not None:
            await self._listeners.close(drain_s)
        if self._admin is not None:
            await self._admin.close(drain_s)
        # Password checks have no client any more.
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._homes is not None:
            self._homes.close()
        if self.service is not None:
            self.service.finish()
            # At least a second: after slow connections there may be nothing left of the time.
            return self.service.store.close(within_s=max(_CLOSE_S_MIN, deadline - time.monotonic()))
        return True

    def reload(self) -> None:
        """Read settings, certificates and users again (SIGHUP).

        A part with an error keeps its old value. Before the node is ready, the request is postponed until it
        is.
        """
        service, guard = self.service, self._guard
        if service is None or guard is None or not service.ready:
            self._reload_when_ready = True
            return
        results = reload_parts(
            {
                "settings": lambda: reload_settings(service, guard, self._reread),
                "users": lambda: reload_users(service, self._users),
                "tls": lambda: reload_certificates(self._tls),
                "oauth": lambda: reload_tokens(guard),
                "node": self._reload_homes,
            }
        )
        note_reload(service, results, self._certificate)

    def _reload_homes(self) -> Reloaded:
        if self._homes is None:
            return Reloaded.NONE
        return Reloaded.CHANGED if self._homes.reload() else Reloaded.FAILED

    def _connect(self, channel: ByteChannel) -> Connection:
        assert self.service is not None
        assert self._guard is not None
        return AmqpConnection(self.service, channel, self._guard)
