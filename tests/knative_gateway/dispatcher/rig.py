"""A dispatcher with logs and cursors in memory, and routes for tests."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from event_formats.amqp_binding import encode
from event_formats.event import CloudEvent, Value
from knative_gateway.dispatcher.dispatcher import Dispatcher
from knative_gateway.dispatcher.posting.sending import Sender
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.ports import (
    CursorStore,
    Delivery,
    EventLog,
    Failure,
    Range,
    Route,
    Routes,
    StoredCursor,
    Subscriber,
)
from tests.knative_gateway.memory_log import MemoryEventLog

LOG = "broker.default.b"


class MemoryCursorStore:
    """Cursors in dictionaries. `failing`: what the next calls raise; `recorded` and `saved`: how often
    failures and positions were stored."""

    def __init__(self) -> None:
        self.positions: dict[str, dict[int, str]] = {}
        self.incarnations: dict[str, str] = {}
        self.asked: dict[str, dict[int, str]] = {}
        self.ranges: dict[tuple[str, int], Sequence[Range]] = {}
        self.failures: dict[str, list[Failure]] = {}
        self.failing: list[Exception] = []
        self.recorded = self.saved = 0

    async def load(self, uids: Collection[str]) -> Mapping[str, StoredCursor]:
        self._fail()
        known = self.positions.keys() | self.incarnations.keys() | self.asked.keys()
        return {uid: self._stored(uid) for uid in uids if uid in known}

    async def done(self, uids: Collection[str]) -> Mapping[tuple[str, int], Sequence[Range]]:
        return {key: ranges for key, ranges in self.ranges.items() if key[0] in uids}

    async def begin(self, cursors: Mapping[str, StoredCursor]) -> Mapping[str, StoredCursor]:
        self._fail()
        for uid, cursor in cursors.items():
            self.positions[uid] = {**cursor.positions, **self.positions.get(uid, {})}
            if cursor.incarnation is not None:
                self.incarnations.setdefault(uid, cursor.incarnation)
        return await self.load(cursors)

    async def save(
        self,
        positions: Mapping[tuple[str, int], str],
        done: Mapping[tuple[str, int], Sequence[Range]] | None = None,
        incarnations: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        if not positions and not done:
            return  # as the real store: it does not need the database
        self._fail()
        self.saved += 1

        def is_current(key: tuple[str, int]) -> bool:
            known, given = self.incarnations.get(key[0]), (incarnations or {}).get(key)
            return not known or not given or known == given

        for (uid, partition), position in positions.items():
            if is_current((uid, partition)):
                stored = self.positions.setdefault(uid, {})
                stored[partition] = max(stored.get(partition, ""), position)
        self.ranges.update({key: ranges for key, ranges in (done or {}).items() if is_current(key)})

    async def reset(self, uid: str, positions: Mapping[int, str]) -> None:
        self._fail()
        self.positions.setdefault(uid, {}).update(positions)
        for partition in positions:
            self.ranges.pop((uid, partition), None)

    async def restart(self, uid: str, positions: Mapping[int, str], incarnation: str) -> None:
        await self.reset(uid, positions)
        self.asked.pop(uid, None)
        self.incarnations[uid] = incarnation

    async def ask_replay(self, uid: str, to: Mapping[int, str]) -> None:
        self._fail()
        self.asked.setdefault(uid, {}).update(to)

    async def replay(self, uid: str, positions: Mapping[int, str]) -> None:
        await self.reset(uid, positions)
        for partition in positions:
            self.asked.get(uid, {}).pop(partition, None)

    async def replays(self) -> Mapping[str, Mapping[int, str]]:
        self._fail()
        return {uid: dict(to) for uid, to in self.asked.items() if to}

    async def forget(self, uid: str) -> None:
        for stored in (self.positions, self.incarnations, self.asked, self.failures):
            stored.pop(uid, None)

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        self._fail()
        self.recorded += 1
        for uid, each in failures.items():
            self.failures.setdefault(uid, []).extend(each)

    async def history(self, uid: str) -> Sequence[Failure]:
        return self.failures.get(uid, [])[:-101:-1]

    def _stored(self, uid: str) -> StoredCursor:
        positions, asked = dict(self.positions.get(uid, {})), dict(self.asked.get(uid, {}))
        return StoredCursor(positions, self.incarnations.get(uid), asked)

    def _fail(self) -> None:
        if self.failing:
            raise self.failing.pop(0)


def subscriber(uid: str, url: str | None, **fields: Any) -> Subscriber:
    """A Trigger of the Broker that takes everything."""
    made = Subscriber(uid, "Trigger", "default", uid, 1, (), url, LOG, None, Delivery())
    return replace(made, **fields)


def route(*subscribers: Subscriber, log: str = LOG) -> Route:
    return Route(f"uid-of-{log}", "Broker", "default", "b", f"/{log}", log, subscribers)


def event(number: int | str, type_: str = "t", data: bytes | None = None, **more: Value) -> CloudEvent:
    return CloudEvent({"specversion": "1.0", "id": str(number), "source": "/s", "type": type_, **more}, data)


class Rig:
    """Use with `async with`."""

    def __init__(
        self,
        settings: DispatchSettings | None = None,
        *,
        partitions: int = 2,
        log: EventLog | None = None,
        kept: CursorStore | None = None,
    ) -> None:
        self.memory = MemoryEventLog()
        self.log: EventLog = log or self.memory
        self.store = MemoryCursorStore()
        self.kept: CursorStore = kept or self.store
        self.settings = settings or DispatchSettings(flush_ms=20, idle_flush_ms=20, drain_s=0.2)
        self.partitions = partitions
        self.version = 0
        self.dispatcher: Dispatcher
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.log.ensure(LOG, partitions=self.partitions, retention_ms=None)
        self.sender = sender = await self._stack.enter_async_context(Sender())
        self.dispatcher = await self._stack.enter_async_context(
            Dispatcher(self.log, self.kept, sender, self.settings)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def serve(self, *subscribers: Subscriber) -> None:
        """Serve these subscribers and no others. Returns when they are served."""
        await self.use(route(*subscribers))

    async def use(self, *routes: Route) -> None:
        self.version += 1
        wanted = {each.path: each for each in routes}
        self.dispatcher.use(Routes(self.version, wanted))
        await until(lambda: dict(self.dispatcher.applied.by_path) == wanted)

    async def send(self, *events: CloudEvent) -> None:
        for each in events:
            await self.log.append(LOG, encode(each))


async def until(condition: Any, timeout_s: float = 60.0) -> None:
    """Wait for a condition that no event reports."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  no event reports it
            await asyncio.sleep(0.002)


async def completed(rig: Rig, uid: str, count: int) -> None:
    """Wait until the stored position is after this many events."""
    await until(lambda: rig.store.positions[uid] == {0: f"{count - 1:016d}"})
    await rig.dispatcher.store_histories()
