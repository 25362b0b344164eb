"""The event loop's side of the server.

Connects the store, the node and the connections, and limits how long each of them occupies the loop.

Life of a batch: a link appends its transfers (`await_commit`). At the end of the loop iteration one commit
takes what all links appended. The store calls `_committed` when the records are durable. Then producers get
`accepted` (`Commits`), and after that consumers with credit are pumped.
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Final, Protocol

import structlog

from amqp_streams import names
from amqp_streams.config import Limits, NodeSettings
from amqp_streams.errors import StorageError
from amqp_streams.node import Node
from amqp_streams.proton import receiving
from amqp_streams.proton.pointers import Pointer
from amqp_streams.server.administration.connections import Closable, ConnectionRequests
from amqp_streams.server.administration.health import About, HealthRequests
from amqp_streams.server.capabilities import OFFERED, announced
from amqp_streams.server.committing import Commits
from amqp_streams.server.limits.quotas import Quotas
from amqp_streams.server.links.confirming import Confirming
from amqp_streams.server.links.effects import Effects
from amqp_streams.server.links.link import AnyLink, Committing, Leases, Pause, Pumped
from amqp_streams.server.links.turns import LEAST_S, Iteration, OrderedCalls, Turns
from amqp_streams.server.links.unfinished import Unfinished
from amqp_streams.server.listening.channel import ByteChannel
from amqp_streams.server.observing.audit import Audit
from amqp_streams.server.observing.latency import Latencies
from amqp_streams.server.observing.status import NodeStatus
from amqp_streams.server.picture import picture
from amqp_streams.server.pumping import Pumps
from amqp_streams.server.regular import Regular
from amqp_streams.storage.ports import CommitDone, CommitQueue, Partition, Store, StoredLog, Use
from amqp_streams.storage.questions import Figure
from amqp_streams.streams.access import Access, Identity
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.receipts import Wait
from amqp_streams.streams.redirects import Redirects
from amqp_streams.streams.steps import Steps
from service_parts.health.changes import Changes
from service_parts.settings.in_force import SettingsInForce

PUMPS_A_TURN: Final = 64
"""How many consumer links are pumped before the loop serves its sockets again."""
PUMP_TURN_S: Final = 0.001
"""How long consumer links are pumped before the loop serves its sockets again, in seconds. The current link
may exceed it.
"""
CURSORS_A_TURN: Final = 50
"""How many cursors are written before the loop serves its sockets again: about a millisecond."""

log = structlog.get_logger("amqp_streams")


class LiveConnection(Closable, Protocol):
    """What the service needs of a connection.

    `mechanism`: how the client logged in; None: without a login.
    """

    @property
    def identity(self) -> Identity:
        """The user and groups to which access rules apply."""

    def flush(self) -> None:
        """Write what Proton has to send."""

    def tick(self, now_ms: int) -> None:
        """Send heartbeats and enforce time limits."""

    def find_links(self, wanted: Callable[[AnyLink], bool]) -> list[AnyLink]:
        """Return the links for which `wanted` is true."""

    def pause(self, reason: Pause) -> None:
        """Stop reading from the client."""


class EventService:
    """One node on one event loop: what links and connections need from the server."""

    def __init__(self, settings: NodeSettings, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self.limits: Limits = settings.limits
        self.container_id = settings.container_id
        self.offered: tuple[str, ...] = OFFERED
        self.properties = announced(self.limits.unsettled, store.identity)
        self.store = store
        self.node = Node(
            store,
            sync=str(settings.sync),
            new_id=lambda: uuid.uuid4().hex,
            auto_create_partitions=settings.auto_create_partitions,
            partitions_max=self.limits.partitions,
            groups=settings.groups,
            producers=settings.producers,
            limits=self.limits,
            access=Access(settings.access, settings.user_groups),
            redirects=Redirects(settings.redirects),
        )
        self.node.sends.split = receiving.split_sections
        self.effects = Effects(self.node, loop, self.monotonic_ms)
        self.confirming = Confirming(self.cursors_moved)
        self.leases: Leases | None = None
        self.home_figures: Callable[[], Iterable[Figure]] = tuple
        """Both of a node whose groups and cursors have homes: see `node/attaching/homed.py`."""
        self.audit = Audit(self.monotonic_ms, Changes(self.now_ms))
        self.quotas = Quotas(settings.quotas, self.monotonic_ms, self.later)
        self.commits: Final = Commits(store, self.node, self.limits, soon=loop.call_soon, wake=self._wake)
        self.iteration = Iteration(loop.call_soon)
        self.turns = Turns(loop.call_soon, self.iteration)
        self.backlog = Turns(loop.call_soon, self.iteration, "received", first=self.commits.begin)
        """Connections whose received bytes need more than one loop iteration."""
        self._answers: Final = OrderedCalls(loop.call_soon, self.iteration, self.effects.carry_out)
        # At least one message of the largest allowed size must fit.
        bytes_max = max(self.limits.pending_bytes, self.limits.message_bytes)
        self.unfinished = Unfinished(bytes_max, self.limits.idle_timeout_ms, self.monotonic_ms)
        self.ready = self.stopping = False
        self.latencies = Latencies()
        self.about = About(self.now_ms(), SettingsInForce(None, ()), settings.data_dir)
        """What the parts around the service tell about the node. They set it."""
        self.connections: dict[LiveConnection, None] = {}
        self.connections_max = self.limits.connections
        """The limit on connections; lower than configured if the process has too few file descriptors."""
        self.on_commit: Callable[[CommitDone], None] = lambda _done: None
        self.on_open: Callable[[ByteChannel], None] = lambda _channel: None
        """Called when an AMQP connection was opened on this channel, which includes a successful login."""
        self._loop = loop
        self._ticking: Final[deque[LiveConnection]] = deque()  # the present tick has not reached them
        self._pumps: Final = Pumps()
        self._pump_scheduled = self._wake_scheduled = False
        steps = (
            ("connections", self._tick_connections),
            ("groups", self._tick_node),
            ("cursors", self._tick_cursors),
            ("effects", self.effects.carry_out),
            ("readers", self.node.held.age),
            ("unfinished", self.unfinished.expire),
        )
        self.regular = Regular(loop, store, steps, wall_ms=self.now_ms, monotonic_ms=self.monotonic_ms)
        self._cursor_flush: asyncio.TimerHandle | None = None
        self._connect(store)

    def _connect(self, store: Store) -> None:
        """Connect the parts: the requests about this service, and what the store reports."""
        self.node.types[names.CONNECTION_TYPE] = ConnectionRequests(self).operations()
        self.node.types[names.NODE_TYPE] = HealthRequests(self).operations()
        store.on_commit, store.states.on_written = self._committed, self._state_written
        self.node.lookups.on_answer = self._looked_up
        if (others := store.others) is not None:
            others.on_grown, others.on_lost, others.on_truncated = self._grown, self._lost, self._truncated
            others.on_taken = self._taken

    # -- clock and log lines

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds of a monotonic clock, for time limits."""
        return time.monotonic_ns() // 1_000_000

    def on_loop(self, call: Callable[[], None]) -> None:
        """Call `call` on the event loop's thread. May be used from any thread."""
        self._loop.call_soon_threadsafe(call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call `call` once, after this delay."""
        self._loop.call_later(delay_ms / 1000, call)

    def warn(self, event: str, **fields: object) -> None:
        """Write a log line of level warning."""
        log.warning(event, **fields)

    def note(self, event: str, **fields: object) -> None:
        """Write a log line of level debug."""
        log.debug(event, **fields)

    # -- events in

    def await_commit(self, link: Committing, deliveries: Sequence[Pointer], wait: Wait) -> None:
        """See `Commits.wait`."""
        self.commits.wait(link, deliveries, wait)

    def overloaded(self, link: Committing) -> bool:
        """See `Commits.overloaded`."""
        return self.commits.overloaded(link)

    def stall(self, link: Committing, queue: CommitQueue) -> None:
        """See `Commits.stall`."""
        self.commits.stall(link, queue)

    def _committed(self, done: CommitDone) -> None:
        self.latencies.add(self.monotonic_ms(), done.seconds)
        self.on_commit(done)
        self.commits.ended(done)

    # -- events out

    def _wake(self) -> None:
        """Pump the links of the consumers that waited for records that are there now."""
        until = perf_counter() + PUMP_TURN_S
        for consumer in self.node.woken():
            self._pump_consumer(consumer)
            if perf_counter() > until:
                self._wake_later()
                break
        if self._pumps.new:
            self._pump_new()

    def _wake_later(self) -> None:
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake_turn)

    def _wake_turn(self) -> None:
        self._wake_scheduled = False
        self._wake()

    def _pump_consumer(self, consumer: Consuming) -> None:
        link = self.effects.consumer(consumer)
        if link is not None:
            self.pump_later(link, new=True)

    def pump_later(self, link: Pumped, *, new: bool = False) -> None:
        """Pump a link in a later loop iteration. `new`: it has read all but new events."""
        self._pumps.add(link, new=new or link.near_end)
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump_turn)

    def _pump_turn(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _pump(self) -> None:
        """Pump the links that wait at the start of this call.

        Links that can send more are pumped again in the next loop iteration.
        """
        # Not links that are added meanwhile: the loop must serve its sockets in between.
        self._pump_links(self._pumps.take, len(self._pumps), self.iteration.share_ends_s())
        if self._pumps and not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump_turn)

    def _pump_new(self) -> None:
        """Pump links with new events now. Several commits can end in one loop iteration: old events wait."""
        self._pump_links(self._pumps.take_new, len(self._pumps.new), perf_counter() + PUMP_TURN_S)

    def _pump_links(self, take: Callable[[], Pumped], count: int, until: float) -> None:
        for _ in range(min(count, PUMPS_A_TURN)):
            self._pump_link(take())
            if perf_counter() > until:
                break

    def _pump_link(self, link: Pumped) -> None:
        if link.alive:
            try:
                link.pump()
                link.owner.flush()
            except Exception:
                log.exception("connection_failed", link=link.name, during="pump")
                link.owner.cut("the node failed to serve a link")

    # -- cursors and epochs

    def cursors_moved(self) -> None:
        """Write moved cursors after `groups.cursor_flush_ms`, so that many settlements need one write."""
        if self._cursor_flush is None:
            self._cursor_flush = self._loop.call_later(
                self.settings.groups.cursor_flush_ms / 1000, self._flush_cursors
            )

    def _flush_cursors(self) -> None:
        self._cursor_flush = None  # first, so that a failure below does not prevent the next flush
        # A home writes each cursor alone, and says when it is durable.
        alone = self.node.flushing_cursors or self.leases is not None
        then = None if alone else self.confirming.next_write()
        more = self.node.flush_cursors(self.now_ms(), CURSORS_A_TURN, then)
        self._cursor_flush = self._loop.call_later(0, self._flush_cursors) if more else None
        if self.node.cursors_waiting:
            self.cursors_moved()

    def _state_written(self, number: int, failure: StorageError | None) -> None:
        if failure is not None:
            log.error("state_not_written", reason=str(failure))
        # Many attaches may wait for one write; each of a wide log takes milliseconds.
        self._answers.add(lambda: self.node.state_written(number, failure, self.monotonic_ms()))

    def _looked_up(self) -> None:
        # Many attaches may wait for the creation of one log.
        self._answers.add(lambda: self.node.lookups.proceed(self.monotonic_ms()))

    def reassociate(self) -> None:
        """Apply changed redirects.

        Links get the partitions that this node serves now, or are detached with a link redirect.
        """
        for consumer in self.node.reassociate():
            self._pump_consumer(consumer)
        self.effects.carry_out()

    # -- other nodes

    def _grown(self, partitions: Sequence[Partition]) -> None:
        """Other nodes wrote to these partitions."""
        self.node.grown(partitions)
        self._wake()

    def _lost(self, lost: StoredLog, reason: str) -> None:
        """A log was deleted elsewhere."""
        log.warning("log_lost", log=lost.name, reason=reason)
        self.node.lost(lost, reason, self.monotonic_ms())
        self.effects.carry_out()

    def _taken(self, taken: StoredLog, reason: str, stolen: bool) -> None:
        """An idempotent producer is not at this node any more."""
        (log.info if stolen else log.warning)("producer_lost", log=taken.name, reason=reason)
        self.node.taken(taken, reason, stolen=stolen, now_ms=self.monotonic_ms())
        self.effects.carry_out()

    def _truncated(self, partition: Partition, first: int, end: int) -> None:
        """Accepted events were lost."""
        log.error("events_lost", log=partition.log, partition=partition.index, first=first, last=end - 1)
        self.node.truncated(partition, first, self.monotonic_ms())
        self.effects.carry_out()

    # -- time

    def start(self) -> None:
        """Start the regular work."""
        self.regular.start()
        # With no cursor moved, this gives the node the date, which is stored with each cursor.
        self.node.flush_cursors(self.now_ms())

    async def quiet(self, timeout_s: float) -> None:
        """Stop reading, and wait until everything that was received is answered, at most `timeout_s`.

        Producers thereby learn the outcomes of their last events.
        """
        for connection in self.connections:
            connection.pause(Pause.STOPPING)
        await self.commits.quiet(timeout_s)

    def _tick_connections(self) -> None:
        if not self._ticking:
            self._ticking.extend(self.connections)
            self._tick_some()

    def _tick_some(self) -> None:
        """Tick connections for a part of one loop iteration: nothing waits for their ticks.

        Each iteration also handles the end of those that the tick has closed.
        """
        now_ms, until = self.monotonic_ms(), perf_counter() + LEAST_S
        while self._ticking:
            connection = self._ticking.popleft()
            if connection in self.connections:  # it may have ended since the tick began
                try:
                    connection.tick(now_ms)
                except Exception:
                    log.exception("connection_failed", peer=connection.channel.peer, during="tick")
                    connection.channel.abort()
            if perf_counter() > until:
                break
        if self._ticking:
            self._loop.call_soon(self._tick_some)

    def _tick_node(self) -> None:
        self.node.tick(self.monotonic_ms())

    def _tick_cursors(self) -> None:
        if self._cursor_flush is None:
            self._flush_cursors()  # even if no cursor moved: this gives the node the current date

    def stop(self) -> None:
        """Stop the regular work."""
        self.ready = False
        self.regular.stop()

    def finish(self) -> None:
        """Write the remaining cursors after all connections have ended. The caller closes the store next."""
        if self._cursor_flush is not None:
            self._cursor_flush.cancel()
            # The flush is done in parts: see `flush_cursors`.
            while self.node.flushing_cursors or self.node.cursors_waiting:
                self.node.flush_cursors(self.now_ms())

    # -- status

    def uses(self) -> dict[str, Use]:
        """How much of each limit of the node is in use, by the name of the limit."""
        return {
            "pending_bytes": Use(self.store.pending_bytes, self.limits.pending_bytes),
            "connections": Use(len(self.connections), self.connections_max),
            **self.node.uses(),
            **self.turns.uses(),
            **self.store.facts().uses,
        }

    def not_ready(self) -> str | None:
        """Why the node does not serve normally; None if it does. Cheap enough for a frequent health probe."""
        if self.stopping:
            return "the node is stopping"
        return self.regular.hindrance() if self.ready else "the node accepts no events now"

    def status(self) -> Steps[NodeStatus]:
        """Return the current figures."""
        return picture(self)
