"""Reads a range of one partition in batches, as fast as possible.

Batches are described in docs/batched-deliveries.md.

Laws: every event from `start` to before `end` that exists and that the filter matches is returned once and in
order, also if connections are lost meanwhile. The end of the range is certain: either a batch reached it, or
the node answered a drain with no more events.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from amqp_streams import names
from amqp_streams.client.connection.endpoint import Endpoint
from amqp_streams.client.connection.links import ReceiverLink
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.connection.transport import Attachment, Wire
from amqp_streams.client.errors import ClosedError, EndpointError, LinkError, LinkRefusedError, TimedOutError
from amqp_streams.client.options import ACCEPTED, sql_filter
from amqp_streams.errors import AmqpStreamsError, WireError
from amqp_streams.wire.batched.arrays import Sections
from amqp_streams.wire.batched.compression import COMPRESSED_BYTES_MAX, codec
from amqp_streams.wire.batches import read_batch
from amqp_streams.wire.codec import Described, Symbol, UInt, ULong
from amqp_streams.wire.offsets import OFFSET_MAX, offset_text

Filter = str | Described | Mapping[str, object] | None
"""A filter: SQL as in `sql_filter`, a described value, or several of them by name; None: all events."""

BATCH_BYTES: Final = 256 << 10
PREFETCH_BYTES: Final = 4 << 20
_FILTER_NAME: Final = "amqp-streams-range"
_FAULTS_MAX: Final = 2
"""How many internal errors of the node in a row, without an event between them, lead to a new attach. A read
error of a disk may pass; a damaged record fails each time.
"""


@dataclass(frozen=True, eq=False)
class Run:
    """Consecutive events of one partition.

    Event i has `offsets[i]`, `timestamps_ms[i]` (when the node stored it) and `messages[i]`.

    A message is the AMQP message as its producer sent it, without delivery annotations. `content`: the
    messages, or the sections of the batch that have them, for programs that read all bytes of a batch at
    once. `message_formats`: by index, only those that are not 0.
    """

    partition: str
    offsets: "array[int]"
    timestamps_ms: "array[int]"
    content: Sections | list[bytes]
    message_formats: Mapping[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def messages(self) -> list[bytes]:
        """The messages. They are copied from the sections when they are first asked for."""
        return self.content.contents() if isinstance(self.content, Sections) else self.content


class RangeReader(Endpoint):
    """Iterates over the runs of a range. Created by `Client.read_range`.

    The link is closed at the end of the range. `async with` closes it earlier.
    """

    def __init__(
        self,
        pool: Pool,
        log: str,
        partition: str,
        start: int,
        end: int | None,
        *,
        filters: Mapping[str, object],
        batch_events: int | None,
        batch_bytes: int,
        prefetch_bytes: int,
        compression: str | None,
        incarnation: str | None,
        timeout: float | None,
    ) -> None:
        super().__init__(pool, log)
        if start < 0 or (end is not None and end < 0) or batch_bytes < 1 or prefetch_bytes < 1:
            message = (
                "start and end must be at least 0, batch_bytes and prefetch_bytes at least 1"
                f" (got {start}, {end}, {batch_bytes}, {prefetch_bytes})"
            )
            raise ValueError(message)
        self.partition: Final = partition
        self._next = start
        self._end: Final = None if end is None or end > OFFSET_MAX else end
        self._filters: Final = filters
        self._properties: Final[dict[str, object]] = {
            names.PARTITION: Symbol(partition),
            names.BATCH_BYTES: ULong(batch_bytes),
            names.BATCH_FORMATS: True,
        }
        if batch_events is not None:
            self._properties[names.BATCH_EVENTS] = UInt(batch_events)
        if compression is not None:
            self._properties[names.BATCH_COMPRESSION] = Symbol(codec(compression).name)
        self._batch_bytes: Final = batch_bytes
        self._size = batch_bytes
        # At least two batches: one is processed while the next one is in flight.
        self._prefetch_bytes: Final = max(prefetch_bytes, 2 * batch_bytes)
        self._incarnation = incarnation
        self._timeout: Final = timeout
        self._link: ReceiverLink | None = None
        self._left: list[Run] = []
        """Runs that had arrived before the link ended."""
        self._asked: frozenset[str] = frozenset()
        self._faults = 0
        self._drained = False
        self._done = (self._end is not None and start >= self._end) or start > OFFSET_MAX

    @property
    def position(self) -> int:
        """Offset of the next event to read: all events before it were returned, or skipped by the filter.

        When the iteration has ended, it is the end of the range.
        """
        return self._next

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the log that is read; None: not known yet."""
        return self._incarnation

    async def take(self, batches_max: int = 1) -> list[Run]:
        """Return the next runs, at most `batches_max`.

        Waits for the first one. An empty list: the range is complete.

        Raises:
            TimedOutError (the node sent nothing for `timeout` seconds), LinkRefusedError, LinkError,
            ConnectionLostError, ClosedError.
        """
        if self._task is None and not self._done:
            await self.open(timeout=self._timeout)
        while self._left or not self._done:
            if self._left:
                runs, self._left = self._left[:batches_max], self._left[batches_max:]
                return runs
            # The runs that had arrived were returned above; now wait for the next link.
            if self._link is None:
                self._check()
                await self._wait()
                continue
            runs, more = self._received(batches_max)
            if runs:
                return runs
            if more:
                await self._wait()
        self._stop(ClosedError("the range is read"))
        return []

    async def __aiter__(self) -> AsyncIterator[Run]:
        """Iterate over the runs to the end of the range. Leaving the loop earlier closes the reader."""
        try:
            while runs := await self.take():
                for run in runs:
                    yield run
        finally:
            await self.close()

    async def close(self, *, timeout: float | None = 30.0) -> None:  # noqa: ARG002 (nothing to wait for)
        """Detach, and discard runs that were not taken."""
        self._left.clear()
        self._stop(ClosedError("the reader was closed"))

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._timeout) as limit:
                await self._signal.wait()
        except TimeoutError:
            # Another time limit: that of a caller around this call.
            if not limit.expired():
                raise
            message = (
                f"the node sent nothing of partition {self.partition} of {self.log} for {self._timeout} s, at"
                f" offset {self._next}"
            )
            raise TimedOutError(message) from None

    # -- taking

    def _received(self, batches_max: int) -> tuple[list[Run], bool]:
        """Return the runs that have arrived, and whether more may come."""
        link, runs = self._link, list[Run]()
        assert link is not None
        while not self._done and len(runs) < batches_max:
            messages, deliveries, aborted = link.take(batches_max - len(runs))
            # Settled at once: the node keeps nothing for this reader, which continues at its own position.
            link.settle(deliveries, ACCEPTED)
            for message in messages:
                self._note(message, runs)
            if link.oversized:
                self._stop(
                    LinkError(
                        names.LINK_MESSAGE_SIZE_EXCEEDED,
                        "the node sent a message larger than max-message-size",
                    )
                )
                self._check()
            self._drained = link.take_drained() > 0 or self._drained
            if not self._drained and (messages or aborted):
                # Credit is renewed per message, not per arrived part of one: a flow frame in the middle of a
                # large message makes the node send the rest in a slower way.
                link.drain(max(0, self._credit(len(messages[-1]) if messages else 0) - link.credit))
                assert self._attachment is not None
                self._attachment.wire.flush_soon()
            if not messages:
                self._done = self._done or (self._drained and not link.draining)
                break
        return runs, not self._done

    def _note(self, message: bytes, runs: list[Run]) -> None:
        try:
            batch = read_batch(message, COMPRESSED_BYTES_MAX)
        except WireError as error:
            broken = LinkError(names.DECODE_ERROR, f"the node sent a batch that is not valid: {error}")
            self._stop(broken)
            raise broken from error
        # The node works: a later failure begins its own series of attempts.
        self._progress, self._faults = True, 0
        offsets = batch.offsets
        if offsets:
            self._next = offsets[-1] + 1
            runs.append(Run(batch.partition, offsets, batch.timestamps_ms, batch.content, batch.formats))
        # A batch without events reports how far the filter has skipped.
        self._next = max(self._next, batch.next_offset or 0)
        if self._end is not None and self._next >= self._end:
            self._done = True

    def _credit(self, size: int) -> int:
        """Return how many batches may be in flight, if they are as large as the last one (`size` bytes)."""
        return max(2, self._prefetch_bytes // max(size, self._size))

    # -- the link's life

    async def _attach(self, wire: Wire) -> Attachment:
        filters = {**self._filters, **self._range()}
        self._asked = frozenset(filters)
        return wire.attach_receiver(
            self._address,
            self._signal.fire,
            properties=self._properties,
            filters=filters,
            presettled=True,
            capabilities=(names.CAPABILITY_BATCHED_DELIVERIES,),
        )

    def _range(self) -> dict[str, object]:
        condition = f"d.{names.OFFSET} >= '{offset_text(self._next)}'"
        if self._end is not None:
            condition += f" AND d.{names.OFFSET} < '{offset_text(self._end)}'"
        return {_FILTER_NAME: sql_filter(condition)}

    def _inspect(self, attachment: Attachment) -> None:
        link = attachment.link
        announced = link.properties
        # The property is checked too, because some peers return all capabilities that a client asks for.
        if names.CAPABILITY_BATCHED_DELIVERIES not in link.capabilities or names.BATCH_BYTES not in announced:
            raise LinkRefusedError(names.NOT_IMPLEMENTED, "the node does not support batched deliveries")
        if left_out := self._asked - link.filters:
            left = ", ".join(sorted(left_out))
            description = f"the node does not support the filter {left}: it would send all events"
            raise LinkRefusedError(names.NOT_IMPLEMENTED, description)
        incarnation = announced.get(names.BATCH_INCARNATION)
        if self._incarnation is not None and incarnation != self._incarnation:
            description = (
                f"log {self.log!r} was deleted and recreated: its incarnation is {incarnation}, expected"
                f" {self._incarnation}"
            )
            raise LinkRefusedError(names.RESOURCE_DELETED, description)
        self._incarnation = str(incarnation) if isinstance(incarnation, str) else None

    def _resume(self, attachment: Attachment) -> None:
        link = self._link = attachment.link
        link.keeps_unread = True
        self._drained = False
        announced = link.properties.get(names.BATCH_BYTES)
        self._size = max(announced if isinstance(announced, int) else self._batch_bytes, 1)
        link.drain(self._credit(0))
        attachment.wire.flush_soon()

    def _suspend(self) -> None:
        link, self._link = self._link, None
        for message in () if link is None else link.unread:
            self._note(message, self._left)

    def _fail(self, error: AmqpStreamsError) -> None:  # noqa: ARG002 (`take` raises it)
        self._link = None

    def _worth_another(self, error: AmqpStreamsError) -> bool:
        # Only these are counted here: the other errors have their own limits.
        if isinstance(error, EndpointError) and error.condition == names.INTERNAL_ERROR:
            self._faults += 1
            if self._faults > _FAULTS_MAX:
                return False
        return super()._worth_another(error)


def named_filters(given: Filter) -> dict[str, object]:
    """Return `given` as filters by name."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    return {"filter": sql_filter(given) if isinstance(given, str) else given}
