"""[io] Producers and readers that use several nodes, and record everything that they see.

Each connects to a node of its own first, and to the other nodes when it loses this one. They continue after
every error, as a program under a service manager does.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from amqp_streams import names
from amqp_streams.client import EARLIEST, AfterOffset, Client, EndpointError, Event, RetryPolicy, connect
from amqp_streams.client.aio import Producer
from amqp_streams.client.errors import TimedOutError
from amqp_streams.client.producing.pending import Pending
from amqp_streams.errors import AmqpStreamsError
from bench.brokers.verdict import Place
from bench.brokers.world import event, place

IDLE_MS: Final = 5_000
WINDOW: Final = 500
REFUSED_S: Final = 60.0
"""How long the producer of a node tries to send an event."""
_AGAIN_S: Final = 0.2
_REASON_MAX: Final = 300


def client(urls: Sequence[str]) -> Client:
    """A client that never gives up."""
    retry = RetryPolicy(attempts_max=1 << 30, elapsed_max_ms=1 << 40, wait_max_ms=1000, first_connect=True)
    return connect(urls, retry=retry, idle_timeout_ms=IDLE_MS, timeout=10.0)


def longest(moments: Iterable[float], since: float, until: float) -> float:
    """The longest time between two of these moments that follow each other."""
    within = [since, *(moment for moment in moments if since < moment < until), until]
    return max(later - earlier for earlier, later in pairwise(within))


@dataclass(slots=True)
class Seen:
    """What one client saw. `times`: when each event was accepted or came, by the monotonic clock."""

    times: list[float] = field(default_factory=list)
    errors: list[tuple[float, str]] = field(default_factory=list)

    def note(self, error: BaseException) -> None:
        """Note an error that reached the program."""
        text = " ".join(str(error).split())[:_REASON_MAX]
        self.errors.append((time.monotonic(), f"{type(error).__name__}: {text}"))

    def reasons(self, since: float, until: float) -> Counter[str]:
        """The errors between two moments."""
        return Counter(text for moment, text in self.errors if since <= moment <= until)


@dataclass(slots=True)
class Writer:
    """A producer that sends to all partitions in turn, `rate` events a second.

    `idempotent`: the node stores each event once, also if it is sent again. `accepted`: by
    partition, the numbers of accepted events and the moments at which they were accepted.
    `refused`: those that were sent again after so long that Kafka may not have taken them in time.
    """

    name: str
    urls: Sequence[str]
    log: str
    partitions: int
    rate: float
    idempotent: bool = False
    seen: Seen = field(default_factory=Seen)
    accepted: dict[int, dict[int, float]] = field(default_factory=dict)
    refused: dict[int, set[int]] = field(default_factory=dict)
    sent: int = 0
    resent: int = 0
    unknown: int = 0
    _watched: set[asyncio.Task[None]] = field(default_factory=set)

    def pause(self, since: float, until: float) -> float:
        """The longest time in which no event of some partition was accepted."""
        partitions = (self.accepted.get(index, {}) for index in range(self.partitions))
        return max(longest(numbers.values(), since, until) for numbers in partitions)

    async def run(self, ending: asyncio.Event) -> None:
        """Send until the end, and wait for every outcome."""
        while not ending.is_set():
            try:
                own = self.name if self.idempotent else None
                async with (
                    client(self.urls) as connected,
                    connected.producer(self.log, window=WINDOW, producer_id=own) as producer,
                ):
                    await self._send(producer, ending)
            except (AmqpStreamsError, TimeoutError) as error:
                self.seen.note(error)
                await asyncio.sleep(_AGAIN_S)
        await asyncio.gather(*self._watched)

    async def _send(self, producer: Producer, ending: asyncio.Event) -> None:
        began, first = time.monotonic(), self.sent
        while not ending.is_set():
            number, self.sent = self.sent, self.sent + 1
            partition = number % self.partitions
            pending = await self._posted(producer, partition, number)
            task = asyncio.create_task(self._watch(pending, partition, number))
            self._watched.add(task)
            task.add_done_callback(self._watched.discard)
            behind = began + (self.sent - first) / self.rate - time.monotonic()
            if behind < -1.0:
                # It waited: what was not sent meanwhile is not sent at once.
                began, first = time.monotonic(), self.sent
            await asyncio.sleep(max(0.0, behind))

    async def _posted(self, producer: Producer, partition: int, number: int) -> Pending:
        """Post an event, however long the window is full."""
        while True:
            with suppress(TimedOutError):
                return await producer.post(Event(event(self.name, number)), partition)

    async def _watch(self, pending: Pending, partition: int, number: int) -> None:
        posted = time.monotonic()
        try:
            receipt = await pending
        except AmqpStreamsError as error:
            self.unknown += 1
            self.seen.note(error)
            return
        moment = time.monotonic()
        if receipt.attempts > 1:
            self.resent += 1
            if moment - posted >= REFUSED_S:
                self.refused.setdefault(partition, set()).add(number)
        self.accepted.setdefault(partition, {})[number] = moment
        self.seen.times.append(moment)


@dataclass(slots=True)
class Reader:
    """A consumer of one partition, from its first event on."""

    name: str
    urls: Sequence[str]
    log: str
    partition: int
    seen: Seen = field(default_factory=Seen)
    got: list[Place] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The offset of the last event; -1 without one."""
        return self.got[-1].offset if self.got else -1

    def pause(self, since: float, until: float) -> float:
        """The longest time without an event."""
        return longest(self.seen.times, since, until)

    async def run(self, ending: asyncio.Event) -> None:
        """Read until the end."""
        while not ending.is_set():
            start = AfterOffset(self.last) if self.got else EARLIEST
            try:
                async with (
                    client(self.urls) as connected,
                    connected.consumer(self.log, partition=self.partition, start=start) as consumer,
                ):
                    while not ending.is_set():
                        for received in await consumer.receive(500, timeout=0.5):
                            assert received.offset is not None
                            assert isinstance(received.body, bytes)
                            self.got.append(place(received.offset, received.body))
                            self.seen.times.append(time.monotonic())
            except (AmqpStreamsError, TimeoutError) as error:
                self.seen.note(error)
                if isinstance(error, EndpointError) and error.condition == names.RESOURCE_DELETED:
                    # Another log may have its name now.
                    self.got.clear()
                await asyncio.sleep(_AGAIN_S)


