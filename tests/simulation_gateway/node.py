"""A log node in memory, which can become unreachable, stall, push back, lose old events, and lose whole logs;
the client of one gateway; and the shares of replicas.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from random import Random
from typing import Final

from amqp_streams.errors import AmqpStreamsError
from amqp_streams.wire.sections import group_key
from knative_gateway.errors import GatewayError, OverloadedError, UnavailableError
from knative_gateway.ports import Extents, Stored
from tests.simulation_gateway.loop import CURRENT, Process, VirtualLoop

EPOCH_MS: Final = 1_700_000_000_000
APPEND_S: Final = 5.0
ANSWER_S: Final = 10.0
BATCH: Final = 50
OnStored = Callable[[str, str, Stored], None]


class Log:
    """One log. `removed`: how many events of each partition retention has taken."""

    def __init__(self, incarnation: str, partitions: int) -> None:
        self.incarnation: Final = incarnation
        self.partitions: Final[list[list[Stored]]] = [[] for _ in range(partitions)]
        self.removed: Final = [0] * partitions
        self.turn = 0


class Node:
    """The log node.

    `up`: it answers. `stalled`: it accepts requests, and neither stores nor answers. `full`: it refuses
    appends. `told`: called with log, incarnation and event when an event is durable.
    """

    def __init__(self, loop: VirtualLoop, random: Random, told: OnStored) -> None:
        self.loop: Final = loop
        self.random: Final = random
        self.logs: Final[dict[str, Log]] = {}
        self.up = True
        self.stalled = False
        self.full = False
        self.changed = asyncio.Event()
        self._told: Final = told
        self._made = 0
        self._store_ms = 0

    def wake(self) -> None:
        """Something that requests may wait for has changed."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until it holds; False: it does not, in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    @property
    def answers(self) -> bool:
        return self.up and not self.stalled

    def make(self, name: str, partitions: int) -> Log:
        self._made += 1
        log = self.logs[name] = Log(f"incarnation {self._made}", partitions)
        self.wake()
        return log

    def store(self, name: str, message: bytes, message_format: int = 0) -> Stored | None:
        """Store an event now; None: the log does not exist."""
        log = self.logs.get(name)
        if log is None:
            return None
        log.turn += 1
        try:
            key = group_key(message)
        except AmqpStreamsError:
            key = None
        index = (log.turn if key is None else sum(key.encode())) % len(log.partitions)
        events = log.partitions[index]
        stored = Stored(index, f"{len(events):020d}", EPOCH_MS + self.loop.now_ms, message, message_format)
        events.append(stored)
        self._told(name, log.incarnation, stored)
        self.wake()
        return stored

    async def append(self, name: str, message: bytes) -> None:
        """Store one event, in the order of the calls."""
        await asyncio.sleep(self.random.choice((0, 1, 1, 3)) / 1000)
        if self.full:
            raise OverloadedError("the log applies backpressure")
        if not await self.until(lambda: self.answers, APPEND_S):
            if self.up and self.random.random() < 0.5:
                self.loop.call_later(self.random.randint(1, 20_000) / 1000, self.store, name, message)
            raise UnavailableError(f"{name} did not take it within 5 s")
        # The answer to an event that is stored may be lost.
        if self.store(name, message) is None:
            raise UnavailableError(f"there is no log {name}")
        await asyncio.sleep(self.random.choice((0, 0, 1)) / 1000)
        if not self.up:
            raise UnavailableError("the connection to the node was lost")

    async def asked(self, name: str) -> Log:
        """An answer about a log."""
        await asyncio.sleep(self.random.choice((0, 1, 2)) / 1000)
        if not await self.until(lambda: self.answers, ANSWER_S):
            raise UnavailableError(f"{name}: the node does not answer")
        log = self.logs.get(name)
        if log is None:
            raise UnavailableError(f"{name}: there is no such log")
        return log


