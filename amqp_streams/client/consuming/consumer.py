"""A consumer: events as they come or in batches, under a credit window, from a position that survives the
connection, or the process.

Credit is given back as events are taken (with settle="manual": as they are settled), so an application that
does not keep up holds up the node, not its own memory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.endpoint import Endpoint, place_text
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
"""Events that `async for` takes at a time."""
_HEAD_BYTES: Final = 6
_PLAIN_COUNT: Final = 2 * 3
"""Of a delivery annotations section with place, time and partition alone: its code, a short map of some size,
and its count.
"""
_HEADS_MAX: Final = 64


class Consumer(Endpoint):
    """Receives the events of one log (or of one partition of it). Made by `Client.consumer`; use it with
    `async with`.

    After a loss it goes on behind the last event taken. Events released by `settle` come again on the same
    link, but not on the next. A durable one goes on where the node says: at the first event that was not
    settled.
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
        # A partition's owner comes back under its name, so that a connection that only we know to be lost
        # does not lock it out.
        self._owns: Final = (
            names.CONSUMER_GROUP in self._properties or names.EPOCH in self._properties
        ) and not assigned
        self._durable: Final = durable is not None
        self._name: Final = durable or f"consumer-{uuid4().hex}"
        self.attach_s_max = (
            None if assigned else self.attach_s_max
        )  # the node may keep it waiting until a partition is free
        self._cursor: Final = Cursor(
            start, partition, redelivers=settle == "manual", kept=self._durable, assigned=assigned
        )
        self._from_now: Final = isinstance(start, Latest) and not self._durable
        self._partitions: tuple[str, ...] = ()
        self._agnostic = True
        self._heads: set[bytes] = set()
        self._drained_link: ReceiverLink | None = None
        self._settled = self._stale = False
        """Something was settled since the node was last asked for the end; the same of the time before that.
        """
        self._link: ReceiverLink | None = None
        self._asked: frozenset[str] = frozenset()
        self._owed = 0
        self._unsettled: list[Delivery] = []
        self._taken: deque[ReceivedEvent] = deque()
        self.raw_formats: Sequence[int] = ()
        """The message-formats (AMQP 2.7.5) of what `receive_raw` gave last, in its order; empty: they are all
        0.
        """

    def __repr__(self) -> str:
        state = "attached" if self.attached else "not attached"
        return f"<Consumer of {place_text(self.log, self.partition)}, {state}>"

    @property
    def link_properties(self) -> dict[str, object]:
        """What the node answered to the attach: `event-streams-partition`, `event-streams-epoch`."""
        return {} if self._link is None else self._link.properties

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that events come from now;

        () while no link is attached, or where the node does not say.
        """
        return () if self._link is None else self._partitions

    @property
    def epoch(self) -> int | None:
        """The epoch of our ownership, in a consumer group. Spec: Event Streams 4.5.2."""
        epoch = self.link_properties.get(names.EPOCH)
        return int(epoch) if isinstance(epoch, int) else None

    @property
    def positions(self) -> dict[str, str]:
        """Offset of the last event taken, by partition: `AfterOffset` of it goes on from here."""
        return {
            partition: offset
            for partition, offset in self._cursor.after.items()
            if offset != names.OFFSET_EARLIEST
        }

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """The next events, at most `max_events`: waits for the first; an empty list when `timeout` seconds
        passed without one.

        Raises: LinkError, ConnectionLostError, ClosedError.
        """
        if self._taken:
            return [self._taken.popleft() for _ in range(min(max_events, len(self._taken)))]
        messages, deliveries = await self._next(max_events, timeout)
        if self._settle == "manual":
            link = self._link
            events = [
                ReceivedEvent(message, delivery, link)
                for message, delivery in zip(messages, deliveries, strict=True)
            ]
        else:
            events = [ReceivedEvent(message) for message in messages]
        for event, message_format in zip(events, self.raw_formats, strict=False):
            event.message_format = message_format
        return events

    async def receive_retained(
        self, max_events: int = 500, timeout: float | None = None
    ) -> list[ReceivedEvent]:
        """The next of the events that the log has now; an empty list when all of them have been received or
        passed over by filters.

        The node is asked to say so (AMQP 2.6.7, drain).

        Raises: what `receive` raises, and TimedOutError when neither came within `timeout`.
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
        """The same as bytes of AMQP messages with their delivery annotations: the fastest way. Not with
        settle="manual".

        `raw_formats` has their message-formats.
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
        """Events one by one, forever."""
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
        """Say what became of events.

        Those settled before or received on a link since lost are passed over. Never waits.
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
        """Detach. With settle="auto" what was taken counts as accepted; unsettled events stay in the log
        anyway.
        """
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
        self.raw_formats = ()
        if link is None:
            self._check()
            return [], []
        self._settle_taken()
        messages, deliveries, aborted = link.take(count_max)
        formats = link.formats_of(deliveries)
        if not messages:
            if link.oversized:
                self._stop(
                    LinkError(
                        names.LINK_MESSAGE_SIZE_EXCEEDED, "the node sent a message beyond max-message-size"
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
        """The node gave back credit because it had nothing to send for it; otherwise it is asked to.

        Nothing is left to be taken.
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
                    description = "the node sends no more before some of the events received are settled"
                    raise EndpointError(names.RESOURCE_LIMIT_EXCEEDED, description)
                if not self._stale:
                    return True
        link.take_drained()
        room = max(0, self._room(link))
        # Proton writes a drain before what was settled meanwhile: a node that had no room for more answers
        # that it has nothing.
        self._stale, self._settled = self._settled, False
        link.drain(room)
        self._owed -= room
        self._drained_link = link
        if self._attachment is not None:
            self._attachment.wire.flush_soon()
        return False

    def _note_associated(self, messages: Sequence[bytes]) -> None:
        """A link that is bound to no partition tells with an event which ones it brings from there on.

        Nearly all say nothing new.
        """
        if {message[:_HEAD_BYTES] for message in messages} <= self._heads:
            return
        for message in messages:
            head = message[:_HEAD_BYTES]
            if head not in self._heads:
                with suppress(WireError):  # whoever looks at the event is told
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
            self._unsettled = []
            if self._attachment is not None:
                self._attachment.wire.flush_soon()

    def _give_back(self, count: int) -> None:
        """Credit goes back in portions, not one by one, but before there is none left."""
        self._owed += count
        link = self._link
        if link is not None and (room := self._room(link)) > 0 and 3 * room >= link.credit:
            link.grant(room)
            self._owed -= room
        if count and self._attachment is not None:
            self._attachment.wire.flush_soon()

    def _room(self, link: ReceiverLink) -> int:
        """Credit that is owed and may be given now."""
        return min(self._owed, link.room(self._credit))

    # -- the link's life

    async def _attach(self, wire: Wire) -> Attachment:
        info = await self._look(wire) if wire.event_streams else None
        if info is not None and self.partition is None:
            self._cursor.partition_count = len(info.partitions)
            self._partitions = tuple(entry.partition for entry in info.partitions)
        if info is not None and self._cursor.other_log(info.incarnation, wire.container):
            _logger.warning("log_made_anew log=%s: reading it from its beginning", self.log)
        if self._from_now and not self._started:
            if info is not None:
                # Asked before the attach: nothing accepted from here on is missed, should this link be lost
                # before it brings it.
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
            return None  # it may be read all the same

    def _inspect(self, attachment: Attachment) -> None:
        if left_out := self._asked - attachment.link.filters:
            description = (
                f"the node does not know the filter {', '.join(sorted(left_out))}: it would send everything"
            )
            raise LinkRefusedError(names.NOT_IMPLEMENTED, description)
        bound = attachment.link.properties.get(names.PARTITION)
        if names.CONSUMER_GROUP in self._properties and not isinstance(bound, str):
            description = "the node does not know consumer groups: it gave the link no partition"
            raise LinkRefusedError(names.NOT_IMPLEMENTED, description)
        if self._durable and not attachment.link.durable:
            raise LinkRefusedError(
                names.NOT_IMPLEMENTED, "the node does not keep the place of a durable consumer"
            )

    def _explained(self, error: EndpointError) -> EndpointError:
        """What a detach or a refused attach means to one who had it."""
        lost = error.condition == names.LINK_STOLEN or (
            error.condition == names.RESOURCE_LOCKED and self._owns
        )
        return (
            OwnershipLostError(error.condition, error.description, error.info)
            if lost and self._started
            else error
        )

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
        self._unsettled = []

    def _fail(self, error: AmqpStreamsError) -> None:  # noqa: ARG002 (receive raises it)
        self._suspend()
