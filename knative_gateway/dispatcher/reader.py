"""[io] The shared reader of one partition: each event is read, decoded and filtered once for all its members.

Laws: `passed` is the last event that every member was offered; a member without room never holds up another: it falls back to a reader of
its own, unless it is alone, when there is nobody to hold up; it comes back when it has caught up.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, cast

import structlog

from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.subscribers.track import STEPS_AT_ONCE, Track
from knative_gateway.errors import GatewayError
from knative_gateway.filters import FilterWorkError, Index
from knative_gateway.ports import EventLog, Stored

log_ = structlog.get_logger(__name__)

REACH: Final = 20_000
"""Events between the shared reader and a member ahead of it: with more, it would wait for what it has had."""
_AT_ONCE: Final = 64
_AGAIN_S: Final = 1.0


class PartitionReader:
    """`index`: gives the filters of all subscribers, by their uids, as they are now."""

    def __init__(self, events: EventLog, log: str, partition: int, index: Callable[[], Index[str]]) -> None:
        self.log: Final = log
        self.partition: Final = partition
        self.passed = positions.BEGINNING
        self.members: Final[dict[str, Track]] = {}
        self.unreadable = 0
        self._events: Final = events
        self._index: Final = index
        self._steps = 0
        self._blocked: Track | None = None
        self._task: asyncio.Task[None] | None = None

    def place(self, tracks: Sequence[Track]) -> None:
        """Give new tracks their reader: the shared one those that are about as far as the foremost, one of its own each that is behind."""
        behind = list(tracks)
        if not self.members and behind:
            foremost = max(track.passed for track in behind)
            near = [track for track in behind if _is_near(track.passed, foremost)]
            self.passed = min(track.passed for track in near)
            for track in near:
                self._join(track)
                behind.remove(track)
            self._restart()
        for track in behind:
            if not self.admit(track):
                track.catch_up()

    def admit(self, track: Track) -> bool:
        """Make a track a member if it has caught up."""
        if track.is_member:
            return True
        if self.members and (track.passed < self.passed or not _is_near(self.passed, track.passed)):
            return False
        blocked = self._blocked
        if blocked is not None:
            # It was alone, and is no more.
            self._fall_back(blocked, self.passed)
        alone = not self.members
        self._join(track)
        if alone:
            self.passed = track.passed
            self._restart()
        return True

    def leave(self, track: Track) -> None:
        """It gets nothing more."""
        if track.is_member:
            track.passed = max(track.passed, self.passed)
            del self.members[track.courier.spec.uid]
            track.courier.room.set()

    async def close(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _join(self, track: Track) -> None:
        track.joins()
        self.members[track.courier.spec.uid] = track

    def _fall_back(self, track: Track, position: str) -> None:
        """`position`: just before the event that it has no room for."""
        del self.members[track.courier.spec.uid]
        track.passed = position
        track.catch_up()

    def _restart(self) -> None:
        """Read from where `passed` is now."""
        if self._task is not None:
            self._task.cancel()
        self._blocked = None
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self.members:
            try:
                stream = self._events.read(self.log, {self.partition: positions.read_from(self.passed)})
                async with aclosing(cast("AsyncGenerator[Sequence[Stored], None]", stream)) as batches:
                    async for batch in batches:
                        await self._take(batch)
                        if not self.members:
                            return
            except GatewayError as error:
                log_.warning("reading_failed", log=self.log, partition=self.partition, reason=str(error))
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                # A fault of ours: all members wait for this task, so it goes on.
                log_.exception("reading_fault", log=self.log, partition=self.partition)
                await asyncio.sleep(_AGAIN_S)

    async def _take(self, batch: Sequence[Stored]) -> None:
        for after, last in positions.gaps(self.passed, [stored.offset for stored in batch]):
            for member in self.members.values():
                member.overtaken(after, last)
        for count, stored in enumerate(batch, 1):
            if stored.offset <= self.passed:
                continue
            arrival = Arrival(stored, self.passed)
            if arrival.attributes is None:
                self._skip(arrival)
            else:
                for uid in await self._wanted_by(arrival):
                    track = self.members.get(uid)
                    if track is not None and not self._offer(track, arrival):
                        await self._without_room(track, arrival)
            self.passed = stored.offset
            if count % _AT_ONCE == 0 or self._steps > STEPS_AT_ONCE:
                self._steps = 0
                await asyncio.sleep(0)

    async def _wanted_by(self, arrival: Arrival) -> Sequence[str]:
        """The subscribers that the event goes to. A filter that fails costs its subscriber this event only."""
        assert arrival.attributes is not None
        index = self._index()
        try:
            uids = index.matching(arrival.attributes)
        except FilterWorkError:
            return await self._wanted_one_by_one(arrival)
        except Exception:
            log_.exception("filter_fault", log=self.log, partition=arrival.partition, offset=arrival.offset)
            return await self._wanted_one_by_one(arrival)
        self._steps += index.spent
        return uids

    async def _wanted_one_by_one(self, arrival: Arrival) -> Sequence[str]:
        """The same, where others get their turn between two subscribers. Those who join meanwhile are asked as well."""
        asked: set[str] = set()
        wanted: list[str] = []
        while left := [uid for uid in self.members if uid not in asked]:
            for uid in left:
                asked.add(uid)
                track = self.members.get(uid)
                if track is not None and track.courier.wants_it(arrival):
                    wanted.append(uid)
                await asyncio.sleep(0)
        return wanted

    def _offer(self, track: Track, arrival: Arrival) -> bool:
        """Offer an event to one member. A fault costs that member this event only, and it is in its history."""
        try:
            return track.offer(arrival)
        except Exception as error:  # noqa: BLE001  it is logged and recorded
            track.courier.faulty(arrival, error, "the event could not be taken")
            return True

    async def _without_room(self, track: Track, arrival: Arrival) -> None:
        if len(self.members) > 1:
            self._fall_back(track, arrival.before)
            return
        # Nobody joins without ending this wait, so that the event in hand is offered to all who are there when it is over.
        self._blocked = track
        room = track.courier.room
        while track.is_member and not self._offer(track, arrival):
            room.clear()
            await room.wait()
        self._blocked = None

    def _skip(self, arrival: Arrival) -> None:
        self.unreadable += 1
        log_.warning("no_cloudevent", log=self.log, partition=arrival.partition, offset=arrival.offset, reason=arrival.problem)
        for track in self.members.values():
            track.courier.skip(arrival)


def _is_near(behind: str, ahead: str) -> bool:
    gap = positions.distance(behind, ahead)
    return behind == ahead if gap is None else gap <= REACH
