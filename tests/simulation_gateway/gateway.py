"""A real gateway in the simulation: `knative_gateway.server.Gateway` with the log node of the simulation, a
disk that fails, and virtual clocks.
"""

import asyncio
import sqlite3
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import structlog

from knative_gateway import server
from knative_gateway.api import app as api_app
from knative_gateway.api import objects as api_objects
from knative_gateway.api import startup as api_startup
from knative_gateway.api import stepping
from knative_gateway.config import GatewaySettings
from knative_gateway.controller import controller, reporting
from knative_gateway.dispatcher import dispatcher
from knative_gateway.dispatcher.posting import connection, resolving, sending
from knative_gateway.dispatcher.subscribers.first_attempt import FirstAttempt
from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.errors import GatewayError
from knative_gateway.http import connection as http_connection
from knative_gateway.http import turns
from knative_gateway.ingress import app as ingress_app
from knative_gateway.security import tokens
from knative_gateway.store.cursors import SqlCursorStore
from knative_gateway.store.database import Database
from knative_gateway.store.feed import Feed
from knative_gateway.store.opening import Store
from knative_gateway.store.resources import SqlResources
from tests.simulation_gateway.loop import CURRENT, Process, VirtualLoop, number_of
from tests.simulation_gateway.network import Network
from tests.simulation_gateway.node import EPOCH_MS, Node, NodeClient, Shares

TIMED: Final = (api_app, api_startup, dispatcher, connection, sending, ingress_app, tokens, controller)


