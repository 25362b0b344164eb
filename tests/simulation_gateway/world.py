"""The world of one seed: its gateways, log node, sites, senders and users."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from random import Random
from typing import Any, Final

from knative_gateway.dispatcher.history import History
from knative_gateway.dispatcher.posting.connecting import Connections
from knative_gateway.dispatcher.posting.target import Target as PostTarget
from knative_gateway.dispatcher.subscribers.delivering import SubscriberDispatcher
from knative_gateway.dispatcher.subscribers.state import SubscriberState
from knative_gateway.dispatcher.worker import RouteWorker
from knative_gateway.ports import Failure, Stored, Subscriber
from knative_gateway.store.cursors import SqlCursorStore
from knative_gateway.store.database import Database
from knative_gateway.store.opening import sqlite_url
from tests.simulation_gateway.api import ApiClient, is_ready
from tests.simulation_gateway.events import Events, Posted
from tests.simulation_gateway.gateway import (
    Disk,
    Logged,
    Replica,
    patched,
    settings_of,
    shared_store,
    simulated,
)
from tests.simulation_gateway.http_peer import call
from tests.simulation_gateway.ledger import Ledger
from tests.simulation_gateway.loop import SimulationError, VirtualLoop
from tests.simulation_gateway.network import Network
from tests.simulation_gateway.node import Node, Shares
from tests.simulation_gateway.subscribers import Sites
from tests.simulation_gateway.targets import Role

FAR_MS: Final = 1 << 60
FOLLOWS_MS: Final = 3_000
"""How much later than a status says another replica may apply a change."""
KEPT_MS: Final = 75_000
"""If the disk of a gateway fails for longer than this, the gateway must not be ready."""


@dataclass(frozen=True)
class Size:
    """How much there is in a world: of each, one is drawn."""

    storm_ms: Sequence[int] = (20_000, 60_000)
    brokers: Sequence[int] = (1, 1, 2, 3)
    channels: Sequence[int] = (0, 1, 2)
    subscribers: Sequence[int] = (1, 2, 4)
    send_pause_ms: Sequence[int] = (100, 300, 1000)
    befall_pause_ms: Sequence[int] = (500, 3000, 10_000)
    change_pause_ms: Sequence[int] = (1000, 5000, 20_000)


SMALL: Final = Size((5_000, 10_000), (1,), (0, 0, 1), (1, 2), (300, 1000), (300, 1000, 2000), (1000, 3000))
STEADY: Final = Size((10_000, 20_000), (1,), (0, 0, 1), (1, 2), (100, 300), (300, 1000, 2000), (1000, 3000))
MEDIUM: Final = Size()
LARGE: Final = Size(storm_ms=(120_000,), brokers=(2, 3))


class Kind(Enum):
    """What may befall a world. In all kinds but `ANY`, nothing else befalls log node, disk and network as a
    whole, so that what is promised without such faults is checked in the whole run.
    """

    ANY = auto()
    PICKY = auto()
    """Some subscribers always refuse a few events."""
    HANGING = auto()
    """Some subscribers never answer."""
    RESTARTS = auto()
    """Gateways stop in order, and start again. Some subscribers always refuse a few events."""
    LATE = auto()
    """Some subscribers accept connections just before attempts time out, and time passes while code runs."""
    LOGS = auto()
    """The log node loses whole logs, and Brokers are deleted and created again."""
    SLOW_DATABASE = auto()
    """The state database is slow."""


ROLES: Final = {
    Kind.PICKY: (Role.PICKY,),
    Kind.HANGING: (Role.HANGING,),
    Kind.RESTARTS: (Role.PICKY,),
    Kind.LATE: (Role.LATE,),
}


class World:
    """`sources`: the names of Brokers and Channels that exist, by path. `look_ms`: how often all statuses are
    read.
    """

    def __init__(self, seed: int, loop: VirtualLoop, state_dir: Path, patches: ExitStack) -> None:
        """`patches`: is closed after the run, also after one that failed: the next run is not affected."""
        self.random: Final = Random(seed)
        self.loop: Final = loop
        self.ledger: Final = Ledger(loop)
        self.network: Final = Network(loop, Random(f"{seed} network"))
        self.node: Final = Node(loop, Random(f"{seed} node"), self._stored)
        self.disk: Final = Disk(loop, Random(f"{seed} disk"))
        self.shares: Final = Shares(self.node, Random(f"{seed} shares"), self.ledger.moved)
        self.sites: Final = Sites(self.network, loop, self.ledger)
        self.events: Final = Events(Random(f"{seed} events"))
        self.logged: Final = Logged(loop)
        self.is_replicated: Final = self.random.random() < 0.3
        self.size = self.random.choices((SMALL, MEDIUM, LARGE), (16, 3, 1))[0]
        steady = Random(f"{seed} steadiness")
        self.kind: Final = (
            steady.choices(tuple(Kind), (6, 1, 1, 1, 1, 1, 1))[0] if self.size is SMALL else Kind.ANY
        )
        if self.kind is not Kind.ANY:
            self.size = STEADY
        self.look_ms = 1000
        self.replicas: Final[list[Replica]] = []
        self.sources: Final[dict[str, str]] = {}
        self.disk_away_since: int | None = None
        self._seed: Final = seed
        self._state_dir: Final = state_dir
        self._patches: Final = patches
        self._stack: Final = AsyncExitStack()
        self._tasks: Final[list[asyncio.Task[Any]]] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator["World"]:
        """Gateways run within the block."""
        async with self._stack:
            uuids = Random(f"{self._seed} uuids")
            self._patches.enter_context(simulated(self.loop, self.network, uuids, self.logged))
            self._patches.enter_context(observed(self.ledger))
            more: dict[str, Any] = {}
            if self.is_replicated:
                database = Database(sqlite_url(self._state_dir))
                await database.open()
                self._stack.push_async_callback(database.close)
                self._patches.enter_context(shared_store(database))
                more["public_url"] = "http://events.test"
            choice = self.random.choice
            more["logs"] = {"partitions": choice((1, 2, 4))}
            more["subscribers"] = {
                "connections": choice((24, 10_000)),
                "look_ahead": choice((4, 64, 512)),
                "in_flight": choice((2, 16, 256)),
                "waiting": choice((5, 1000)),
                "timeout": choice((5.0, 60.0)),
                "connect_timeout": choice((2.0, 10.0)),
                "held": choice((64 << 10, 8 << 20)),
                "replies": choice((1 << 20, 64 << 20)),
            }
            if self.kind is not Kind.ANY:
                more["subscribers"] |= {"connections": 10_000, "held": 8 << 20, "waiting": 1000}
                more["subscribers"]["in_flight"] = choice((16, 256))
            if self.kind is Kind.LATE:
                self.loop.busy, self.ledger.slack_ms = Random(f"{self._seed} busy"), 500
            if self.kind is Kind.PICKY:
                more["subscribers"]["look_ahead"] = 4
            if self.kind is Kind.HANGING:
                more["subscribers"]["look_ahead"] = choice((64, 512))
            self.ledger.timeout_ms = int(more["subscribers"]["timeout"] * 1000)
            for number in range(2 if self.is_replicated else 1):
                address = f"192.0.2.{number + 1}"
                settings = settings_of(self._state_dir / str(number), address, **more)
                self.replicas.append(
                    Replica(
                        f"gateway-{number}",
                        settings,
                        loop=self.loop,
                        network=self.network,
                        node=self.node,
                        shares=self.shares,
                    )
                )
            self.network.names["loop.test"] = [self.replicas[0].address[0]]
            try:
                yield self
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                for replica in self.replicas:
                    await replica.kill()

    @property
    def roles(self) -> Sequence[Role]:
        """The subscribers of each source that nothing changes, beside the healthy one."""
        return ROLES.get(self.kind, ())

    @asynccontextmanager
    async def unusual(self) -> AsyncIterator[None]:
        """Within the block, log node, gateway or machine is not well."""
        interval = [self.loop.now_ms, FAR_MS]
        self.ledger.unusual.append(interval)
        try:
            yield
        finally:
            interval[1] = self.loop.now_ms

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task = self.loop.create_task(coroutine)
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.broken = self.loop.broken or error

    async def sleep(self, low_ms: int, high_ms: int | None = None) -> None:
        await asyncio.sleep(self.random.randint(low_ms, low_ms if high_ms is None else high_ms) / 1000)

    # -- senders and users

    @property
    def up(self) -> Sequence[Replica]:
        return [replica for replica in self.replicas if replica.gateway is not None]

    def api(self) -> ApiClient | None:
        """The API of a gateway that runs."""
        return ApiClient(self.network, self.random.choice(self.up).address) if self.up else None

    async def post(self, path: str, posted: Posted) -> int:
        """Send events; the status, 0 without an answer."""
        if not self.up:
            return 0
        for event_id in posted.ids:
            self.ledger.posted[event_id] = posted
        replica = self.random.choice(self.up)
        answer = await call(
            self.network, replica.address, "POST", path, headers=posted.headers, body=posted.body
        )
        status = 0 if answer is None else answer.status
        self.ledger.trace.append((self.loop.now_ms, "posted", path, *posted.ids, status))
        self.ledger.counts[f"posts {status}"] += 1
        if status == 202:
            log = path.strip("/").replace("/", ".")
            for event_id in posted.ids:
                found = self.ledger.events.get((log, event_id))
                is_unreadable = any(each.log == log for each in self.ledger.unreadable)
                self.ledger.check(bool(found) or is_unreadable, f"{event_id}: 202, and it is not in {log}")
        if posted.is_plain:
            self.ledger.check(status not in {400, 413, 415, 500}, f"{posted.ids}: status {status}")
        self.ledger.check(status != 500, f"{posted.headers}: status 500")
        return status

    async def watch(self) -> None:
        """Read all statuses and the probes repeatedly: what they promise must hold."""
        while True:
            await asyncio.sleep(self.look_ms / 1000)
            await self.look()

    async def look(self) -> Mapping[str, bool]:
        """Read all statuses once; which are ready, by name."""
        found: dict[str, bool] = {}
        if not self.up:
            return found
        replica = self.random.choice(self.up)
        api = ApiClient(self.network, replica.address)
        by_uid = {target.uid: target for target in self.ledger.targets.values()}
        for kind in ("Trigger", "Subscription", "Broker", "Channel"):
            for object_ in await api.list(kind) or ():
                name, ready = object_["metadata"]["name"], is_ready(object_)
                found[f"{kind} {name}"] = ready
                target = by_uid.get(object_["metadata"]["uid"])
                if target is not None and ready and object_["metadata"]["generation"] >= target.generation:
                    target.settled(self.loop.now_ms + (FOLLOWS_MS if self.is_replicated else 0))
        status, _ = await api.get("/readyz")
        since = self.disk_away_since
        if status == 200 and since is not None and self.loop.now_ms - since > KEPT_MS:
            raise SimulationError(
                f"{replica.name} claims to be ready, and its disk has failed since {since} ms"
            )
        return found

    # -- what is seen

    def _stored(self, log: str, incarnation: str, stored: Stored) -> None:
        self.ledger.stored(log, incarnation, stored)

    # -- the end

    def busy(self) -> list[str]:
        """Return the work that gateways have not completed."""
        found: list[str] = []
        for replica in self.up:
            gateway = replica.gateway
            assert gateway is not None
            dispatcher, sender = gateway._dispatcher, gateway._sender
            assert dispatcher is not None
            assert sender is not None
            connections = sender.connections
            figures: dict[str, float] = {
                "slots": connections.slots.used,
                "waiting for slots": connections.slots.waiting,
                "lookups": connections.names.looking_up,
                "requests": len(connections._in_use),
                "bytes of replies": connections.replies.used + connections.replies.waiting,
                "connections of senders": len(
                    [end for end in self.network.open if end.process is replica.process]
                )
                - connections.idle,
            }
            logs = {
                uid: worker.wanted.log for worker in dispatcher.workers.values() for uid in worker.dispatchers
            }
            for _, each, lag in dispatcher.subscribers():
                name, log = each.spec.name, self.node.logs.get(logs[each.spec.uid])
                figures[f"{name} in flight"] = each.figures.in_flight
                figures[f"{name} waiting"] = each.figures.waiting
                figures[f"{name} held"] = each.state.held.used
                figures[f"{name} lag"] = 0 if log is None else lag.events
                figures[f"{name} open"] = sum(part.window.open for part in each.partitions.values())
                figures[f"{name} attempts"] = len(each._first_attempts) + len(each._tasks) - len(each._idle)
            found += [f"{replica.name}: {name} {value}" for name, value in figures.items() if value]
        return found


@contextmanager
def observed(ledger: Ledger) -> Iterator[None]:
    """Within the block, the ledger sees the failures that gateways record, at once and when they are
    stored.
    """
    begin, note, skip, record = SubscriberState.__init__, History.note, History.skip, SqlCursorStore.record
    end_with_log = RouteWorker._end_with_log
    resend = Connections.resend
    owners: dict[History, str] = {}

    def begun(state: SubscriberState, spec: Subscriber, *more: Any) -> None:
        begin(state, spec, *more)
        owners[state.history] = spec.uid

    def noted(history: History, now_ms: int, arrival: Any, failure: Any, end: str = "") -> None:
        ledger.failures[owners.get(history, "")] += 1
        if end:
            ledger.note_end(owners.get(history, ""), arrival.partition, arrival.offset)
        note(history, now_ms, arrival, failure, end)

    def skipped(history: History, now_ms: int, arrival: Any, reason: str = "") -> None:
        ledger.failures[owners.get(history, "")] += 1
        ledger.note_end(owners.get(history, ""), arrival.partition, arrival.offset)
        skip(history, now_ms, arrival, reason)

    async def ended_with_log(worker: RouteWorker, dispatchers: Sequence[SubscriberDispatcher]) -> None:
        ledger.disturb_log(worker.wanted.log)
        await end_with_log(worker, dispatchers)

    async def recorded(store: SqlCursorStore, failures: Mapping[str, Sequence[Failure]]) -> None:
        await record(store, failures)
        ledger.recorded(failures)

    def resent(connections: Connections, target: PostTarget) -> None:
        ledger.resent(target.host)
        resend(connections, target)

    with patched(
        [
            (Connections, "resend", resent),
            (SubscriberState, "__init__", begun),
            (History, "note", noted),
            (History, "skip", skipped),
            (SqlCursorStore, "record", recorded),
            (RouteWorker, "_end_with_log", ended_with_log),
        ]
    ):
        yield
