"""A member of a consumer group: receives the events of its partitions, each on its own link, as one sequence.

The node decides which member owns which partition. The member asks for more with attaches that wait, at most
as many as the log has partitions. The node keeps the group's position in each partition, and the position
moves with the partition.

Law: an event is returned to the program only while its link is attached. Events that were not returned go to
the next owner. Events that were returned and not settled are marked `revoked`, because the next owner
receives them too.
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
from amqp_streams.client.consuming.candidates import AT_ONCE_S, Candidates, Ending
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
"""When events are settled. auto: as accepted, when the program takes the next events; manual: by `settle`."""

_TURN_S: Final = 0.02
"""`async for` yields to the event loop this often, in seconds: it notices revoked partitions then."""


class Share:
    """A partition that this member owns, and the link that brings its events.

    `unsettled`: how many events were returned to the program and are not settled.
    """

    __slots__ = ("attachment", "link", "partition", "unsettled")

    def __init__(self, attachment: Attachment, partition: str) -> None:
        self.attachment: Final = attachment
        self.link: Final[ReceiverLink] = attachment.link
        self.partition: Final = partition
        self.unsettled = 0


class GroupConsumer:
    """A member of a consumer group. Receives the events of the partitions that the node assigns to it.

    Created by `Client.group_consumer`.
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
        # The node keeps the position: this filter counts only in partitions where the group has none.
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
        self.refusal: EndpointError | None = None
        """Why the node refused the last attach after it had waited, for example because it does not reach the
        home of the group. The member attaches again. None after an attach that was not refused.
        """

    def __repr__(self) -> str:
        return (
            f"<GroupConsumer of {self.log!r} in group {self.group!r}, partitions"
            f" {', '.join(self.partitions) or 'none'}>"
        )

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that this member owns now."""
        return tuple(
            sorted(
                (share.partition for share in tuple(self._shares.values())),
                key=lambda name: (len(name), name),
            )
        )

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:
        """Return the next events, at most `max_events`. Waits for the first one.

        Returns an empty list if no event arrives within `timeout` seconds (None: no limit). Events of one
        partition are in order. Check `revoked` before you process an event that you have kept for some time.

        Raises:
            LinkError, ConnectionLostError, ClosedError.
        """
        if max_events < 1:
            message = f"max_events must be at least 1 (got {max_events})"
            raise ValueError(message)
        now_s = asyncio.get_running_loop().time
        self._pace.asked(now_s())
        # First, because it may return credit.
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
        """Iterate over the events without an end.

        With settle="auto" each is settled when the program asks for the next.
        """
        return self

    async def __anext__(self) -> ReceivedEvent:
        """Return the next event."""
        now_s = asyncio.get_running_loop().time
        if now_s() - self._yielded_s > _TURN_S:
            await asyncio.sleep(0)
            self._yielded_s = now_s()
        [event] = await self.receive(1)
        return event

    def put_back(self, events: Sequence[ReceivedEvent]) -> None:
        """Return received events that the program has not used.

        The next `receive` starts with those that still belong to this member.
        """
        # By identity: equal events are different deliveries.
        back = set(map(id, events))
        self._handed = [event for event in self._handed if id(event) not in back]
        self._again.extendleft(reversed(events))

    def settle(self, events: ReceivedEvent | Iterable[ReceivedEvent], outcome: Outcome = ACCEPTED) -> None:
        """Give events an outcome. Events that are already settled, or `revoked`, are skipped. Never waits."""
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
        """Join the group. Does not wait for a partition, because other members may own all of them.

        Raises:
            LinkRefusedError, ConnectionLostError, TimedOutError.
        """
        if self._supervisor is not None:
            message = "this consumer was opened before: create a new one"
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
        """Leave the group; the node assigns its partitions to other members at once.

        With settle="auto" all events returned so far are accepted first.
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
        # Round-robin over the partitions: one with many events does not delay the others.
        for _ in range(len(self._order)):
            if len(events) >= count_max:
                break
            share = self._order[0]
            self._order.rotate(-1)
            messages, deliveries, aborted = share.link.take(count_max - len(events))
            if share.link.oversized:
                self._stop(
                    LinkError(
                        names.LINK_MESSAGE_SIZE_EXCEEDED,
                        "the node sent a message larger than max-message-size",
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
            message = "the consumer is not open: use it with `async with`"
            raise ClosedError(message)
        return events

    def _settle_handed(self) -> None:
        if self._handed:
            handed, self._handed = self._handed, []
            self.settle(handed)

    def _top_up(self, share: Share) -> None:
        """Grant credit for the events that the program will process soon.

        In portions, but before the credit is used up.
        """
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
            self._stop(LinkError(names.INTERNAL_ERROR, f"internal error of the client: {error!r}"))

    async def _serve(self) -> None:
        """Keep the right number of attaches waiting, until a connection is lost.

        Raises:
            EndpointError; ConnectionLostError if the client cannot reconnect.
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
            # The node answers this request after it has processed the attach. If it refused the attach, the
            # refusal has arrived by now.
            await self._count(wire)
            self._started = self._failure is None
            self._changed.fire()
        elif not self._candidates.due(len(self._shares), now_s()):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._candidates.due_at):
                    await self._changed.wait()

    async def _count(self, wire: Wire) -> int | None:
        """Return how many partitions the log has; None: the user has no right to know."""
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
        """Manage one link from its attach to its end."""
        now_s = asyncio.get_running_loop().time
        since_s, share = now_s(), None
        try:
            # Without a time limit: the node answers when a partition is free.
            await attachment.wait(None)
            share = self._assigned(attachment)
            self._candidates.granted()
            self._changed.fire()
            since_s, error = now_s(), await asyncio.shield(attachment.ended)
        except AmqpStreamsError as refusal:
            error = refusal
            # A refusal at once says that the member has to ask again later, because no partition is free.
            if isinstance(refusal, LinkRefusedError) and now_s() - since_s >= AT_ONCE_S:
                self.refusal = refusal
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
            "consumer groups: it did not assign a partition to the link"
            if not isinstance(partition, str)
            else (
                "durable sources: the group would lose its cursor"
                if not link.durable
                else (
                    f"the filter {', '.join(sorted(left_out))}: it would send all events"
                    if left_out
                    else None
                )
            )
        )
        if unknown is not None:
            attachment.close()
            raise LinkRefusedError(names.NOT_IMPLEMENTED, f"the node does not support {unknown}")
        self.refusal = None
        share = Share(attachment, str(partition))
        self._shares[link] = share
        self._order.append(share)
        self._schedule_callback(self._on_assigned, share.partition)
        self._top_up(share)
        return share

    def _revoked(self, share: Share) -> None:
        if self._shares.pop(share.link, None) is None:
            return
        self._order.remove(share)
        # They must not be settled: the next owner receives them.
        self._handed = [event for event in self._handed if event._link is not share.link]
        self._schedule_callback(self._on_revoked, share.partition)

    def _schedule_callback(self, callback: Callable[[str], object] | None, partition: str) -> None:
        """Call a callback of the program in its own loop iteration.

        An exception in it then does not affect the links.
        """
        if callback is not None:
            asyncio.get_running_loop().call_soon(callback, partition)

    def _stop(self, error: AmqpStreamsError) -> None:
        """Detach all links and wake all waiting calls."""
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
