"""Logs in memory: the twin of the engine's logs, with the same tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import chain

from amqp_streams.wire.sections import group_key
from knative_gateway.errors import GatewayError, UnavailableError
from knative_gateway.ports import Extents, Stored


class MemoryEventLog:
    """Partitions are lists. `removed`: events at the beginning of a partition that retention removed;
    `asked`: requests for extents; `failing`: what the next appends raise; `gate`: appends wait while it is
    closed.
    """

    def __init__(self) -> None:
        self.logs: dict[str, list[list[Stored]]] = {}
        self.removed: dict[tuple[str, int], int] = {}
        self.asked = 0
        self._made = 0
        self._incarnations: dict[str, str] = {}
        self.failing: list[GatewayError] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._grown = asyncio.Condition()
        self._turn = 0
        self._posting: set[asyncio.Task[None]] = set()

    async def ensure(self, log: str, *, partitions: int, retention_ms: int | None) -> int:
        if log not in self.logs:
            self.logs[log] = [[] for _ in range(partitions)]
            self._made += 1
            self._incarnations[log] = f"incarnation {self._made}"
        return len(self.logs[log])

    async def delete(self, log: str) -> None:
        self.logs.pop(log, None)

    async def append(self, log: str, message: bytes) -> None:
        await self.gate.wait()
        if self.failing:
            raise self.failing.pop(0)
        if log not in self.logs:
            message_text = f"there is no log {log}"
            raise UnavailableError(message_text)
        partitions = self.logs[log]
        key = group_key(message)
        self._turn += 1
        index = (self._turn if key is None else sum(key.encode())) % len(partitions)
        partitions[index].append(Stored(index, f"{len(partitions[index]):016d}", self._turn, message))
        async with self._grown:
            self._grown.notify_all()

    def post(self, log: str, message: bytes, told: Callable[[GatewayError | None], None]) -> None:
        async def store() -> None:
            try:
                await self.append(log, message)
            except GatewayError as error:
                told(error)
            else:
                told(None)

        task = asyncio.get_running_loop().create_task(store())
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)

    async def ends(self, log: str) -> Mapping[int, str | None]:
        if log not in self.logs:
            message = f"there is no log {log}"
            raise UnavailableError(message)
        return {index: events[-1].offset if events else None for index, events in enumerate(self.logs[log])}

    async def extents(self, log: str) -> Extents:
        ends, self.asked = await self.ends(log), self.asked + 1
        first = {
            index: f"{gone:016d}" if len(events) > (gone := self.removed.get((log, index), 0)) else None
            for index, events in enumerate(self.logs[log])
        }
        last = {index: None if first[index] is None else end for index, end in ends.items()}
        return Extents(self._incarnations[log], first, last)

    async def before(self, log: str, at_ms: int) -> Mapping[int, str | None]:
        earlier = {
            index: [event for event in events if event.timestamp_ms <= at_ms]
            for index, events in enumerate(self.logs[log])
        }
        return {index: events[-1].offset if events else None for index, events in earlier.items()}

    async def read_range(
        self, log: str, partition: int, start: int, end: int, *, bytes_max: int
    ) -> Sequence[Stored]:
        if log not in self.logs:
            message = f"there is no log {log}"
            raise UnavailableError(message)
        found: list[Stored] = []
        for event in self.logs[log][partition][self._first(log, partition, start - 1) : end]:
            if bytes_max <= 0:
                break
            found.append(event)
            bytes_max -= len(event.message)
        return found

    async def read(self, log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
        positions = {partition: -1 if offset is None else int(offset) for partition, offset in after.items()}
        while True:
            for partition, position in positions.items():
                if batch := self.logs[log][partition][self._first(log, partition, position) :]:
                    positions[partition] = int(batch[-1].offset)
                    yield batch
            async with self._grown:
                await self._grown.wait_for(
                    lambda: any(
                        len(self.logs[log][partition]) > self._first(log, partition, position)
                        for partition, position in positions.items()
                    )
                )

    def _first(self, log: str, partition: int, position: int) -> int:
        """The index of the first event after a position that retention has left."""
        return max(position + 1, self.removed.get((log, partition), 0))

    def messages(self, log: str) -> list[bytes]:
        """Return all messages of a log, in the order of arrival."""
        return [
            event.message
            for event in sorted(chain.from_iterable(self.logs[log]), key=lambda event: event.timestamp_ms)
        ]
