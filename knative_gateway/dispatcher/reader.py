"""[io] The shared reader of one partition: it reads, decodes and filters each event once for all its members.

`read` is the last event that every member was offered. A member without room does not delay other members: it
gets an own reader, unless it is the only member, and returns when it has caught up.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, cast

import structlog

from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import Arrival, read_arrival
from knative_gateway.dispatcher.cursor import ReadPosition
from knative_gateway.dispatcher.subscribers.catching_up import STEPS_AT_ONCE, catch_up
from knative_gateway.dispatcher.subscribers.partition import SubscriberPartition
from knative_gateway.errors import GatewayError
from knative_gateway.filters import FilterWorkError, Index
from knative_gateway.ports import EventLog, Stored

log_ = structlog.get_logger(__name__)

REACH: Final = 20_000
"""How many events a new member may be ahead of the shared reader. The member waits while the reader reads
these events again.
"""
# Events after which other tasks run.
_AT_ONCE: Final = 64
_RETRY_S: Final = 1.0


class PartitionReader:
    """`members`: the subscribers that receive its events, by uid. `read`: its position, an object that the
    members share. `unreadable`: how many stored messages were not CloudEvents.
    """

    def __init__(self, events: EventLog, log: str, partition: int, index: Index[str]) -> None:
        """`index`: the filters of all subscribers, by uid."""
        self.log: Final = log
        self.partition: Final = partition
        self.read: Final = ReadPosition(positions.BEGINNING)
        self.members: Final[dict[str, SubscriberPartition]] = {}
        self.unreadable = 0
        self._events: Final = events
        self._index: Final = index
        self._steps = 0
        self._blocked: SubscriberPartition | None = None
        self._own: Final[dict[SubscriberPartition, asyncio.Task[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def place(self, entering: Sequence[SubscriberPartition]) -> None:
        """Give each new subscriber a reader: this one if the subscriber is near the foremost, else an own
        reader.
        """
        behind = list(entering)
        if not self.members and behind:
            # The subscribers that keep up share the reader. One that is far behind would make the others
            # receive its old events again.
            foremost = max(each.cursor.own.offset for each in behind)
            near = [each for each in behind if _is_near(each.cursor.own.offset, foremost)]
            # Members that are ahead of this skip the events that they had (`Cursor.has_had`).
            self.read.offset = min(each.cursor.own.offset for each in near)
            for each in near:
                self._join(each)
                behind.remove(each)
            self._restart()
        for each in behind:
            if not self.admit(each):
                self._read_alone(each)

    def admit(self, partition: SubscriberPartition) -> bool:
        """Make a subscriber a member if it has caught up. Returns whether it is a member."""
        if partition.cursor.is_shared:
            return True
        own = partition.cursor.own.offset
        # A member that is behind `read` would miss the events in between: the shared reader never goes back
        # while it has members.
        if self.members and (own < self.read.offset or not _is_near(self.read.offset, own)):
            return False
        if self._blocked is not None:
            # The reader waits for its only member. From now on it must not delay the new member.
            self._fall_back(self._blocked, self.read.offset)
        alone = not self.members
        if alone:
            self.read.offset = own
        self._join(partition)
        if alone:
            self._restart()
        return True

    async def leave(self, partition: SubscriberPartition) -> None:
        """Bring no more events to the subscriber."""
        if partition.cursor.is_shared:
            partition.cursor.leave()
            del self.members[partition.state.spec.uid]
            if self._blocked is partition:
                self._blocked = None  # before the reader runs again, another subscriber may join
            partition.held.wake()  # the reader may wait for room in this partition
        partition.on_room = None
        task = self._own.pop(partition, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _join(self, partition: SubscriberPartition) -> None:
        partition.cursor.join(self.read)
        partition.read_ms = None
        partition.on_room = None
        self.members[partition.state.spec.uid] = partition

    def _fall_back(self, partition: SubscriberPartition, position: str) -> None:
        """Give a member without room an own reader. `position`: just before the event that it has no room
        for.
        """
        del self.members[partition.state.spec.uid]
        partition.cursor.leave(position)
        self._read_alone(partition)

    def _read_alone(self, partition: SubscriberPartition) -> None:
        """Begin an own reader for this subscriber, at its position."""
        # Only one reader may move `own`, so an earlier one is cancelled.
        before = self._own.get(partition)
        if before is not None:
            before.cancel()
        self._own[partition] = task = asyncio.create_task(catch_up(partition, self.log, self.admit))
        task.add_done_callback(partial(self._own_ended, partition))
        partition.on_room = partial(self._admit_with_room, partition, task)

    def _admit_with_room(self, partition: SubscriberPartition, own: "asyncio.Task[None]") -> None:
        """Admit a subscriber whose own reader waits.

        At the end of a log, an own reader waits for the next event, so it does not notice that it has caught
        up.
        """
        if not own.done() and self.admit(partition):
            own.cancel()

    def _own_ended(self, partition: SubscriberPartition, task: "asyncio.Task[None]") -> None:
        if self._own.get(partition) is task:
            del self._own[partition]

    def _restart(self) -> None:
        """Read from `read` on, with a new task."""
        if self._task is not None:
            self._task.cancel()
        self._blocked = None
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self.members:
            try:
                stream = self._events.read(self.log, {self.partition: positions.read_from(self.read.offset)})
                async with aclosing(cast("AsyncGenerator[Sequence[Stored], None]", stream)) as batches:
                    async for batch in batches:
                        await self._take(batch)
                        if not self.members:
                            return
            except GatewayError as error:
                log_.warning("reading_failed", log=self.log, partition=self.partition, reason=str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception:
                # An internal error. The task must not end, because all members depend on it.
                log_.exception("reading_fault", log=self.log, partition=self.partition)
                await asyncio.sleep(_RETRY_S)

    async def _take(self, batch: Sequence[Stored]) -> None:
        read = self.read
        # Retention may remove events faster than they are read. The node then continues with a later offset,
        # and the gap is recorded as a loss.
        for after, last in positions.gaps(read.offset, [stored.offset for stored in batch]):
            for member in self.members.values():
                member.overtaken(after, last)
        for count, stored in enumerate(batch, 1):
            # After a reconnection the node may send events again.
            if stored.offset <= read.offset:
                continue
            arrival = await read_arrival(stored, read.offset)
            if arrival.attributes is None:
                self._skip(arrival)
            else:
                # One pass over an index of all filters, and not one filter after the other: thousands of
                # Triggers may share a Broker.
                wanted = self._wanted_by(arrival)
                for uid in await self._wanted_one_by_one(arrival) if wanted is None else wanted:
                    wanting = self.members.get(uid)
                    if wanting is not None and not self._offer(wanting, arrival):
                        await self._without_room(wanting, arrival)
            # Last: a member that joined during an await above must be offered this event, too.
            read.offset = stored.offset
            if count % _AT_ONCE == 0 or self._steps > STEPS_AT_ONCE:
                self._steps = 0
                await asyncio.sleep(0)

    def _wanted_by(self, arrival: Arrival) -> Sequence[str] | None:
        """Return the subscribers whose filters match the event.

        None: a filter fails. Then only its subscriber loses this event, see `_wanted_one_by_one`.
        """
        assert arrival.attributes is not None
        try:
            uids = self._index.matching(arrival.attributes)
        # The index evaluates several filters together, so the filter that used up the work is not known. One
        # by one, only its own subscriber is affected.
        except FilterWorkError:
            return None
        except Exception:
            log_.exception("filter_fault", log=self.log, **arrival.where)
            return None
        self._steps += self._index.spent
        return uids

    async def _wanted_one_by_one(self, arrival: Arrival) -> Sequence[str]:
        """Return the same with one filter at a time; other tasks run between two subscribers.

        Members that join in the meantime are included.
        """
        asked: set[str] = set()
        wanted: list[str] = []
        while left := [uid for uid in self.members if uid not in asked]:
            for uid in left:
                asked.add(uid)
                member = self.members.get(uid)
                if member is not None and member.state.wants(arrival):
                    wanted.append(uid)
                await asyncio.sleep(0)
        return wanted

    def _offer(self, member: SubscriberPartition, arrival: Arrival) -> bool:
        """Offer an event to one member; False: the member has no room.

        An internal error skips the event for this member, and is recorded in its history.
        """
        try:
            return member.offer(arrival)
        except Exception as error:  # noqa: BLE001  it is logged and recorded
            member.state.not_taken(arrival, error, "the event could not be taken")
            return True

    async def _without_room(self, member: SubscriberPartition, arrival: Arrival) -> None:
        """Move a member without room to an own reader, or wait for it if it is the only member."""
        # The only member can wait here: no other member is delayed, and a second link to the node is not
        # needed.
        if len(self.members) > 1:
            self._fall_back(member, arrival.before)
            return
        # `admit` ends this wait before another member joins. So a member that joins later is offered this
        # event, too.
        self._blocked = member
        while member.cursor.is_shared and not self._offer(member, arrival):
            await member.held.wait()
        self._blocked = None

    def _skip(self, arrival: Arrival) -> None:
        self.unreadable += 1
        log_.warning("not_a_cloudevent", log=self.log, **arrival.where, reason=arrival.problem)
        for member in self.members.values():
            member.state.skip(arrival)


def _is_near(behind: str, ahead: str) -> bool:
    gap = positions.distance(behind, ahead)
    return behind == ahead if gap is None else gap <= REACH
