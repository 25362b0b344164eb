"""A member of a consumer group: its share of a log's partitions, each on a link of its own, as one stream of
events.

The node decides who has which partition; the member asks for more by attaches that wait, as many as the group
has partitions at most. The group's place in each partition is kept at the node and moves with the partition.
One law: an event is handed out only while its link is attached, so that what was not handed out is the next
owner's, and what was handed out and not settled is known to come again (`revoked`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Literal, Self
from uuid import uuid4

from amqp_streams import names
from amqp_streams.client.connection.endpoint import Signal, refused_for_a_limit
from amqp_streams.client.connection.links import Delivery, ReceiverLink
from amqp_streams.client.connection.pool import Pool
from amqp_streams.client.connection.transport import Attachment, Wire
from amqp_streams.client.consuming.candidates import Candidates, Ending
from amqp_streams.client.consuming.cursor import NEW_EVENTS, Cursor
from amqp_streams.client.consuming.pace import Pace
from amqp_streams.client.errors import (
    ClosedError,
    ConnectionLostError,
    EndpointError,
    LinkError,
    LinkRefusedError,
)
from amqp_streams.client.management.requests import read_info
from amqp_streams.client.options import ACCEPTED, Outcome, Start
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.errors import AmqpStreamsError

_logger: Final = logging.getLogger("amqp_streams.client")
GroupSettle = Literal["auto", "manual"]
"""auto: settled as accepted when the next events are taken; manual: by `settle`."""

_TURN_S: Final = 0.02
"""`async for` lets others have the loop this often, so that a revocation is noticed between two events."""


class Share:
    """A partition that we have, and the link that brings its events.

    `unsettled`: handed out and not settled.
    """

    __slots__ = ("attachment", "link", "partition", "unsettled")

    def __init__(self, attachment: Attachment, partition: str) -> None:
        self.attachment: Final = attachment
        self.link: Final[ReceiverLink] = attachment.link
        self.partition: Final = partition
        self.unsettled = 0


class GroupConsumer:
    """Receives its share of the events of one log as a member of a consumer group.

    Made by `Client.group_consumer`.
    """

    def __init__(
        self,
        pool: Pool,
        log: str,
        group: str,
        *,
        start: Start,
        settle: GroupSettle,
        credit: int,
        candidates: int,
        ahead_ms: int,
        filters: Mapping[str, object] | None,
        on_assigned: Callable[[str], object] | None,
        on_revoked: Callable[[str], object] | None,
    ) -> None:
        assert credit > 0
        self.log: Final = log
        self.group: Final = group
        self._pool: Final = pool
        self._credit: Final = credit
        self.auto: Final = settle == "auto"
        position = Cursor(start, None, kept=True).filters(())
        self._filters: Final = {**filters, **(position or NEW_EVENTS)} if filters else position
        self._on_assigned: Final = on_assigned
        self._on_revoked: Final = on_revoked
        self._candidates: Final = Candidates(candidates, pool.retry, f"group-{uuid4().hex}")
        self._pace: Final = Pace(ahead_ms / 1000, credit)
        self._shares: dict[ReceiverLink, Share] = {}
        self._order: deque[Share] = deque()
        self._handed: list[ReceivedEvent] = []
        self._again: deque[ReceivedEvent] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervisor: asyncio.Task[None] | None = None
        self._signal: Final = Signal()
        self._changed: Final = Signal()
        self._failure: AmqpStreamsError | None = None
        self._started = False
        self._lost = False
        self._yielded_s = 0.0

    def __repr__(self) -> str:
        return (
            f"<GroupConsumer of {self.log!r} in group {self.group!r}, partitions"
            f" {', '.join(self.partitions) or 'none'}>"
        )

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that are ours now."""
        return tuple(
            sorted(
                (share.partition for share in tuple(self._shares.values())),
                key=lambda name: (len(name), name),
            )
        )

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """The next events, at most `max_events`: waits for the first; an empty list when `timeout` seconds
        passed without one.

        Those of a partition come in its order. Look at `revoked` before you start with one that has been
        waiting at your side.

        Raises: LinkError, ConnectionLostError, ClosedError.
        """
        if max_events < 1:
            message = "max_events is at least 1"
            raise ValueError(message)
        now_s = asyncio.get_running_loop().time
        self._pace.asked(now_s())
        self._settle_handed()
        events = self._take(max_events)
        if not events and timeout != 0:
            try:
                async with asyncio.timeout(timeout):
                    while not (events := self._take(max_events)):
                        await self._signal.wait()
            except TimeoutError as error:
                if isinstance(error, AmqpStreamsError):
                    raise
        self._pace.gave(len(events), now_s())
        return events

    def __aiter__(self) -> Self:
        """Events one by one, forever. With settle="auto" each is settled when the next is asked for."""
        return self

    async def __anext__(self) -> ReceivedEvent:
        """The next event."""
        now_s = asyncio.get_running_loop().time
        if now_s() - self._yielded_s > _TURN_S:
            await asyncio.sleep(0)
            self._yielded_s = now_s()
        [event] = await self.receive(1)
        return event

    def put_back(self, events: Sequence[ReceivedEvent]) -> None:
        """Events received and not looked at: the next `receive` gives them first, if they are still ours
        then.
        """
        back = set(map(id, events))
        self._handed = [event for event in self._handed if id(event) not in back]
        self._again.extendleft(reversed(events))

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Say what became of events. Those settled before, or `revoked`, are passed over. Never waits."""
        by_link: dict[ReceiverLink, list[Delivery]] = {}
        for event in [events] if isinstance(events, ReceivedEvent) else events:
            if event._link in self._shares and event._delivery is not None:
                by_link.setdefault(event._link, []).append(event._delivery)
                event._delivery = event._link = None
        for link, deliveries in by_link.items():
            link.settle(deliveries, outcome)
            share = self._shares[link]
            share.unsettled -= len(deliveries)
            self._top_up(share)

    async def open(self, *, timeout: float | None = 30.0) -> None:
        """Ask for partitions. Does not wait until there are any: the others may have them all.

        Raises: LinkRefusedError, ConnectionLostError, TimedOutError.
        """
        if self._supervisor is not None:
            message = "it was opened before: make another"
            raise ClosedError(message)
        self._supervisor = asyncio.create_task(self._supervise())
        try:
            await self._changed.wait_until(
                lambda: self._started or self._failure is not None, timeout, "joining the group"
            )
        except BaseException:
            self._stop(ClosedError("closed"))
            raise
        if self._failure is not None:
            raise self._failure

    async def close(self, *, timeout: float | None = 30.0) -> None:  # noqa: ARG002 (nothing to wait for)
        """Leave the group: others get its partitions at once.

        With settle="auto" what was handed out counts as accepted.
        """
        self._settle_handed()
        self._stop(ClosedError("the consumer is closed"))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self._stop(ClosedError("closed"))

    # -- taking and settling

    def _take(self, count_max: int) -> list[ReceivedEvent]:
        events: list[ReceivedEvent] = []
        while self._again and len(events) < count_max:
            if not (event := self._again.popleft()).revoked:
                events.append(event)
        for _ in range(len(self._order)):
            if len(events) >= count_max:
                break
            share = self._order[0]
            self._order.rotate(-1)
            messages, deliveries, aborted = share.link.take(count_max - len(events))
            if share.link.oversized:
                self._stop(
                    LinkError(
                        names.LINK_MESSAGE_SIZE_EXCEEDED, "the node sent a message beyond max-message-size"
                    )
                )
                break
            came = [
                ReceivedEvent(message, delivery, share.link)
                for message, delivery in zip(messages, deliveries, strict=True)
            ]
            for event, message_format in zip(came, share.link.formats_of(deliveries), strict=False):
                event.message_format = message_format
            events += came
            share.unsettled += len(messages)
            if messages or aborted:
                self._top_up(share)
        if self.auto:
            self._handed += events
        if not events and self._failure is not None:
            raise self._failure
        if not self._started:
            message = "not open yet: use it with `async with`"
            raise ClosedError(message)
        return events

    def _settle_handed(self) -> None:
        if self._handed:
            handed, self._handed = self._handed, []
            self.settle(handed)

    def _top_up(self, share: Share) -> None:
        """Credit for as much as the application gets done soon; in portions, but before there is none left."""
        ahead, unread = self._pace.ahead(len(self._shares)), share.link.credit
        room = share.link.room(min(ahead, self._credit - share.unsettled))
        if room > 0 and (room >= ahead // 4 or unread == 0):
            share.link.grant(room)
        share.attachment.wire.flush_soon()

    # -- the links' lives

    async def _supervise(self) -> None:
        try:
            while True:
                try:
                    await self._serve()
                except EndpointError as error:
                    wait_s = self._candidates.failed(error) if self._started else None
                    if wait_s is None:
                        raise
                    await asyncio.sleep(wait_s)
        except AmqpStreamsError as error:
            self._stop(error)
        except Exception as error:
            _logger.exception("group_fault log=%s group=%s", self.log, self.group)
            self._stop(LinkError(names.INTERNAL_ERROR, f"a fault of the client: {error!r}"))

    async def _serve(self) -> None:
        """Keep as many attaches waiting as there should be, until a connection is lost.

        Raises: EndpointError; ConnectionLostError when no connection can be made.
        """
        self._lost = False
        wire = await self._pool.question_wire()
        with suppress(ConnectionLostError):
            self._candidates.partitions = await self._count(wire)
        while wire.lost_by is None and not self._lost:
            wire = await self._pool.wire()
            with suppress(ConnectionLostError):
                await self._step(wire)

    async def _step(self, wire: Wire) -> None:
        """Start the attaches that are due, and wait until something changes."""
        now_s = asyncio.get_running_loop().time
        for _ in range(min(self._candidates.due(len(self._shares), now_s()), wire.room)):
            self._attach(wire)
        if not self._started:
            # Answered after our attach was looked at: what the node has against us has been told by now.
            await self._count(wire)
            self._started = self._failure is None
            self._changed.fire()
        elif not self._candidates.due(len(self._shares), now_s()):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._candidates.due_at):
                    await self._changed.wait()

    async def _count(self, wire: Wire) -> int | None:
        """How many partitions there are; None: we may not know."""
        try:
            return len((await read_info(wire, self.log)).partitions)
        except LinkRefusedError as error:
            if error.condition != names.UNAUTHORIZED_ACCESS:
                raise
            return None

    def _attach(self, wire: Wire) -> None:
        name = self._candidates.start()
        attachment = wire.attach_receiver(
            self.log,
            self._signal.fire,
            properties={names.CONSUMER_GROUP: self.group},
            filters=self._filters,
            name=name,
            durable=True,
        )
        task = asyncio.create_task(self._hold(name, attachment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hold(self, name: str, attachment: Attachment) -> None:
        """One link, from its attach until it is over."""
        now_s = asyncio.get_running_loop().time
        since_s, share = now_s(), None
        try:
            await attachment.wait(None)
            share = self._assigned(attachment)
            self._candidates.granted()
            self._changed.fire()
            since_s, error = now_s(), await asyncio.shield(attachment.ended)
        except AmqpStreamsError as refusal:
            error = refusal
        if share is not None:
            self._revoked(share)
        self._lost = self._lost or isinstance(error, ConnectionLostError)
        if share is None and refused_for_a_limit(error) and attachment.wire.limit():
            _logger.warning(
                "link_refused log=%s group=%s reason=%s: trying another connection",
                self.log,
                self.group,
                error,
            )
        ending = self._candidates.ended(
            name, error, held=share is not None, lasted_s=now_s() - since_s, now_s=now_s()
        )
        if ending is Ending.FINAL:
            self._stop(error)
        self._changed.fire()

    def _assigned(self, attachment: Attachment) -> Share:
        link: ReceiverLink = attachment.link
        partition = link.properties.get(names.PARTITION)
        left_out = self._filters.keys() - link.filters
        unknown = (
            "consumer groups: it gave the link no partition"
            if not isinstance(partition, str)
            else (
                "durable sources: the group would lose its place"
                if not link.durable
                else (
                    f"the filter {', '.join(sorted(left_out))}: it would send everything"
                    if left_out
                    else None
                )
            )
        )
        if unknown is not None:
            attachment.close()
            raise LinkRefusedError(names.NOT_IMPLEMENTED, f"the node does not know {unknown}")
        share = Share(attachment, str(partition))
        self._shares[link] = share
        self._order.append(share)
        self._tell(self._on_assigned, share.partition)
        self._top_up(share)
        return share

    def _revoked(self, share: Share) -> None:
        if self._shares.pop(share.link, None) is None:
            return
        self._order.remove(share)
        self._handed = [event for event in self._handed if event._link is not share.link]
        self._tell(self._on_revoked, share.partition)

    def _tell(self, callback: Callable[[str], object] | None, partition: str) -> None:
        """In a turn of its own: what goes wrong in there is the loop's to report, and no business of the
        links.
        """
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback, partition)

    def _stop(self, error: AmqpStreamsError) -> None:
        """Detach everything, wake everybody."""
        if self._failure is None:
            self._failure = error
        for task in [*self._tasks, self._supervisor]:
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        for share in tuple(self._shares.values()):
            share.attachment.close()
            self._revoked(share)
        self._signal.fire()
        self._changed.fire()
