"""A dispatcher over logs and places in memory, and routes to try it with."""

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
from knative_gateway.ports import Checkpoints, Delivery, EventLog, Failure, Range, Route, Routes, Subscriber
from tests.knative_gateway.memory_log import MemoryEventLog

LOG = "broker.default.b"


class MemoryCheckpoints:
    """Places in a dictionary; what has numbers below zero is in `notes`. `failing`: what the next calls raise;
    `recorded` and `saved`: how often failures and positions were."""

    def __init__(self) -> None:
        self.places: dict[str, dict[int, str]] = {}
        self.notes: dict[str, dict[int, str]] = {}
        self.ranges: dict[tuple[str, int], Sequence[Range]] = {}
        self.failures: dict[str, list[Failure]] = {}
        self.failing: list[Exception] = []
        self.recorded = self.saved = 0

    async def load(self, uids: Collection[str]) -> Mapping[str, Mapping[int, str]]:
        self._fail()
        found = {uid: {**self.places.get(uid, {}), **self.notes.get(uid, {})} for uid in uids}
        return {uid: kept for uid, kept in found.items() if kept}

    async def done(self, uids: Collection[str]) -> Mapping[tuple[str, int], Sequence[Range]]:
        return {key: ranges for key, ranges in self.ranges.items() if key[0] in uids}

    async def begin(self, positions: Mapping[str, Mapping[int, str]]) -> Mapping[str, Mapping[int, str]]:
        kept = await self.load(positions)
        for uid, places in positions.items():
            self._set(uid, {partition: position for partition, position in places.items() if partition not in kept.get(uid, {})})
        return await self.load(positions)

    async def save(self, positions: Mapping[tuple[str, int], str], done: Mapping[tuple[str, int], Sequence[Range]] | None = None) -> None:
        self._fail()
        self.saved += 1
        for (uid, partition), position in positions.items():
            kept = self.places.setdefault(uid, {})
            kept[partition] = max(kept.get(partition, ""), position)
        self.ranges.update(done or {})

    async def reset(self, uid: str, positions: Mapping[int, str]) -> None:
        self._fail()
        self._set(uid, positions)
        for partition in positions:
            self.ranges.pop((uid, partition), None)

    async def noted(self, *, below: int) -> Mapping[str, Mapping[int, str]]:
        self._fail()
        found = {uid: {row: text for row, text in notes.items() if row < below and text} for uid, notes in self.notes.items()}
        return {uid: rows for uid, rows in found.items() if rows}

    async def forget(self, uid: str) -> None:
        self.places.pop(uid, None)
        self.notes.pop(uid, None)
        self.failures.pop(uid, None)

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        self._fail()
        self.recorded += 1
        for uid, each in failures.items():
            self.failures.setdefault(uid, []).extend(each)

    async def history(self, uid: str) -> Sequence[Failure]:
        return self.failures.get(uid, [])[:-101:-1]

    def _set(self, uid: str, positions: Mapping[int, str]) -> None:
        for partition, position in positions.items():
            (self.places if partition >= 0 else self.notes).setdefault(uid, {})[partition] = position

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
        self, settings: DispatchSettings | None = None, *, partitions: int = 2, log: EventLog | None = None, kept: Checkpoints | None = None
    ) -> None:
        self.memory = MemoryEventLog()
        self.log: EventLog = log or self.memory
        self.checkpoints = MemoryCheckpoints()
        self.kept: Checkpoints = kept or self.checkpoints
        self.settings = settings or DispatchSettings(flush_ms=20, idle_flush_ms=20, drain_s=0.2)
        self.partitions = partitions
        self.version = 0
        self.dispatcher: Dispatcher
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.log.ensure(LOG, partitions=self.partitions, retention_ms=None)
        self.sender = sender = await self._stack.enter_async_context(Sender())
        self.dispatcher = await self._stack.enter_async_context(Dispatcher(self.log, self.kept, sender, self.settings))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def serve(self, *subscribers: Subscriber) -> None:
        """These and no others; returns when they are."""
        await self.use(route(*subscribers))

    async def use(self, *routes: Route) -> None:
        self.version += 1
        wanted = {each.path: each for each in routes}
        self.dispatcher.use(Routes(self.version, wanted))
        await until(lambda: dict(self.dispatcher.applied.by_path) == wanted)

    async def send(self, *events: CloudEvent) -> None:
        for each in events:
            await self.log.append(LOG, encode(each))


async def until(condition: Any, timeout_s: float = 10.0) -> None:
    """Wait for something that nobody announces."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  it is what nobody announces
            await asyncio.sleep(0.002)
