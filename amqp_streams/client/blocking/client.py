"""The blocking client: `amqp_streams.client.aio` without `await`; enter with `with`, iterate with `for`.

Each client runs the asyncio client on its own event-loop thread. Its methods may be called from several
threads. A call costs two thread switches, about 0.1 ms. For speed, send and receive events in batches
(`post_batch`, `receive`), or use `post`, which does not wait for the other thread.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from types import TracebackType
from typing import Final, ParamSpec, Self

from amqp_streams import names
from amqp_streams.client import aio
from amqp_streams.client.blocking.background import Background, Pending
from amqp_streams.client.blocking.group import GroupConsumer
from amqp_streams.client.blocking.management import Management
from amqp_streams.client.blocking.ranges import RangeReader
from amqp_streams.client.blocking.wrapper import Wrapper, makes, waits
from amqp_streams.client.errors import SequenceError, TimedOutError
from amqp_streams.client.options import ACCEPTED, Outcome
from amqp_streams.client.producing.contents import Sent, encode, format_of
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.client.producing.producer import NO_NUMBERS
from amqp_streams.client.received import ReceivedEvent

_P = ParamSpec("_P")


class Producer(Wrapper[aio.Producer]):
    """See `amqp_streams.client.aio.Producer`."""

    def __init__(self, thread: Background, inner: aio.Producer) -> None:
        super().__init__(thread, inner)
        self._room: Final = threading.Semaphore(inner.window)
        self._lock: Final = threading.Lock()
        self._queue: list[Entry] = []
        self._sequences: list[int | None] = []

    send = waits(aio.Producer.send)
    send_many = waits(aio.Producer.send_many)
    post_batch = waits(aio.Producer.post_batch)
    flush = waits(aio.Producer.flush)
    close = waits(aio.Producer.close)

    @property
    def batch_events(self) -> int:
        """See `amqp_streams.client.aio.Producer.batch_events`."""
        return self._inner.batch_events

    @property
    def unsettled(self) -> int:
        """How many events, or batches of `post_encoded`, have no outcome yet."""
        return self._inner.unsettled

    def post_encoded(self, batches: Sequence[bytes]) -> None:
        """See `amqp_streams.client.aio.Producer.post_encoded`."""

        async def post() -> None:
            self._inner.post_encoded(batches)

        self._thread.call(post())

    def post(
        self,
        event: Sent,
        partition: str | int | None = None,
        *,
        sequence: int | None = None,
        timeout: float | None = 30.0,
    ) -> Pending:
        """Send one event, and wait only until the window has space for it.

        Call `result()` of the returned object, or `flush`, to get the outcome. `timeout`: the maximum wait
        for space, in seconds.

        Raises:
            TimedOutError, SequenceError, WireError, ClosedError.
        """
        if sequence is not None and self._inner.producer_id is None:
            raise SequenceError(NO_NUMBERS)
        # Encoded on the caller's thread: the loop's thread is the bottleneck.
        entry = Entry(event, encode(event, partition), format_of(event))
        if not self._room.acquire(timeout=timeout):
            obstacle = self._inner.obstacle
            message = f"waiting for room in the window took longer than {timeout} s" + (
                f": {obstacle}" if obstacle else ""
            )
            raise TimedOutError(message)
        pending = Pending(entry, self._room, self._inner)
        entry.on_outcome = pending.wake
        with self._lock:
            self._queue.append(entry)
            self._sequences.append(sequence)
            first = len(self._queue) == 1
        # One wake-up of the loop's thread serves all events that are posted until the thread runs.
        if first:
            self._thread.schedule(self._hand_over)
        return pending

    def __enter__(self) -> Self:
        self._thread.call(self._inner.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))

    def _hand_over(self) -> None:
        with self._lock:
            entries, self._queue = self._queue, []
            sequences, self._sequences = self._sequences, []
        self._inner.post_entries(entries, sequences)


class Consumer(Wrapper[aio.Consumer]):
    """See `amqp_streams.client.aio.Consumer`."""

    receive = waits(aio.Consumer.receive)
    receive_retained = waits(aio.Consumer.receive_retained)
    receive_raw = waits(aio.Consumer.receive_raw)
    close = waits(aio.Consumer.close)

    @property
    def link_properties(self) -> dict[str, object]:
        """The link properties that the node sent in its attach."""

        async def read() -> dict[str, object]:
            return self._inner.link_properties

        return self._thread.call(read())

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions whose events the link brings now."""
        return self._inner.partitions

    @property
    def epoch(self) -> int | None:
        """The epoch with which this consumer owns its partition. None: it does not own one."""
        epoch = self.link_properties.get(names.EPOCH)
        return int(epoch) if isinstance(epoch, int) else None

    @property
    def positions(self) -> dict[str, int]:
        """Offset of the last received event by partition. `AfterOffset` of it continues from there."""
        return self._inner.positions

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Iterate over the events without an end.

        If the program leaves the loop, the next `for` or `receive` starts with the events that it has not
        seen.
        """
        while True:
            batch = self.receive(256)
            for index, event in enumerate(batch):
                try:
                    yield event
                except GeneratorExit:
                    # Events that the program has not seen must not be lost with the loop.
                    self._inner.put_back(batch[index + 1 :])
                    raise

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Give events an outcome. Never waits."""
        given = [events] if isinstance(events, ReceivedEvent) else list(events)
        self._thread.schedule(self._inner.settle, given, outcome)

    def __enter__(self) -> Self:
        self._thread.call(self._inner.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))


class Client(Wrapper[aio.Client]):
    """See `amqp_streams.client.aio.Client`."""

    def __init__(self, thread: Background, inner: aio.Client) -> None:
        super().__init__(thread, inner)
        self.management: Final = Management(thread, inner.management)

    producer = makes(aio.Client.producer, Producer)
    consumer = makes(aio.Client.consumer, Consumer)
    group_consumer = makes(aio.Client.group_consumer, GroupConsumer)
    read_range = makes(aio.Client.read_range, RangeReader)
    info = waits(aio.Client.info)
    extents = waits(aio.Client.extents)
    offset_at = waits(aio.Client.offset_at)
    connect = waits(aio.Client.connect)

    @property
    def connected(self) -> bool:
        """See `amqp_streams.client.aio.Client.connected`."""
        return self._inner.connected

    @property
    def address(self) -> str:
        """See `amqp_streams.client.aio.Client.address`."""
        return self._inner.address

    def close(self) -> None:
        """Close the connections and end the thread."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _client_of(make: Callable[_P, aio.Client]) -> Callable[_P, Client]:
    @wraps(make)
    def connect(*args: _P.args, **kwargs: _P.kwargs) -> Client:
        # The arguments are checked before a thread is started for them.
        inner = make(*args, **kwargs)
        return Client(Background(), inner)

    return connect


connect = _client_of(aio.connect)
