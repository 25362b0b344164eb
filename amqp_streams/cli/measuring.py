"""The measurements of `amqp-streams bench`.

Latency is measured from the moment when an event is due, not from when it was sent: if a node stops for a
second, each event that was due in that second shows it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

from amqp_streams.cli.connection import Endpoint, opened
from amqp_streams.cli.statistics import Latencies, Pace, Result
from amqp_streams.cli.terminal.console import Advance
from amqp_streams.client import EARLIEST, LATEST, Consumer, Event, Producer, Receipt, SendError
from amqp_streams.errors import AmqpStreamsError

_BATCH_MAX: Final = 500
_STAMP_BYTES: Final = 8
_REPORT_S: Final = 0.5
_READ_EVENTS: Final = 5000
_TAIL_S: Final = 10.0
"""How long a latency measurement waits for the last events."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load on a node. `rate`: events per second over all connections; None: unlimited."""

    log: str
    events: int
    size: int
    rate: float | None
    connections: int
    window: int
    warmup: int
    bound: bool = False


@dataclass(slots=True)
class Measurement:
    """The progress of a measurement. The clock starts when the warm-up is over."""

    load: Load
    advance: Advance
    done: int = 0
    measured: int = 0
    bytes: int = 0
    refused: int = 0
    started: float = 0.0
    ended: float = 0.0
    _shown: float = 0.0
    _shown_done: int = 0

    def count(self, events: int, size: int) -> None:
        """Count events that completed."""
        now = time.perf_counter()
        before, self.done = self.done, self.done + events
        # Only whole batches after the warm-up count: the clock starts with the end of a batch.
        if before >= self.load.warmup:
            self.measured += events
            self.bytes += size
            self.ended = now
        # This batch ends the warm-up.
        elif self.done >= self.load.warmup:
            self.started = now
        if now - self._shown >= _REPORT_S:
            rate = (self.done - self._shown_done) / (now - self._shown) if self._shown else 0.0
            self.advance(self.done, note=f"{rate:,.0f} events/s")
            self._shown, self._shown_done = now, self.done

    def begin(self) -> None:
        """Start the clock at once if no warm-up was requested."""
        if self.load.warmup == 0:
            self.started = time.perf_counter()

    def result(self, what: str, latencies: Latencies) -> Result:
        """The figures."""
        return Result(
            what=what,
            events=self.measured,
            bytes=self.bytes,
            seconds=max(0.0, self.ended - self.started),
            refused=self.refused,
            latency_ms=latencies.summary(),
            samples=len(latencies.seconds),
        )


async def measure_producing(node: Endpoint, load: Load, advance: Advance) -> Result:
    """Send events over several connections; latency from due to accepted, of one event in each batch."""
    measurement, latencies = Measurement(load, advance), Latencies()
    total = load.events + load.warmup
    shares = [
        total // load.connections + (index < total % load.connections) for index in range(load.connections)
    ]
    partitions = await _partitions(node, load) if load.bound else [None]
    async with contextlib.AsyncExitStack() as stack:
        producers = []
        for index in range(load.connections):
            client = await stack.enter_async_context(opened(node))
            partition = partitions[index % len(partitions)]
            producers.append(
                await stack.enter_async_context(
                    client.producer(load.log, partition=partition, window=load.window)
                )
            )
        measurement.begin()
        await _all(
            *(
                _produce(producer, share, measurement, latencies)
                for producer, share in zip(producers, shares, strict=True)
            )
        )
    return measurement.result("produce", latencies)


