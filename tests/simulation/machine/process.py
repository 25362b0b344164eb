"""One node: the real server over a simulated disk, loop and network. It starts, stops, stalls and dies."""

import asyncio
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, cast

import structlog

from amqp_streams.config import NodeSettings
from amqp_streams.errors import StorageError
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.identity.guard import Login
from amqp_streams.server.listening.channel import ByteChannel, Connection
from amqp_streams.server.listening.listener import Channel
from amqp_streams.server.run import Server
from amqp_streams.server.service import EventService
from amqp_streams.storage.ports import Partition, StoredLog
from tests.simulation.machine.clocks import Steps, Wall
from tests.simulation.machine.logins import Logins, Users
from tests.simulation.machine.loop import NodeLoop
from tests.simulation.machine.network import Peer, Weather, Wire
from tests.simulation.machine.schedule import MS, SECOND, Schedule
from tests.simulation.machine.stores import Backend, Died

STOP_US = 30 * SECOND
"""How long a node may take to stop."""


class _Server(Server):
    """The server of a node.

    Without `logins`, peers whose name begins with `user-` are logged in as that user.
    """

    def __init__(self, settings: NodeSettings, logins: Logins | None) -> None:
        super().__init__(
            settings if logins is None else logins.settings(settings),
            reread=None if logins is None else lambda: logins.settings(settings),
        )
        if logins is not None:
            self._users = Users(logins)  # type: ignore[assignment, misc]  # in memory

    def _connect(self, channel: ByteChannel) -> Connection:
        connection = super()._connect(channel)
        assert isinstance(connection, AmqpConnection)
        user, _, _ = channel.peer.partition(":")
        if user.startswith("user-"):
            connection._admitted(Login(user), b"")
        return connection


