"""The blocking face: the names and meanings of `amqp_streams.client.aio` without `await`; iterate with `for`, enter with `with`.

Each client runs the asyncio face on one event-loop thread of its own. Safe to use from several threads. A call costs two thread switches,
about 0.1 ms: for speed give and take events in batches (`post_batch`, `receive`), or use `post`, which does not wait for the other thread.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from amqp_streams import names
from amqp_streams.client import aio
from amqp_streams.client.blocking.background import Background, Pending
from amqp_streams.client.blocking.group import GroupConsumer
from amqp_streams.client.blocking.management import Management
from amqp_streams.client.blocking.ranges import RangeReader
from amqp_streams.client.consuming.group import GroupSettle
from amqp_streams.client.consuming.ranges import BATCH_BYTES, PREFETCH_BYTES, Filter
from amqp_streams.client.errors import SequenceError, TimedOutError
from amqp_streams.client.management.extents import LogExtent
from amqp_streams.client.management.info import LogInfo
from amqp_streams.client.options import ACCEPTED, EARLIEST, LATEST, Outcome, RetryPolicy, SaslOptions, Settle, StartAt, TlsOptions
from amqp_streams.client.producing.numbering import Sequences
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.client.producing.producer import NO_NUMBERS, Receipt, Sent, encode
from amqp_streams.client.received import ReceivedEvent


class Producer:
    """See `amqp_streams.client.aio.Producer`."""

    def __init__(self, thread: Background, inner: aio.Producer, window: int) -> None:
        self._thread: Final = thread
        self._inner: Final = inner
        self._room: Final = threading.Semaphore(window)
        self._lock: Final = threading.Lock()
        self._queue: list[Entry] = []
        self._sequences: list[int | None] = []

    def __repr__(self) -> str:
        return repr(self._inner)

    def send(
        self, event: Sent, partition: str | int | None = None, *, sequence: int | None = None, timeout: float | None = 30.0
    ) -> Receipt:
        """Send one event and wait until it is accepted: durable."""
        return self._thread.call(self._inner.send(event, partition, sequence=sequence, timeout=timeout))

    def post(
        self, event: Sent, partition: str | int | None = None, *, sequence: int | None = None, timeout: float | None = 30.0
    ) -> Pending:
        """Send one event and wait only for room in the window; `result()` of what it returns is the outcome, or call `flush`."""
        if sequence is not None and self._inner.producer_id is None:
            raise SequenceError(NO_NUMBERS)
        entry = Entry(event, encode(event, partition))
        if not self._room.acquire(timeout=timeout):
            obstacle = self._inner.obstacle
            message = f"waiting for room in the window took longer than {timeout} s" + (f": {obstacle}" if obstacle else "")
            raise TimedOutError(message)
        pending = Pending(entry, self._room, self._inner)
        entry.on_outcome = pending.wake
        with self._lock:
            self._queue.append(entry)
            self._sequences.append(sequence)
            first = len(self._queue) == 1
        if first:
            self._thread.tell(self._hand_over)
        return pending

    def post_batch(
        self, events: Sequence[Sent], partition: str | int | None = None, *, sequence: Sequences = None, timeout: float | None = 30.0
    ) -> None:
        """Post many: the fast path. Waits for room in the window, not for outcomes; `flush` gives those."""
        self._thread.call(self._inner.post_batch(events, partition, sequence=sequence, timeout=timeout))

    def flush(self, *, timeout: float | None = 30.0) -> None:
        """Wait for the outcome of everything posted. Raises SendError naming what was refused since the last flush."""
        self._thread.call(self._inner.flush(timeout=timeout))

    def close(self, *, timeout: float | None = 30.0) -> None:
        """Flush, then detach."""
        self._thread.call(self._inner.close(timeout=timeout))

    def __enter__(self) -> Self:
        self._thread.call(self._inner.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))

    def _hand_over(self) -> None:
        with self._lock:
            entries, self._queue = self._queue, []
            sequences, self._sequences = self._sequences, []
        self._inner.post_entries(entries, sequences)


class Consumer:
    """See `amqp_streams.client.aio.Consumer`."""

    def __init__(self, thread: Background, inner: aio.Consumer) -> None:
        self._thread: Final = thread
        self._inner: Final = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def link_properties(self) -> dict[str, object]:
        """What the node answered to the attach."""

        async def read() -> dict[str, object]:
            return self._inner.link_properties

        return self._thread.call(read())

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that events come from now."""
        return self._inner.partitions

    @property
    def epoch(self) -> int | None:
        """The epoch of our ownership, in a consumer group."""
        epoch = self.link_properties.get(names.EPOCH)
        return int(epoch) if isinstance(epoch, int) else None

    @property
    def positions(self) -> dict[str, str]:
        """Offset of the last event taken, by partition."""
        return self._inner.positions

    def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """The next events, at most `max_events`: waits for the first; an empty list when `timeout` seconds passed without one."""
        return self._thread.call(self._inner.receive(max_events, timeout))

    def receive_retained(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """The next of the events that the log has now; an empty list when all of them have been received or passed over by filters."""
        return self._thread.call(self._inner.receive_retained(max_events, timeout))

    def receive_raw(self, max_events: int = 500, timeout: float | None = None) -> list[bytes]:
        """The same as bytes of AMQP messages with their delivery annotations: the fastest way. Not with settle="manual"."""
        return self._thread.call(self._inner.receive_raw(max_events, timeout))

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Events one by one, for ever. Leaving the loop keeps what was not looked at for the next `for` or `receive`."""
        while True:
            batch = self.receive(256)
            for index, event in enumerate(batch):
                try:
                    yield event
                except GeneratorExit:
                    self._inner.put_back(batch[index + 1 :])
                    raise

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Say what became of events. Never waits."""
        given = [events] if isinstance(events, ReceivedEvent) else list(events)
        self._thread.tell(self._inner.settle, given, outcome)

    def close(self, *, timeout: float | None = 30.0) -> None:
        """Detach."""
        self._thread.call(self._inner.close(timeout=timeout))

    def __enter__(self) -> Self:
        self._thread.call(self._inner.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))


