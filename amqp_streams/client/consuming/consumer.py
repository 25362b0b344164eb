"""A consumer: receives events under a credit limit, and continues after a lost connection.

Credit is returned when the program takes events, or with settle="manual" when it settles them. A slow program
therefore slows the node down instead of filling its own memory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.endpoint import Endpoint, log_text
from amqp_streams.client.connection.links import Delivery, ReceiverLink
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.connection.transport import Attachment, Wire
from amqp_streams.client.consuming.cursor import NEW_EVENTS, Cursor
from amqp_streams.client.errors import (
    ClosedError,
    EndpointError,
    LinkError,
    LinkRefusedError,
    OwnershipLostError,
    TimedOutError,
)
from amqp_streams.client.management.info import LogInfo
from amqp_streams.client.management.requests import shared_info
from amqp_streams.client.message import associated_of
from amqp_streams.client.options import ACCEPTED, Latest, Outcome, Settle, Start
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.errors import AmqpStreamsError, WireError
from amqp_streams.wire.codec import Symbol, ULong
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS_MAP8

_logger: Final = logging.getLogger("amqp_streams.client")
_ITERATION_MAX: Final = 256
"""Events that `async for` takes from the link at once."""
_HEAD_BYTES: Final = 6
_PLAIN_COUNT: Final = 2 * 3
"""The map count (keys and values) of delivery annotations with only offset, timestamp and partition."""
_HEADS_MAX: Final = 64


class Consumer(Endpoint):
    """Receives the events of one log, or of one partition.

    Created by `Client.consumer`; use it with `async with`.

    After a lost connection it continues after the last received event. Released events come again on the same
    link, but not on a new one. A durable consumer continues at the first unsettled event instead, because the
    node keeps its cursor.
    """

    def __init__(
        self,
        pool: Pool,
        log: str,
        *,
        partition: str | None,
        start: Start,
        credit: int,
        settle: Settle,
        properties: Mapping[str, object] | None,
        filters: Mapping[str, object] | None,
        group: str | None = None,
        epoch: int | None = None,
        durable: str | None = None,
    ) -> None:
        super().__init__(pool, log)
        assert credit > 0
        self.partition: Final = partition
        self._credit: Final = credit
        self._settle: Final = settle
        self._properties = dict(properties or {})
        if partition is not None:
            self._properties[names.PARTITION] = Symbol(partition)
        if group is not None:
            self._properties[names.CONSUMER_GROUP] = group
        if epoch is not None:
            self._properties[names.EPOCH] = ULong(epoch)
        self._filters = dict(filters or {})
        assigned = names.CONSUMER_GROUP in self._properties and names.PARTITION not in self._properties
        # The owner of a partition attaches again under the same link name. The node may not have noticed the
        # loss of the connection yet, and would refuse a link with another name.
        self._owns: Final = (
            names.CONSUMER_GROUP in self._properties or names.EPOCH in self._properties
        ) and not assigned
        self._durable: Final = durable is not None
        self._name: Final = durable or f"consumer-{uuid4().hex}"
        # Without a limit if the node assigns the partition: it may answer only when one is free.
        self.attach_s_max = None if assigned else self.attach_s_max
        self._cursor: Final = Cursor(
            start, partition, redelivers=settle == "manual", kept=self._durable, assigned=assigned
        )
        self._from_now: Final = isinstance(start, Latest) and not self._durable
        self._partitions: tuple[str, ...] = ()
        self._agnostic = True
        self._heads: set[bytes] = set()
        self._drained_link: ReceiverLink | None = None
        self._settled = self._stale = False
        """Whether events were settled since the last drain; between the last two drains. See `_at_end`."""
        self._link: ReceiverLink | None = None
        self._asked: frozenset[str] = frozenset()
        self._owed = 0
        self._unsettled: Sequence[Delivery] = ()
        self._taken: deque[ReceivedEvent] = deque()
        self.raw_formats: Sequence[int] = ()
        """Message-formats (AMQP 1.0 core 2.7.5) of the last result of `receive_raw`; empty if all are 0."""

    def __repr__(self) -> str:
        state = "attached" if self.attached else "not attached"
        return f"<Consumer of {log_text(self.log, self.partition)}, {state}>"

    @property
    def link_properties(self) -> dict[str, object]:
        """The properties `event-streams-partition` and `event-streams-epoch` of the node's attach."""
        return {} if self._link is None else self._link.properties

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions whose events the link brings now.

        Empty while no link is attached, or if the node names none.
        """
        return () if self._link is None else self._partitions

    @property
    def epoch(self) -> int | None:
        """The epoch with which this consumer owns its partition (Event Streams 4.5.2).

        None: no consumer group.
        """
        epoch = self.link_properties.get(names.EPOCH)
        return int(epoch) if isinstance(epoch, int) else None

    @property
    def positions(self) -> dict[str, int]:
        """Offset of the last received event by partition. `AfterOffset` of it continues from there."""
        return dict(self._cursor.after)

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """Return the next events, at most `max_events`. Waits for the first one.

        Returns an empty list if no event arrives within `timeout` seconds (None: no limit).

        Raises:
            LinkError, ConnectionLostError, ClosedError.
        """
        if self._taken:
            return [self._taken.popleft() for _ in range(min(max_events, len(self._taken)))]
        messages, deliveries = await self._next(max_events, timeout)
        if self._settle == "manual":
            link = self._link
            events = [ReceivedEvent(*each, link) for each in zip(messages, deliveries, strict=True)]
        else:
            events = [ReceivedEvent(message) for message in messages]
        for event, message_format in zip(events, self.raw_formats, strict=False):
            event.message_format = message_format
        return events

    async def receive_retained(
        self, max_events: int = 500, timeout: float | None = None
    ) -> list[ReceivedEvent]:
        """Return the next events that are already in the log.

        An empty list: all that pass the filters were received.

        The consumer drains the link to detect the end (AMQP 1.0 core 2.6.7). Raises what `receive` raises,
        and TimedOutError if neither an event nor the end comes within `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                while not (events := await self.receive(max_events, timeout=0)) and not self._at_end():
                    await self._signal.wait()
        except TimeoutError as error:
            if isinstance(error, AmqpStreamsError):
                raise
            message = f"the node did not reach the end of {self.log} within {timeout} s"
            raise TimedOutError(message) from None
        return events

    async def receive_raw(self, max_events: int = 500, timeout: float | None = None) -> list[bytes]:
        """Return the next events as the bytes of AMQP messages with delivery annotations.

        The fastest way to receive. `raw_formats` then has their message-formats. Raises what `receive`
        raises; ValueError with settle="manual", because bytes cannot be settled.
        """
        if self._settle == "manual":
            message = "bytes cannot be settled one by one: use receive"
            raise ValueError(message)
        if self._taken:
            events = [self._taken.popleft() for _ in range(min(max_events, len(self._taken)))]
            self.raw_formats = [event.message_format for event in events]
            return [event.message for event in events]
        messages, _ = await self._next(max_events, timeout)
        return messages

    def __aiter__(self) -> Self:
        """Iterate over the events without an end."""
        return self

    async def __anext__(self) -> ReceivedEvent:
        if not self._taken:
            self._taken.extend(await self.receive(_ITERATION_MAX))
        return self._taken.popleft()

    def put_back(self, events: Sequence[ReceivedEvent]) -> None:
        """Return received events that the program has not used. The next `receive` starts with them."""
        self._taken.extendleft(reversed(events))

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Give events an outcome.

        Skips events that are settled or came on a link that was lost. Never waits.
        """
        link = self._link
        ours: list[Delivery] = []
        for event in [events] if isinstance(events, ReceivedEvent) else events:
            if event._link is link and event._delivery is not None:
                ours.append(event._delivery)
            event._delivery = event._link = None
        if link is not None and ours:
            link.settle(ours, outcome)
            self._settled = True
            self._give_back(len(ours))

    async def close(self, *, timeout: float | None = 30.0) -> None:  # noqa: ARG002 (nothing to wait for)
        """Detach. With settle="auto" all events taken so far are accepted first."""
        self._settle_taken()
        self._stop(ClosedError("the consumer is closed"))

    # -- taking

    async def _next(self, count_max: int, timeout: float | None) -> tuple[list[bytes], Sequence[Delivery]]:
        if count_max < 1:
            message = f"max_events must be at least 1 (got {count_max})"
            raise ValueError(message)
        if (got := self._take(count_max))[0] or timeout == 0:
            return got
        if timeout is None:  # the usual case, without an object for the time limit
            return await self._wait(count_max)
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(count_max)
        except TimeoutError as error:
            if isinstance(error, AmqpStreamsError):
                raise
            return [], ()

    async def _wait(self, count_max: int) -> tuple[list[bytes], Sequence[Delivery]]:
        while not (got := self._take(count_max))[0]:
            await self._signal.wait()
        return got

    def _take(self, count_max: int) -> tuple[list[bytes], Sequence[Delivery]]:
        link = self._link
        self.raw_formats = ()
        if link is None:
            self._check()
            return [], ()
        self._settle_taken()
        messages, deliveries, aborted = link.take(count_max)
        formats = link.formats_of(deliveries)
        if not messages:
            if link.oversized:
                self._stop(
                    LinkError(
                        names.LINK_MESSAGE_SIZE_EXCEEDED,
                        "the node sent a message larger than max-message-size",
                    )
                )
                self._check()
            self._give_back(aborted)
            return messages, deliveries
        self._progress = True
        if self._agnostic:
            self._note_associated(messages)
        credit = len(messages) + aborted
        if self._settle == "none":
            link.settle(deliveries, ACCEPTED)
        # Events received before a loss are dropped, but settled, or the node would keep them.
        if before := self._cursor.note(messages):
            dropped = set(before)
            if self._settle != "none":
                link.settle([deliveries[index] for index in before], ACCEPTED)
            messages = [message for index, message in enumerate(messages) if index not in dropped]
            deliveries = [delivery for index, delivery in enumerate(deliveries) if index not in dropped]
            formats = [number for index, number in enumerate(formats) if index not in dropped]
        self.raw_formats = formats
        if self._settle == "auto":
            self._unsettled = deliveries
        self._give_back(credit - (len(deliveries) if self._settle == "manual" else 0))
        assert self._attachment is not None
        self._attachment.wire.flush_soon()
        return messages, deliveries

    def _at_end(self) -> bool:
        """Whether the node has reported that it has no more events.

        If it was not asked yet, ask it with a drain.
        """
        link = self._link
        if link is None:
            return False
        if self._drained_link is link:
            if link.draining:
                return False
            self._drained_link = None
            if (drained := link.take_drained()) > 0:
                self._give_back(drained)
                if link.window_full:
                    description = "the node sends nothing more until some of the received events are settled"
                    raise EndpointError(names.RESOURCE_LIMIT_EXCEEDED, description)
                if not self._stale:
                    return True
        link.take_drained()
        room = max(0, self._room(link))
        # Proton sends a drain before earlier dispositions. A node whose window of unsettled events was full
        # then answers that it has nothing to send: such an answer does not count.
        self._stale, self._settled = self._settled, False
        link.drain(room)
        self._owed -= room
        self._drained_link = link
        if self._attachment is not None:
            self._attachment.wire.flush_soon()
        return False

    def _note_associated(self, messages: Sequence[bytes]) -> None:
        """Update the partitions of a link to the whole log: the node announces a change with an event.

        Hot path: messages that begin like earlier ones without an announcement are not decoded.
        """
        if {message[:_HEAD_BYTES] for message in messages} <= self._heads:
            return
        for message in messages:
            head = message[:_HEAD_BYTES]
            if head not in self._heads:
                with suppress(WireError):  # the program gets the error when it reads a field of the event
                    self._partitions = associated_of(message) or self._partitions
                if (
                    head[:-1].startswith(DELIVERY_ANNOTATIONS_MAP8)
                    and head[-1] == _PLAIN_COUNT
                    and len(self._heads) < _HEADS_MAX
                ):
                    self._heads.add(head)

    def _settle_taken(self) -> None:
        if self._unsettled and self._link is not None:
            self._link.settle(self._unsettled, ACCEPTED)
            self._settled = True
            self._unsettled = ()
            if self._attachment is not None:
                self._attachment.wire.flush_soon()

    def _give_back(self, count: int) -> None:
        """Return credit to the node.

        In portions, because each flow frame costs time, but before it is used up.
        """
        self._owed += count
        link = self._link
        # In portions of a quarter of what is in flight: more flow frames cost more than they gain.
        if link is not None and (room := self._room(link)) > 0 and 3 * room >= link.credit:
            link.grant(room)
            self._owed -= room
        if count and self._attachment is not None:
            self._attachment.wire.flush_soon()

    def _room(self, link: ReceiverLink) -> int:
        """How much of the owed credit may be granted now."""
        return min(self._owed, link.room(self._credit))

    # -- the link's life

    async def _attach(self, wire: Wire) -> Attachment:
        info = await self._look(wire) if wire.event_streams else None
        if info is not None and self.partition is None:
            self._cursor.partition_count = len(info.partitions)
            self._partitions = tuple(entry.partition for entry in info.partitions)
        redirected = self._elsewhere is not None
        if info is not None and self._cursor.other_log(
            info.incarnation, wire.container, wire.store, redirected=redirected
        ):
            _logger.warning("log_recreated log=%s: reading it from its beginning", self.log)
        if self._from_now and not self._started:
            if info is not None:
                # The ends are read before the attach: a link that is lost before its first event then misses
                # nothing.
                self._cursor.anchor({entry.partition: entry.latest_offset for entry in info.partitions})
            return self._open(wire, {})
        partitions = [] if info is None else [entry.partition for entry in info.partitions]
        return self._open(wire, self._cursor.filters(partitions))

    async def _look(self, wire: Wire) -> LogInfo | None:
        try:
            return await shared_info(wire, self._address)
        except LinkRefusedError as error:
            if error.condition != names.UNAUTHORIZED_ACCESS:
                raise
            return None  # a user may have the right `receive` but not `info`

    def _inspect(self, attachment: Attachment) -> None:
        if left_out := self._asked - attachment.link.filters:
            left = ", ".join(sorted(left_out))
            description = f"the node does not support the filter {left}: it would send all events"
            raise LinkRefusedError(names.NOT_IMPLEMENTED, description)
        bound = attachment.link.properties.get(names.PARTITION)
        if names.CONSUMER_GROUP in self._properties and not isinstance(bound, str):
            description = (
                "the node does not support consumer groups: it did not assign a partition to the link"
            )
            raise LinkRefusedError(names.NOT_IMPLEMENTED, description)
        if self._durable and not attachment.link.durable:
            raise LinkRefusedError(
                names.NOT_IMPLEMENTED, "the node does not keep cursors of durable consumers"
            )

    def _explained(self, error: EndpointError) -> EndpointError:
        """Turn the loss of a partition or link name into OwnershipLostError, if this consumer owned it."""
        lost = error.condition == names.LINK_STOLEN or (
            error.condition == names.RESOURCE_LOCKED and self._owns
        )
        if lost and self._started:
            return OwnershipLostError(error.condition, error.description, error.info)
        return error

    def _open(self, wire: Wire, position: Mapping[str, object]) -> Attachment:
        if not position and self._filters and wire.event_streams:
            position = NEW_EVENTS
        filters = {**self._filters, **position}
        self._asked = frozenset(filters)
        return wire.attach_receiver(
            self._address,
            self._signal.fire,
            properties=self._properties,
            filters=filters,
            presettled=self._settle == "none",
            name=self._name,
            durable=self._durable,
        )

    def _resume(self, attachment: Attachment) -> None:
        self._link = attachment.link
        self._owed = self._credit
        bound = attachment.link.properties.get(names.PARTITION)
        self._agnostic = not isinstance(bound, str)
        if isinstance(bound, str):
            self._partitions = (str(bound),)
        self._give_back(0)
        attachment.wire.flush_soon()

    def _suspend(self) -> None:
        self._link = None
        self._unsettled = ()

    def _fail(self, error: AmqpStreamsError) -> None:  # noqa: ARG002 (receive raises it)
        self._suspend()
