"""A consumer: events as they come or in batches, under a credit window, from a position that survives the connection.

Credit is given back as events are taken (with settle="manual": as they are settled), so an application that does not keep up holds up
the node, not its own memory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from amqp_streams import names
from amqp_streams.client.connector import Connector
from amqp_streams.client.cursor import Cursor
from amqp_streams.client.endpoint import Endpoint
from amqp_streams.client.errors import ClosedError, LinkError, LinkRefusedError
from amqp_streams.client.info import LogInfo
from amqp_streams.client.links import Delivery, ReceiverLink
from amqp_streams.client.options import ACCEPTED, Latest, Outcome, Settle, Start
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.client.requests import read_info
from amqp_streams.client.wire import Attachment, Wire
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.wire.codec import Symbol

_logger: Final = logging.getLogger("amqp_streams.client")
_ITERATION_MAX: Final = 256
"""Events that `async for` takes at a time."""


class Consumer(Endpoint):
    """Receives the events of one log (or of one partition of it). Made by `Client.consumer`; use it with `async with`.

    After a loss it goes on behind the last event taken. Events released by `settle` come again on the same link, but not on the next.
    """

    def __init__(
        self,
        connector: Connector,
        log: str,
        *,
        partition: str | None,
        start: Start,
        credit: int,
        settle: Settle,
        properties: Mapping[str, object] | None,
        filters: Mapping[str, object] | None,
    ) -> None:
        super().__init__(connector)
        assert credit > 0
        self.log: Final = log
        self.partition: Final = partition
        self._credit: Final = credit
        self._settle: Final = settle
        self._properties = dict(properties or {})
        if partition is not None:
            self._properties[names.PARTITION] = Symbol(partition)
        self._filters = dict(filters or {})
        self._cursor: Final = Cursor(start, partition, redelivers=settle == "manual")
        self._from_now: Final = isinstance(start, Latest)
        self._link: ReceiverLink | None = None
        self._asked: frozenset[str] = frozenset()
        self._owed = 0
        self._unsettled: list[Delivery] = []
        self._taken: deque[ReceivedEvent] = deque()

    @property
    def link_properties(self) -> dict[str, object]:
        """What the node answered to the attach: `event-streams-partition`, `event-streams-epoch`."""
        return {} if self._link is None else self._link.properties

    @property
    def positions(self) -> dict[str, str]:
        """Offset of the last event taken, by partition: `AfterOffset` of it goes on from here."""
        return {partition: offset for partition, offset in self._cursor.after.items() if offset != names.OFFSET_EARLIEST}

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """The next events, at most `max_events`: waits for the first; an empty list when `timeout` seconds passed without one.

        Raises: LinkError, ConnectionLostError, ClosedError.
        """
        if self._taken:
            return [self._taken.popleft() for _ in range(min(max_events, len(self._taken)))]
        messages, deliveries = await self._next(max_events, timeout)
        if self._settle == "manual":
            link = self._link
            return [ReceivedEvent(message, delivery, link) for message, delivery in zip(messages, deliveries, strict=True)]
        return [ReceivedEvent(message) for message in messages]

    async def receive_raw(self, max_events: int = 500, timeout: float | None = None) -> list[bytes]:
        """The same as bytes of AMQP messages with their delivery annotations: the fastest way. Not with settle="manual"."""
        if self._settle == "manual":
            message = "bytes cannot be settled one by one: use receive"
            raise ValueError(message)
        if self._taken:
            return [self._taken.popleft().message for _ in range(min(max_events, len(self._taken)))]
        messages, _ = await self._next(max_events, timeout)
        return messages

    def __aiter__(self) -> Self:
        """Events one by one, for ever."""
        return self

    async def __anext__(self) -> ReceivedEvent:
        """The next event."""
        if not self._taken:
            self._taken.extend(await self.receive(_ITERATION_MAX))
        return self._taken.popleft()

    def put_back(self, events: Sequence[ReceivedEvent]) -> None:
        """Events received and not looked at: the next `receive` gives them first."""
        self._taken.extendleft(reversed(events))

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Say what became of events. Those settled before or received on a link since lost are passed over. Never waits."""
        link = self._link
        ours: list[Delivery] = []
        for event in [events] if isinstance(events, ReceivedEvent) else events:
            if event._link is link and event._delivery is not None:
                ours.append(event._delivery)
            event._delivery = event._link = None
        if link is not None and ours:
            link.settle(ours, outcome)
            self._give_back(len(ours))

    async def close(self, *, timeout: float | None = 30.0) -> None:  # noqa: ARG002 (nothing to wait for)
        """Detach. With settle="auto" what was taken counts as accepted; unsettled events stay in the log anyway."""
        self._settle_taken()
        self._stop(ClosedError("the consumer is closed"))

    # -- taking

    async def _next(self, count_max: int, timeout: float | None) -> tuple[list[bytes], list[Delivery]]:
        if count_max < 1:
            message = "max_events is at least 1"
            raise ValueError(message)
        if (got := self._take(count_max))[0] or timeout == 0:
            return got
        try:
            async with asyncio.timeout(timeout):
                while not (got := self._take(count_max))[0]:
                    await self._signal.wait()
        except TimeoutError as error:
            if isinstance(error, AmqpStreamsError):
                raise
            return [], []
        return got

    def _take(self, count_max: int) -> tuple[list[bytes], list[Delivery]]:
        link = self._link
        if link is None:
            self._check()
            return [], []
        self._settle_taken()
        messages, deliveries, aborted = link.take(count_max)
        if not messages:
            if link.oversized:
                self._stop(LinkError(names.LINK_MESSAGE_SIZE_EXCEEDED, "the node sent a message beyond max-message-size"))
                self._check()
            self._give_back(aborted)
            return messages, deliveries
        self._progress = True
        credit = len(messages) + aborted
        if self._settle == "none":
            link.settle(deliveries, ACCEPTED)
        if before := self._cursor.note(messages):
            dropped = set(before)
            if self._settle != "none":
                link.settle([deliveries[index] for index in before], ACCEPTED)
            messages = [message for index, message in enumerate(messages) if index not in dropped]
            deliveries = [delivery for index, delivery in enumerate(deliveries) if index not in dropped]
        if self._settle == "auto":
            self._unsettled = deliveries
        self._give_back(credit - (len(deliveries) if self._settle == "manual" else 0))
        assert self._attachment is not None
        self._attachment.wire.flush_soon()
        return messages, deliveries

    def _settle_taken(self) -> None:
        if self._unsettled and self._link is not None:
            self._link.settle(self._unsettled, ACCEPTED)
            self._unsettled = []
            if self._attachment is not None:
                self._attachment.wire.flush_soon()

    def _give_back(self, count: int) -> None:
        """Credit goes back in portions, not one by one, but before there is none left."""
        self._owed += count
        link = self._link
        if link is not None and self._owed and (self._owed >= self._credit // 4 or link.credit == 0):
            link.grant(self._owed)
            self._owed = 0
        if count and self._attachment is not None:
            self._attachment.wire.flush_soon()

    # -- the link's life

    async def _attach(self, wire: Wire) -> Attachment:
        info = await self._look(wire) if wire.event_streams else None
        if info is not None and self.partition is None:
            self._cursor.partition_count = len(info.partitions)
        if info is not None and self._cursor.other_log(info.incarnation):
            _logger.warning("log_made_anew log=%s: reading it from its beginning", self.log)
        if self._from_now and not self._cursor.anchored and not self._started:
            if info is not None:
                # Asked before the attach: nothing accepted from here on is missed, should this link be lost before it brings it.
                self._cursor.anchor({entry.partition: entry.latest_offset for entry in info.partitions})
            return self._open(wire, {})
        partitions = [] if info is None else [entry.partition for entry in info.partitions]
        return self._open(wire, self._cursor.filters(partitions))

    async def _look(self, wire: Wire) -> LogInfo | None:
        try:
            return await read_info(wire, self.log)
        except LinkRefusedError as error:
            if error.condition != names.UNAUTHORIZED_ACCESS:
                raise
            return None  # it may be read all the same

    def _inspect(self, attachment: Attachment) -> None:
        if left_out := self._asked - attachment.link.filters:
            description = f"the node does not know the filter {', '.join(sorted(left_out))}: it would send everything"
            raise LinkRefusedError(names.NOT_IMPLEMENTED, description)

    def _open(self, wire: Wire, position: Mapping[str, object]) -> Attachment:
        filters = {**self._filters, **position}
        self._asked = frozenset(filters)
        return wire.attach_receiver(
            self.log,
            self._signal.fire,
            properties=self._properties,
            filters=filters,
            presettled=self._settle == "none",
        )

    def _resume(self, attachment: Attachment) -> None:
        self._link = attachment.link
        self._owed = 0
        attachment.link.grant(self._credit)
        attachment.wire.flush_soon()

    def _suspend(self) -> None:
        self._link = None
        self._unsettled = []

    def _fail(self, error: AmqpStreamsError) -> None:  # noqa: ARG002 (receive raises it)
        self._suspend()