class Client:
    """See `amqp_streams.client.aio.Client`."""

    def __init__(self, thread: Background, inner: aio.Client) -> None:
        self._thread: Final = thread
        self._inner: Final = inner
        self.management: Final = Management(thread, inner.management)

    def __repr__(self) -> str:
        return repr(self._inner)

    def producer(
        self,
        log: str,
        *,
        partition: str | int | None = None,
        window: int = 1000,
        properties: Mapping[str, object] | None = None,
        producer_id: str | None = None,
    ) -> Producer:
        """A producer for `log`; attached when entered with `with`."""
        inner = self._inner.producer(log, partition=partition, window=window, properties=properties, producer_id=producer_id)
        return Producer(self._thread, inner, window)

    def consumer(
        self,
        log: str,
        *,
        partition: str | int | None = None,
        start: StartAt = LATEST,
        credit: int = 1000,
        settle: Settle = "auto",
        properties: Mapping[str, object] | None = None,
        filters: Mapping[str, object] | None = None,
        group: str | None = None,
        epoch: int | None = None,
        durable: str | None = None,
    ) -> Consumer:
        """A consumer of `log`; attached when entered with `with`."""
        inner = self._inner.consumer(
            log,
            partition=partition,
            start=start,
            credit=credit,
            settle=settle,
            properties=properties,
            filters=filters,
            group=group,
            epoch=epoch,
            durable=durable,
        )
        return Consumer(self._thread, inner)

    def group_consumer(
        self,
        log: str,
        group: str,
        *,
        start: StartAt = EARLIEST,
        settle: GroupSettle = "auto",
        credit: int = 1000,
        candidates: int = 4,
        ahead_ms: int = 250,
        filters: Mapping[str, object] | None = None,
        on_assigned: Callable[[str], object] | None = None,
        on_revoked: Callable[[str], object] | None = None,
    ) -> GroupConsumer:
        """A member of consumer group `group` of `log`, with its share of the partitions; joins when entered with `with`."""
        inner = self._inner.group_consumer(
            log,
            group,
            start=start,
            settle=settle,
            credit=credit,
            candidates=candidates,
            ahead_ms=ahead_ms,
            filters=filters,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        return GroupConsumer(self._thread, inner)

    def read_range(
        self,
        log: str,
        partition: str | int,
        start: int = 0,
        end: int | None = None,
        *,
        filter: Filter = None,  # noqa: A002  the word that everybody has for it
        batch_events: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        prefetch_bytes: int = PREFETCH_BYTES,
        incarnation: str | None = None,
        timeout: float | None = 30.0,
    ) -> RangeReader:
        """The events of a partition from number `start` to before `end`: `for run in …`; see `aio.Client.read_range`."""
        inner = self._inner.read_range(
            log,
            partition,
            start,
            end,
            filter=filter,
            batch_events=batch_events,
            batch_bytes=batch_bytes,
            prefetch_bytes=prefetch_bytes,
            incarnation=incarnation,
            timeout=timeout,
        )
        return RangeReader(self._thread, inner)

    def info(self, log: str, *, timeout: float | None = 30.0) -> LogInfo:
        """Partitions, offsets and figures of a log."""
        return self._thread.call(self._inner.info(log, timeout=timeout))

    def extents(self, logs: str | Sequence[str], *, missing_ok: bool = False, timeout: float | None = 30.0) -> dict[str, LogExtent]:
        """Where the partitions of some logs begin and end, by log: one request for all of them."""
        return self._thread.call(self._inner.extents(logs, missing_ok=missing_ok, timeout=timeout))

    def offset_at(
        self, log: str, partitions: str | int | Sequence[str | int] | None, timestamp_ms: int, *, timeout: float | None = 30.0
    ) -> dict[str, int]:
        """For each of these partitions (None: all) the number of the first event stored at or after a moment, or else of the next."""
        return self._thread.call(self._inner.offset_at(log, partitions, timestamp_ms, timeout=timeout))

    def connect(self) -> None:
        """Make the first connection, as `with` does."""
        self._thread.call(self._inner.connect())

    def close(self) -> None:
        """Close the connection and end the thread."""
        if not self._thread.loop.is_closed():
            try:
                self._thread.call(self._inner.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def connect(
    url: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    tls: TlsOptions | None = None,
    sasl: SaslOptions | None = None,
    retry: RetryPolicy | None = None,
    container_id: str | None = None,
    idle_timeout_ms: int = 30_000,
    timeout: float | None = 10.0,
    redirects_max: int = 4,
) -> Client:
    """A blocking client; see `amqp_streams.client.aio.connect`. Use it with `with`."""
    inner = aio.connect(
        url,
        user=user,
        password=password,
        tls=tls,
        sasl=sasl,
        retry=retry,
        container_id=container_id,
        idle_timeout_ms=idle_timeout_ms,
        timeout=timeout,
        redirects_max=redirects_max,
    )
    return Client(Background(), inner)