class Disk:
    """The threads of the store. `away`: each access fails. `lying`: it fails after it was carried out, half
    of the time. `stalled`: nothing is carried out for now. `slow`: each access takes up to two seconds.
    """

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.away = self.lying = self.stalled = self.slow = False
        self._loop: Final = loop
        self._random: Final = random
        loop.disk = self._work

    def _work(self, func: Callable[..., Any], process: Process | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        took_ms = self._random.randint(20, 2000) if self.slow else self._random.choice((1, 1, 2))
        self._loop.call_later(took_ms / 1000, self._run, func, process, future)
        return future

    def _run(self, func: Callable[..., Any], process: Process | None, future: asyncio.Future[Any]) -> None:
        if future.done():
            return
        if self.stalled and (process is None or not process.dead):
            self._loop.call_later(0.1, self._run, func, process, future)
            return
        fails = self.away or (process is not None and process.dead)
        try:
            result = None if fails and not (self.lying and self._random.random() < 0.5) else func()
        except Exception as error:  # noqa: BLE001  it is for the caller
            future.set_exception(error)
            return
        if fails:
            future.set_exception(sqlite3.OperationalError("disk I/O error"))
        else:
            future.set_result(result)


class SimulatedGateway(server.Gateway):
    """A gateway whose log node is that of the simulation."""

    def __init__(self, settings: GatewaySettings, client: NodeClient) -> None:
        super().__init__(settings)
        self._node_client: Final = client
        self._stores: Final[list[Callable[[], Awaitable[object]]]] = []
        on_close = self._parts.on_close

        def note(name: str, do: Callable[[], Awaitable[object]]) -> None:
            if name == "store":
                self._stores.append(do)
            on_close(name, do)

        # A gateway that is killed while it stops has no parts any more, and may not have closed them.
        self._parts.on_close = note  # type: ignore[method-assign]

    async def _start_log(self) -> AmqpEventLog:
        client = await self._parts.enter("event log", self._node_client)
        self.event_log = cast("AmqpEventLog", client)
        return self.event_log

    async def release(self) -> None:
        """Close the files of a process that was killed, as the system does."""
        for close in self._stores:
            await close()

    def _report_start(self, base_url: str) -> None:
        """Without `gc.freeze`, because thousands of gateways run in this process."""


class Replica:
    """A gateway on its machine: it is started, stopped, killed."""

    def __init__(
        self,
        name: str,
        settings: GatewaySettings,
        *,
        loop: VirtualLoop,
        network: Network,
        node: Node,
        shares: Shares,
    ) -> None:
        self.name: Final = name
        self.settings: Final = settings
        self.gateway: SimulatedGateway | None = None
        self.process: Process | None = None
        self.starts = self.stop_took_ms = 0
        self.failures: Final[list[str]] = []
        """Why it did not start."""
        self._latest: SimulatedGateway | None = None
        self.changing = asyncio.Lock()
        self._loop: Final = loop
        self._network: Final = network
        self._node: Final = node
        self._shares: Final = shares

    @property
    def address(self) -> tuple[str, int]:
        listener = self.settings.listen[0]
        return listener.host, listener.port

    async def start(self) -> None:
        async with self.changing:
            if self.process is not None:
                return
            self.starts += 1
            process = self.process = Process(f"{self.name}.{self.starts}")
            process.on_kill.append(lambda: self._network.cut_all(process))
            process.on_kill.append(lambda: self._shares.killed(process))
            starting = self._loop.in_process(process, self._start(process))
            await asyncio.wait({starting})
            if not starting.cancelled():
                starting.result()

    async def _start(self, process: Process) -> None:
        gateway = self._latest = SimulatedGateway(self.settings, NodeClient(self._node, self._shares))
        try:
            await gateway.start()
        except GatewayError as error:
            self.failures.append(f"{self._loop.now_ms}: {error}")
            await gateway.stop()
            if self.process is process:
                self.process = None
            return
        self.gateway = gateway

    async def stop(self) -> list[asyncio.Task[Any]]:
        """SIGTERM; the tasks that are left."""
        async with self.changing:
            gateway, process = self.gateway, self.process
            if gateway is None or process is None:
                return []
            self.gateway = None
            process.stops, process.stopped_ms = True, self._loop.now_ms
            await self._loop.in_process(process, gateway.stop())
            await asyncio.sleep(0.05)
            self.process = None
            self.stop_took_ms = self._loop.now_ms - process.stopped_ms
            left = list(process.tasks)
            process.stopped = not left
            if left:  # they end with the process, and so do its connections to the node
                await self._loop.kill(process)
                await self._loop.in_process(process, gateway.release())
            return left

    async def kill(self) -> None:
        """SIGKILL."""
        process, self.process, self.gateway = self.process, None, None
        gateway = self._latest  # the next one may begin before this one has ended
        if process is not None:
            await self._loop.kill(process)
            assert gateway is not None
            await self._loop.in_process(process, gateway.release())


class Logged:
    """The log lines of all gateways. `faults`: those of errors in our own code."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.faults: Final[list[str]] = []
        self.lines: Final[list[str]] = []
        self._loop: Final = loop

    def __call__(self, _logger: object, method: str, line: MutableMapping[str, Any]) -> dict[str, Any]:
        process = CURRENT.get()
        if process is not None and not process.dead:
            error = line.get("exc_info")
            text = f"{self._loop.now_ms} {process.name} {method} " + " ".join(
                f"{k}={v!r}" for k, v in line.items()
            )
            self.lines.append(text[:600])
            if error or "internal error" in text or line.get("event") == "task_ended":
                self.faults.append(f"{text}\n{traceback.format_exc()}")
        raise structlog.DropEvent


@contextmanager
def simulated(loop: VirtualLoop, network: Network, random: Random, logged: Logged) -> Iterator[None]:
    """Within the block, gateways take time, names and ids from the simulation."""
    clock = SimpleNamespace(
        monotonic=loop.time,
        time=lambda: (EPOCH_MS + loop.now_ms) / 1000,
        time_ns=lambda: (EPOCH_MS + loop.now_ms) * 1_000_000,
    )

    def uuid4() -> UUID:
        return UUID(int=random.getrandbits(128), version=4)

    patches: list[tuple[Any, str, Any]] = [(module, "time", clock) for module in TIMED]
    patches += [
        (turns, "clock", loop.time),
        (stepping, "perf_counter", loop.time),
        (api_objects, "uuid", SimpleNamespace(uuid4=uuid4)),
        (reporting, "uuid4", uuid4),
        (resolving, "in_thread", network.resolve),
        (sending, "tls_context", cache(sending.tls_context)),
        # Sets of these are iterated: their order must not depend on addresses.
        (http_connection.Connection, "__hash__", number_of),
        (FirstAttempt, "__hash__", lambda attempt: int(attempt.arrival.offset)),
    ]
    processors = structlog.get_config()["processors"]
    with patched(patches):
        structlog.configure(processors=[logged])
        try:
            yield
        finally:
            structlog.configure(processors=processors)


@contextmanager
def shared_store(database: Database) -> Iterator[None]:
    """Within the block, all gateways share this database, as they do with PostgreSQL."""

    @asynccontextmanager
    async def opened(_url: str, **more: Any) -> AsyncIterator[Store]:
        feed = Feed(database, tasks=more.get("tasks"))
        try:
            await feed.start()
            yield Store(
                SqlResources(database, feed),
                SqlCursorStore(database),
                shared=True,
                notice=feed.notice,
                problem=lambda: None,
            )
        finally:
            await feed.close()

    with patched([(server, "open_store", opened)]):
        yield


@contextmanager
def patched(patches: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Within the block, these attributes have other values."""
    before = [(target, name, getattr(target, name)) for target, name, _ in patches]
    try:
        for target, name, value in patches:
            setattr(target, name, value)
        yield
    finally:
        for target, name, value in before:
            setattr(target, name, value)


def settings_of(state_dir: Path, address: str, **more: Any) -> GatewaySettings:
    return GatewaySettings.model_validate(
        {"listen": f"{address}:8080", "state_dir": str(state_dir), **more}, strict=False
    )
