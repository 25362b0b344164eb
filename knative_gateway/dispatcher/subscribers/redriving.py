"""[io] Redrive: events that are read again by their offsets, and sent in addition to the events in flight.

They do not belong to a cursor. The history limits their number: it has only the latest failures. A limit in
bytes applies to the events that are held; the other events wait as offsets.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, cast

from knative_gateway.delivery import Entry, Window
from knative_gateway.delivery.window import LOOK_AHEAD_MAX
from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.subscribers.source import HeldBytes, Source
from knative_gateway.ports import EventLog, Order, Stored

ANSWER_S: Final = 10.0
"""How long reading one event may take. If retention has just removed the end of a partition, no event comes.
"""


class Listed(NamedTuple):
    """An event that a history lists. `identity`: its id and source, as in `Arrival.identity`."""

    partition: int
    offset: str
    identity: tuple[str, str]


class Progress(NamedTuple):
    """How far a redrive is: all its events, those that have not ended, and those that were cancelled."""

    events: int
    left: int
    cancelled: int


class Redrive(Source):
    """The events that one subscriber receives again, in any order."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(Window(Order.UNORDERED, LOOK_AHEAD_MAX), HeldBytes(bytes_max))
        self._waiting: Final[deque[Listed]] = deque()
        self._wanted: Final[set[Listed]] = set()
        self._where: Final[dict[str, Listed]] = {}
        self._added = 0
        self._total = self._cancelled = 0

    def want(self, events: Sequence[Listed]) -> bool:
        """Deliver these events again, except those that wait or are in flight. Returns whether any event is
        new.
        """
        # Two requests for a redrive soon after each other would otherwise send everything twice.
        new = [event for event in events if event not in self._wanted][: LOOK_AHEAD_MAX - len(self._wanted)]
        if not self._wanted:
            self._total = self._cancelled = 0
        self._total += len(new)
        self._wanted.update(new)
        self._waiting.extend(new)
        return bool(new)

    @property
    def is_waiting(self) -> bool:
        """Whether an event waits, is being read, or is in flight."""
        return bool(self._wanted)

    def has(self, partition: int, offset: str) -> bool:
        """Return whether an event waits, is being read, or is in flight."""
        return any((each.partition, each.offset) == (partition, offset) for each in self._wanted)

    def next(self) -> Listed | None:
        """Return the next event to read; None if all events were read."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def progress(self) -> Progress:
        """How far the redrive is; the last one, if no event is wanted now."""
        return Progress(self._total, len(self._wanted), self._cancelled)

    def is_wanted(self, event: Listed) -> bool:
        """Return whether an event is still to be delivered."""
        return event in self._wanted

    def cancel(self) -> int:
        """Deliver none of the events whose delivery has not begun. Returns their number."""
        dropped = self._wanted.difference(self._where.values())
        self._waiting.clear()
        self._wanted.difference_update(dropped)
        count = len(dropped)
        while self.window.startable:
            entry, _ = self.take()
            self.complete(entry)
            count += 1
        self._cancelled += count
        return count

    def add(self, event: Listed, arrival: Arrival) -> None:
        """Hold an event that was read.

        Events are numbered in the order of reading, because a window needs rising numbers and the offsets
        belong to several partitions.
        """
        self._added += 1
        number = f"{self._added:016d}"
        self._where[number] = event
        self.hold(number, arrival)

    def give_up(self, event: Listed) -> None:
        """Forget an event that the log does not contain any more."""
        self._wanted.discard(event)

    def complete(self, entry: Entry) -> bool:
        """Complete an event. It may be redriven again afterwards."""
        self._wanted.discard(self._where.pop(entry.offset))
        return super().complete(entry)


async def still_stored(events: EventLog, log: str, listed: Collection[Listed]) -> Sequence[Listed]:
    """Return those of the listed events that retention has not removed, in order. Raises UnavailableError."""
    extents = await events.extents(log)
    return [
        event
        for event in sorted(set(listed))
        if (extents.first.get(event.partition) or event.offset)
        <= event.offset
        <= positions.stored(extents.last.get(event.partition))
    ]


async def read_one(events: EventLog, log: str, event: Listed) -> Arrival | None:
    """Read one event; None if it was removed, is not a CloudEvent, or is another event at this offset."""
    after = positions.previous(event.offset)
    stream = cast(
        "AsyncGenerator[Sequence[Stored], None]",
        events.read(log, {event.partition: positions.read_from(after)}),
    )
    async with aclosing(stream) as batches:
        try:
            async with asyncio.timeout(ANSWER_S):
                arrival = Arrival((await anext(batches))[0], after)
        except TimeoutError:
            return None
    # The log may have been recreated, and the offset may belong to another event. That event must not be sent
    # as a dead letter of the former one.
    is_same = arrival.offset == event.offset and arrival.identity == event.identity
    return arrival if is_same and arrival.attributes is not None else None