class Node:
    """A node with its machine. `watch`: notified of each process that starts, and of records that become
    visible.
    """

    def __init__(
        self,
        schedule: Schedule,
        steps: Steps,
        wall: Wall,
        settings: NodeSettings,
        *,
        watcher: "NodeWatcher",
        backend: Callable[["Node"], Backend],
        logins: Logins | None = None,
    ) -> None:
        self.schedule = schedule
        self.steps = steps
        self.wall = wall
        self.settings = settings
        self.watcher = watcher
        self.backend = backend(self)
        self.logins = logins
        self.wires: dict[Wire, None] = {}
        self.up = False
        self.stopping = False
        self.starts = 0
        self.loop: NodeLoop
        self.server: _Server
        self.steps_max = 0
        self.slowest = ""
        self._stopped: list[Callable[[], None]] = []
        self._names = 0

    @property
    def service(self) -> EventService:
        """The running server's heart."""
        assert self.server.service is not None
        return self.server.service

    # -- the process

    def start(self) -> None:
        """Start, if it does not run. A node that cannot start because the disk fails is tried again later."""
        if self.up:
            return
        self.loop = NodeLoop(self.schedule, self.steps, self.guard)
        self.starts += 1
        asyncio.events._set_running_loop(cast("Any", self.loop))
        try:
            self.guard(self._start)
        finally:
            asyncio.events._set_running_loop(None)

    def _start(self) -> None:
        try:
            store = self.backend.open(self.loop.call_soon_threadsafe, self.wall.now_ms, self.watcher)
        except (StorageError, OSError) as error:
            self.watcher.refused(self, error)
            self.kill()
            self.schedule.after(SECOND, self.start)
            return
        with self.backend.quiet():
            self.watcher.opened(self, store)
        self.server = _Server(self.settings, self.logins)
        _finish(self.server.start(store))
        self.up, self.stopping = True, False
        self.watcher.started(self)

    def stop(self, then: Callable[[], None]) -> None:
        """SIGTERM."""
        if not self.up or self.stopping:
            return
        self.stopping = True
        loop, self.loop.frozen_until_us = self.loop, 0
        loop.serving = False
        task = self.loop.create_task(self.server.stop())

        def ended() -> bool:
            return bool(task.done()) or loop.dead

        def look() -> None:
            if loop.dead:
                return
            if not task.done():
                self.schedule.after(5 * MS, look)
                return
            try:
                task.result()
                self.watcher.stopped(self)
            except (Died, StorageError) as error:  # the disk failed: it ends, but not in order
                self.watcher.refused(self, error)
                self.watcher.died(self)
            self._gone(told=True)
            self.backend.kill()
            then()

        self.schedule.after(5 * MS, look)
        self.schedule.after(STOP_US, lambda: self._require(ended(), "a node that is stopped ends"))

    def reload(self) -> None:
        """SIGHUP."""
        if self.up and not self.stopping:
            self.loop.call_soon(self.server.reload)

    def kill(self, *, power: bool = False) -> None:
        """The process dies, or with `power` the machine."""
        if self.up:
            self.watcher.died(self)
        self._gone(told=not power)
        if power:
            self.backend.lose_power()
        else:
            self.backend.kill()

    def _gone(self, *, told: bool) -> None:
        self.up = self.stopping = False
        self.loop.die()
        if self.loop.steps_max > self.steps_max:
            self.steps_max, self.slowest = self.loop.steps_max, self.loop.slowest
        wires, self.wires = self.wires, {}
        for wire in wires:
            wire.crash(told=told)
            connection = wire.channel._connection
            if isinstance(connection, AmqpConnection) and connection._engine is not None:
                connection._engine.free()

    def guard(self, call: Callable[[], None]) -> None:
        """Make a call of this process, in which it may end."""
        try:
            call()
        except Died:
            self.kill(power=self.watcher.power_fails())
            self.schedule.after(100 * MS, self.start)

    def _require(self, holds: bool, words: str) -> None:
        assert holds, words

    # -- the network

    def connect(
        self, peer: Peer, weather: Weather, user: str | None = None, address: str | None = None
    ) -> Wire | None:
        """Open a new connection; None: no process listens."""
        if not self.up or self.stopping:
            return None
        listeners = self.server._listeners
        assert listeners is not None
        self._names += 1
        channel = Channel(listeners, secure=False)
        name = (user if self.logins is None else address) or "127.0.0.1"
        if not listeners._enter(channel, f"{name}:{self._names}"):
            return None
        wire = Wire(self.schedule, self.loop, weather, peer, channel, address=(name, self._names))
        self.wires[wire] = None
        return wire

    def forget(self, wire: Wire) -> None:
        """This connection is over."""
        self.wires.pop(wire, None)


class NodeWatcher:
    """What the checks of a run observe of a node."""

    def refused(self, node: Node, error: BaseException) -> None:
        """It could not start."""

    def opened(self, node: Node, store: Any) -> None:
        """The store was opened, with these visible records."""

    def started(self, node: Node) -> None:
        """It serves."""

    def stopped(self, node: Node) -> None:
        """It has ended in order."""

    def died(self, node: Node) -> None:
        """The process is about to end."""

    def power_fails(self) -> bool:
        """Whether a death within an operation is that of the machine."""
        return False

    def visible(self, log: StoredLog, partition: Partition) -> None:
        """See `stores.Watcher`."""


def _finish(work: Any) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the start of a node without listeners waits for nothing")


BUGS = ("connection_failed", "regular_work_failed", "effect_failed", "connection_not_made", "info_failed")


@contextmanager
def log_lines(keep: list[dict[str, Any]]) -> Iterator[None]:
    """Record the log lines of the node. An exception that the node caught fails the run."""
    before = structlog.get_config()

    def take(_logger: Any, method: str, line: MutableMapping[str, Any]) -> Any:
        if line.get("exc_info"):
            raise Swallowed(f"{line} {sys.exc_info()[1]!r}")
        keep.append({"level": method, **line})
        raise structlog.DropEvent

    structlog.configure(processors=[take], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


class Swallowed(BaseException):
    """The node caught an exception that must not happen, and continued."""
