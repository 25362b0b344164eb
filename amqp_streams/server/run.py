"""Start, run and stop a node: the order in which things come up and go down.

Up: engine checked, store opened (and its lock held), configured logs made, listeners bound, ready. Down (SIGTERM, SIGINT): no new
connections, links and connections told why, what is pending committed and synced, exit 0.
"""

import asyncio
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog
import uvloop

from amqp_streams import names
from amqp_streams.config import NodeSettings
from amqp_streams.errors import PeerError
from amqp_streams.server.channel import ByteChannel, Connection
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.engine import require_engine
from amqp_streams.server.service import EventService
from amqp_streams.storage.ports import Store

log = structlog.get_logger("amqp_streams")

OpenStore = Callable[[NodeSettings, asyncio.AbstractEventLoop], Store]
Ready = Callable[[dict[str, list[str]]], None]

_PASSWORD_THREADS: Final = 2


def run(settings: NodeSettings, *, ready: Ready | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. `ready` is given the bound addresses: {"amqp": [...], "admin": [...]}.

    Raises:
        AmqpStreamsError: it cannot start, and why.
    """
    require_engine()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings, ready=ready))


async def serve(settings: NodeSettings, *, ready: Ready | None = None, stop: asyncio.Event | None = None) -> int:
    """The same on a running loop, for tests and for programs that embed a node; `stop` ends it like SIGTERM."""
    loop = asyncio.get_running_loop()
    stopping = stop or asyncio.Event()
    store = open_directory(settings, loop)
    try:
        node = RunningNode(settings, store, loop)
        for name, log_settings in settings.logs.items():
            if name not in store.logs:
                node.service.node.create(name, log_settings)
        await node.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        loop.add_signal_handler(signal.SIGHUP, node.reload)
        if ready is not None:
            ready(node.addresses)
        await stopping.wait()
        await node.stop()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
        store.close()
    log.info("stopped")
    return 0


def open_directory(settings: NodeSettings, loop: asyncio.AbstractEventLoop) -> Store:
    """Open the embedded store."""
    from amqp_streams.testing import MemoryStore

    return MemoryStore()


class RunningNode:
    """A service with its listeners."""

    def __init__(self, settings: NodeSettings, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        from amqp_streams.server.users import UsersFile

        self.settings = settings
        self.service = EventService(settings, store, loop)
        self.addresses: dict[str, list[str]] = {}
        self._users = UsersFile.load(settings.users_file) if settings.users_file is not None else None
        self._executor = ThreadPoolExecutor(_PASSWORD_THREADS, thread_name_prefix="passwords")

    async def start(self) -> None:
        """Bind everything; accept."""
        from amqp_streams.server.listener import listen

        self._listeners = await listen(self.settings.listen, self._connect, limits=self.settings.limits)
        self.addresses["amqp"] = [str(address) for address in self._listeners.addresses]
        self.service.start()
        self.service.ready = True

    async def stop(self) -> None:
        """Tell everyone, then let go."""
        self.service.stop()
        self._listeners.stop()
        error = PeerError(names.CONNECTION_FORCED, "the server is shutting down")
        for connection in tuple(self.service.connections):
            connection.shut(error)
        await self._listeners.close(self.settings.limits.drain_ms / 1000)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def reload(self) -> None:
        """SIGHUP: certificates, users."""
        if self._users is not None:
            self._users.reload()

    def _connect(self, channel: ByteChannel) -> Connection:
        return AmqpConnection(self.service, channel, users=self._users, executor=self._executor)