class NodeClient:
    """The node as a gateway uses it: `ports.EventLog`, and the part of `AmqpEventLog` that `server.Gateway`
    needs.
    """

    def __init__(self, node: Node, shares: "Shares") -> None:
        self.node: Final = node
        self._shares: Final = shares
        self._process: Final = CURRENT.get()
        self._posting: Final[dict[asyncio.Task[None], None]] = {}

    @property
    def problem(self) -> str | None:
        return None if self.node.answers else "the event log node is unreachable"

    @property
    def connected(self) -> bool:
        return self.node.up

    def shares(self) -> "Shares":
        return self._shares

    def _alive(self) -> None:
        if self._process is not None and self._process.dead:
            raise UnavailableError("this process was killed")

    async def __aenter__(self) -> "NodeClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._posting and self.node.up:
            await asyncio.wait(list(self._posting))
        for task in self._posting:
            task.cancel()

    async def wait_connected(self, timeout_s: float) -> None:
        if not await self.node.until(lambda: self.node.up, timeout_s):
            raise UnavailableError("the event log node does not answer")

    async def ensure(self, log: str, *, partitions: int, retention_ms: int | None) -> int:
        self._alive()
        try:
            made = await self.node.asked(log)
        except UnavailableError:
            if not self.node.answers:
                raise
            made = self.node.logs.get(log) or self.node.make(log, partitions)
        return len(made.partitions)

    async def delete(self, log: str) -> None:
        self._alive()
        try:
            await self.node.asked(log)
        except UnavailableError:
            if not self.node.answers:
                raise
        self._alive()
        self.node.logs.pop(log, None)
        self.node.wake()

    def forget(self, log: str) -> None:
        """See `AmqpEventLog.forget`. This client has no links."""

    async def append(self, log: str, message: bytes) -> None:
        self._alive()
        # What was handed over is stored even if its caller does not wait.
        await asyncio.shield(self._post(log, message))

    def _post(self, log: str, message: bytes) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self.node.append(log, message))
        self._posting[task] = None
        task.add_done_callback(lambda _: self._posting.pop(task, None))
        task.add_done_callback(lambda _: task.cancelled() or task.exception())
        return task

    def post(self, log: str, message: bytes, told: Callable[[GatewayError | None], None]) -> None:
        self._alive()

        def ended(task: "asyncio.Task[None]") -> None:
            if task.cancelled() or (self._process is not None and self._process.dead):
                return
            error = task.exception()
            assert error is None or isinstance(error, GatewayError), error
            told(error)

        self._post(log, message).add_done_callback(ended)

    async def ends(self, log: str) -> Mapping[int, str | None]:
        return (await self.extents(log)).last

    async def extents(self, log: str) -> Extents:
        found = await self.node.asked(log)
        self._alive()
        first, last = {}, {}
        for index, (events, removed) in enumerate(zip(found.partitions, found.removed, strict=True)):
            left = len(events) > removed
            first[index] = events[removed].offset if left else None
            last[index] = events[-1].offset if left else None
        return Extents(found.incarnation, first, last)

    async def before(self, log: str, at_ms: int) -> Mapping[int, str | None]:
        found = await self.node.asked(log)
        earlier = {
            index: [event for event in events if event.timestamp_ms <= at_ms]
            for index, events in enumerate(found.partitions)
        }
        return {index: events[-1].offset if events else None for index, events in earlier.items()}

    async def read(self, log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
        positions = dict(after)

        def more() -> bool:
            return self.node.answers and any(
                _next(self.node.logs.get(log), *each) for each in positions.items()
            )

        while True:
            await self.node.until(more)
            await asyncio.sleep(self.node.random.choice((0, 1, 5)) / 1000)
            self._alive()
            for partition, position in list(positions.items()):
                if batch := _next(self.node.logs.get(log), partition, position):
                    positions[partition] = batch[-1].offset
                    yield batch


def _next(log: Log | None, partition: int, after: str | None) -> Sequence[Stored]:
    if log is None or partition >= len(log.partitions):
        return ()
    start = max(-1 if after is None else int(after), log.removed[partition] - 1) + 1
    return log.partitions[partition][start : start + BATCH]


class Share:
    """One replica's share of one log."""

    def __init__(self, shares: "Shares", log: str, changed: Callable[[], None]) -> None:
        self.partitions: frozenset[int] | None = frozenset()
        self.process: Final[Process | None] = CURRENT.get()
        self.log: Final = log
        self._shares: Final = shares
        self._changed: Final = changed
        self._context: Final = copy_context()

    def become(self, partitions: Iterable[int]) -> None:
        new = frozenset(partitions)
        if new != self.partitions and not (self.process is not None and self.process.dead):
            self.partitions = new
            self._context.copy().run(self._changed)

    async def close(self) -> None:
        self._shares.leave(self)


class Shares:
    """Distributes partitions evenly over the running replicas, as a consumer group of the node does."""

    def __init__(self, node: Node, random: Random, moved: Callable[[str], None]) -> None:
        """`moved` is called with a log whose partitions get other owners."""
        self._moved: Final = moved
        self.members: Final[dict[str, list[Share]]] = {}
        self._node: Final = node
        self._random: Final = random

    def share(self, log: str, changed: Callable[[], None]) -> Share:
        share = Share(self, log, changed)
        self.members.setdefault(log, []).append(share)
        self._soon(log)
        return share

    def leave(self, share: Share) -> None:
        self.members[share.log].remove(share)
        self._soon(share.log)

    def killed(self, process: Process) -> None:
        """The node notices later that a member has ended."""
        for log, members in self.members.items():
            for share in [each for each in members if each.process is process]:
                members.remove(share)
                self._soon(log, self._random.choice((1, 1000, 60_000)))

    def _soon(self, log: str, after_ms: int = 1) -> None:
        self._node.loop.call_later(after_ms / 1000, self._spread, log)

    def _spread(self, log: str) -> None:
        members, found = self.members[log], self._node.logs.get(log)
        if found is None or not self._node.answers:
            self._soon(log, 1000)
            return
        wanted = {
            share: set(range(place, len(found.partitions), len(members)))
            for place, share in enumerate(members)
        }
        self._moved(log)
        for share, partitions in wanted.items():  # those that must leave, first
            share.become((share.partitions or frozenset()) & partitions)
        for share, partitions in wanted.items():
            if share in members:
                share.become(partitions)