@dataclass(slots=True)
class Load:
    """All producers and readers of a log."""

    writers: Sequence[Writer]
    readers: Sequence[Reader]
    _stop_writing: asyncio.Event = field(default_factory=asyncio.Event)
    _stop_reading: asyncio.Event = field(default_factory=asyncio.Event)
    _writing: list[asyncio.Task[None]] = field(default_factory=list)
    _reading: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Begin to send and to read."""
        self._reading = [asyncio.create_task(each.run(self._stop_reading)) for each in self.readers]
        self._writing = [asyncio.create_task(each.run(self._stop_writing)) for each in self.writers]

    async def stop_writing(self, within_s: float) -> None:
        """Wait until every event has its outcome.

        Raises:
            TimeoutError: an event has none in time.
        """
        self._stop_writing.set()
        async with asyncio.timeout(within_s):
            await asyncio.gather(*self._writing)

    async def stop_reading(self, ends: dict[int, int], within_s: float) -> bool:
        """Let the readers read up to these last offsets, at most this long; whether they did."""
        until = time.monotonic() + within_s

        done = all([await _reached(each, ends.get(each.partition, -1), until) for each in self.readers])
        self._stop_reading.set()
        await asyncio.gather(*self._reading)
        return done

    def accepted(self, since: float = 0.0) -> dict[int, dict[str, set[int]]]:
        """The numbers accepted since a moment, by partition and producer."""
        found: dict[int, dict[str, set[int]]] = {}
        for writer in self.writers:
            for partition, numbers in writer.accepted.items():
                late = {number for number, moment in numbers.items() if moment >= since}
                found.setdefault(partition, {})[writer.name] = late
        return found

    def refused(self) -> dict[int, dict[str, set[int]]]:
        """The accepted numbers that Kafka may have refused before, by partition and producer."""
        found: dict[int, dict[str, set[int]]] = {}
        for writer in self.writers:
            for partition, numbers in writer.refused.items():
                found.setdefault(partition, {})[writer.name] = numbers
        return found


async def _reached(reader: Reader, last: int, until: float) -> bool:
    """Wait for a reader to get this offset, until this moment; whether it did."""
    while reader.last < last:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.2)
    return True