async def _produce(producer: Producer, events: int, measurement: Measurement, latencies: Latencies) -> None:
    load = measurement.load
    pace = Pace(None if load.rate is None else load.rate / load.connections)
    message = Event(body=b"x" * load.size).encode()
    # Several batches in flight: if one filled the window, the node would wait for this program.
    batch_max = max(1, min(_BATCH_MAX, load.window // 4))
    started, sent = time.perf_counter(), 0
    pending: set[asyncio.Task[None]] = set()
    try:
        while sent < events:
            elapsed = time.perf_counter() - started
            due = pace.due(elapsed)
            size = min(batch_max, events - sent, events if due is None else due - sent)
            if size <= 0:
                await asyncio.sleep(max(0.0, pace.due_at(sent) - elapsed))
                continue
            # The last event of the batch: the batch is sent when that one is due.
            was_due = time.perf_counter() if load.rate is None else started + pace.due_at(sent + size - 1)
            if size > 1:
                # One outcome is awaited for each batch: a task for each event would measure this program
                # instead of the node.
                await producer.post_batch([message] * (size - 1))
            outcome = asyncio.create_task(
                _timed(await producer.post(message), was_due, measurement, size, latencies)
            )
            pending.add(outcome)
            outcome.add_done_callback(pending.discard)
            sent += size
        try:
            await producer.flush(timeout=None)
        except SendError as error:
            measurement.refused += error.count
        await asyncio.gather(*pending)
    finally:
        for one in pending:  # some are left only when this was interrupted
            one.cancel()


async def _timed(
    outcome: Awaitable[Receipt], was_due: float, measurement: Measurement, events: int, latencies: Latencies
) -> None:
    """Wait for the last event of a batch.

    Its outcome counts for all, because outcomes of a producer arrive in order.
    """
    try:
        await outcome
    except AmqpStreamsError:
        return  # flush counts refused events, and raises if the producer ended
    if measurement.done >= measurement.load.warmup:
        latencies.record(time.perf_counter() - was_due)
    measurement.count(events, events * measurement.load.size)


async def measure_consuming(node: Endpoint, load: Load, advance: Advance) -> Result:
    """Read a log from its earliest event on, with one agnostic link or with several connections."""
    measurement = Measurement(load, advance)
    async with contextlib.AsyncExitStack() as stack:
        consumers = []
        partitions = await _partitions(node, load) if load.connections > 1 or load.bound else [None]
        for index in range(min(load.connections, len(partitions))):
            client = await stack.enter_async_context(opened(node))
            for partition in partitions[index :: load.connections]:
                consumer = client.consumer(load.log, partition=partition, start=EARLIEST, credit=load.window)
                consumers.append(await stack.enter_async_context(consumer))
        measurement.begin()
        await _all(*(_consume(consumer, measurement) for consumer in consumers))
    return measurement.result("consume", Latencies())


async def _consume(consumer: Consumer, measurement: Measurement) -> None:
    warmup, wanted = measurement.load.warmup, measurement.load.events + measurement.load.warmup
    while measurement.done < wanted:
        # A read must not cross the end of the warm-up, where the clock starts.
        left = (warmup if measurement.done < warmup else wanted) - measurement.done
        messages = await consumer.receive_raw(min(_READ_EVENTS, left), timeout=1.0)
        if messages:
            measurement.count(len(messages), sum(map(len, messages)))


async def measure_latency(node: Endpoint, load: Load, advance: Advance) -> Result:
    """Send at a rate and receive the same events: latency from due to received, with one clock."""
    assert load.rate is not None, "latency is measured at a rate"
    measurement, latencies = Measurement(load, advance), Latencies()
    async with (
        opened(node) as receiving,
        receiving.consumer(load.log, start=LATEST, credit=load.window) as consumer,
    ):
        reader = asyncio.ensure_future(_receive_stamped(consumer, measurement, latencies))
        try:
            async with opened(node) as sending, sending.producer(load.log, window=load.window) as producer:
                measurement.begin()
                await _send_stamped(producer, load)
            # What did not arrive counts as refused below.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader, _TAIL_S)
        finally:
            reader.cancel()
    measurement.refused = load.events + load.warmup - measurement.done
    return measurement.result("latency", latencies)


async def _send_stamped(producer: Producer, load: Load) -> None:
    pace, filler = Pace(load.rate), b"x" * max(0, load.size - _STAMP_BYTES)
    started = time.perf_counter()
    for index in range(load.events + load.warmup):
        due = started + pace.due_at(index)
        ahead = due - time.perf_counter()
        if ahead > 0:
            await asyncio.sleep(ahead)
        await producer.post_batch([Event(body=int(due * 1e9).to_bytes(_STAMP_BYTES) + filler)])
    await producer.flush(timeout=None)


async def _receive_stamped(consumer: Consumer, measurement: Measurement, latencies: Latencies) -> None:
    load = measurement.load
    while measurement.done < load.events + load.warmup:
        for event in await consumer.receive(_READ_EVENTS):
            body = event.body
            # Another producer may write to the log during the measurement.
            if not isinstance(body, bytes) or len(body) != max(load.size, _STAMP_BYTES):
                continue
            if measurement.done >= load.warmup:
                latencies.record(time.perf_counter() - int.from_bytes(body[:_STAMP_BYTES]) / 1e9)
            measurement.count(1, len(body))


async def _partitions(node: Endpoint, load: Load) -> Sequence[str | None]:
    async with opened(node) as client:
        return [one.partition for one in (await client.info(load.log)).partitions]


async def _all(*work: Awaitable[None]) -> None:
    """Run all; if one fails, cancel the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(_awaited(one))
    except* AmqpStreamsError as errors:
        # The others failed because of the first, or with it.
        raise errors.exceptions[0] from None


async def _awaited(work: Awaitable[None]) -> None:
    await work
