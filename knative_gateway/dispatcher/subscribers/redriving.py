"""[io] Redrive: events that are read again by their offsets, and sent in addition to what is in flight.

They are outside of all cursors. Their number is bounded by the history, which has the latest failures only.
Bytes bound how many of them are held; the others wait as offsets.
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
    """An event that a history lists. `identity`: its id and source, as `Arrival.identity` has them."""

    partition: int
    offset: str
    identity: tuple[str, str]


class Redrive(Source):
    """The events that one subscriber gets again, in no order."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(Window(Order.UNORDERED, LOOK_AHEAD_MAX), HeldBytes(bytes_max))
        self._waiting: Final[deque[Listed]] = deque()
        self._wanted: Final[set[Listed]] = set()
        self._where: Final[dict[str, Listed]] = {}
        self._added = 0

    def want(self, events: Sequence[Listed]) -> bool:
        """Deliver these again, except those that wait or are in flight already. Whether any is new."""
        new = [event for event in events if event not in self._wanted][: LOOK_AHEAD_MAX - len(self._wanted)]
        self._wanted.update(new)
        self._waiting.extend(new)
        return bool(new)

    @property
    def is_waiting(self) -> bool:
        """Whether an event waits, is being read, or is in flight."""
        return bool(self._wanted)

    def next(self) -> Listed | None:
        """The next event to read; None: all were read."""
        return self._waiting.popleft() if self._waiting else None

    def add(self, event: Listed, arrival: Arrival) -> None:
        """Hold an event that was read. It is numbered by when it was read: offsets are not in order here."""
        self._added += 1
        number = f"{self._added:016d}"
        self._where[number] = event
        self.hold(number, arrival)

    def give_up(self, event: Listed) -> None:
        """The event is not in the log any more."""
        self._wanted.discard(event)

    def complete(self, entry: Entry) -> bool:
        """The event is completed, and may be wanted again."""
        self._wanted.discard(self._where.pop(entry.offset))
        return super().complete(entry)


async def still_stored(events: EventLog, log: str, listed: Collection[Listed]) -> Sequence[Listed]:
    """Those of the listed events that retention has left. Raises UnavailableError."""
    extents = await events.extents(log)
    return [
        event
        for event in sorted(set(listed))
        if (extents.first.get(event.partition) or event.offset)
        <= event.offset
        <= positions.stored(extents.last.get(event.partition))
    ]


async def read_one(events: EventLog, log: str, event: Listed) -> Arrival | None:
    """Read one event; None: it is not in the log any more, or it is not a CloudEvent.

    The log may have been recreated since the event was listed: then another event has its offset.
    """
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
    is_same = arrival.offset == event.offset and arrival.identity == event.identity
    return arrival if is_same and arrival.attributes is not None else None
