"""[io] Events that are delivered once more by request: found in the log by their offsets, and sent beside what is in flight.

They are outside of all windows and checkpoints. They are bounded by the history, which has the latest failures only; what is held of
them is bounded by bytes, and the others wait as offsets.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Final, cast

from knative_gateway.delivery import Entry, Window
from knative_gateway.delivery.window import LOOK_AHEAD_MAX
from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.ports import EventLog, Order, Stored

ANSWER_S: Final = 10.0
"""How long an event may take to be read from the log; one that retention has just removed at the end of a partition is not there."""

Place = tuple[int, str]
"""A partition, and the offset of an event in it."""


class Again:
    """A window of what is delivered again, in no order. `held_bytes`: of the events that were read and are not completed."""

    def __init__(self) -> None:
        self.window: Final = Window(Order.UNORDERED, LOOK_AHEAD_MAX)
        self.held_bytes = 0
        self._waiting: Final[deque[Place]] = deque()
        self._places: Final[set[Place]] = set()
        self._arrivals: Final[dict[str, Arrival]] = {}
        self._added = 0

    def want(self, places: Sequence[Place]) -> bool:
        """Deliver these again; those that wait or are in flight already are not wanted twice. Whether any is new."""
        new = [place for place in places if place not in self._places][: LOOK_AHEAD_MAX - len(self._places)]
        self._places.update(new)
        self._waiting.extend(new)
        return bool(new)

    def next(self) -> Place | None:
        """The next one to be read; None: all were."""
        return self._waiting.popleft() if self._waiting else None

    def has_room(self, size: int, bytes_max: int) -> bool:
        """Whether so many bytes more may be held; one event may always be."""
        return not self.held_bytes or self.held_bytes + size <= bytes_max

    def add(self, arrival: Arrival) -> None:
        """One that was read."""
        self._added += 1
        number = f"{self._added:016d}"
        self.window.add(number)
        self.held_bytes += arrival.size
        self._arrivals[number] = arrival

    def leave_out(self, place: Place) -> None:
        """One that is not there any more."""
        self._places.discard(place)

    def take(self) -> tuple[Entry, Arrival]:
        """The next to begin with; there is one."""
        entry = self.window.take()
        assert entry is not None
        return entry, self._arrivals.pop(entry.offset)

    def complete(self, entry: Entry, arrival: Arrival) -> None:
        """It is done."""
        self.held_bytes -= arrival.size
        self._places.discard((arrival.partition, arrival.offset))
        self.window.complete(entry)


async def places_in(events: EventLog, log: str, wanted: Mapping[int, Collection[str]]) -> Sequence[Place]:
    """Those of the wanted offsets, by partition, that retention has left. Raises UnavailableError."""
    extents = await events.extents(log)
    return [
        (partition, offset)
        for partition, offsets in wanted.items()
        for offset in sorted(offsets)
        if (extents.first.get(partition) or offset) <= offset <= positions.stored(extents.last.get(partition))
    ]


async def stored_at(events: EventLog, log: str, place: Place) -> Arrival | None:
    """The event at a place; None: it is not there any more, or is not an event."""
    partition, offset = place
    after = positions.previous(offset)
    stream = cast("AsyncGenerator[Sequence[Stored], None]", events.read(log, {partition: positions.read_from(after)}))
    async with aclosing(stream) as batches:
        try:
            async with asyncio.timeout(ANSWER_S):
                arrival = Arrival((await anext(batches))[0], after)
        except TimeoutError:
            return None
    return arrival if arrival.offset == offset and arrival.attributes is not None else None
