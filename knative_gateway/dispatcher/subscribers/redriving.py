"""[io] Redrive: events that are read again by their offsets, and sent in addition to what is in flight.

They are outside of all cursors. Their number is bounded by the history, which has the latest failures only.
Bytes bound how many of them are held; the others wait as offsets.
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
from knative_gateway.dispatcher.subscribers.source import HeldBytes, Source
from knative_gateway.ports import EventLog, Order, Stored

ANSWER_S: Final = 10.0
"""How long reading one event may take. If retention has just removed the end of a partition, no event comes.
"""

PartitionOffset = tuple[int, str]
"""A partition, and the offset of an event in it."""


class Redrive(Source):
    """The events that one subscriber gets again, in no order."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(Window(Order.UNORDERED, LOOK_AHEAD_MAX), HeldBytes(bytes_max))
        self._waiting: Final[deque[PartitionOffset]] = deque()
        self._wanted: Final[set[PartitionOffset]] = set()
        self._where: Final[dict[str, PartitionOffset]] = {}
        self._added = 0

    def want(self, events: Sequence[PartitionOffset]) -> bool:
        """Deliver these again, except those that wait or are in flight already. Whether any is new."""
        new = [event for event in events if event not in self._wanted][: LOOK_AHEAD_MAX - len(self._wanted)]
        self._wanted.update(new)
        self._waiting.extend(new)
        return bool(new)

    def next(self) -> PartitionOffset | None:
        """The next event to read; None: all were read."""
        return self._waiting.popleft() if self._waiting else None

    def add(self, arrival: Arrival) -> None:
        """Hold an event that was read. It is numbered by when it was read: offsets are not in order here."""
        self._added += 1
        number = f"{self._added:016d}"
        self._where[number] = arrival.partition, arrival.offset
        self.hold(number, arrival)

    def give_up(self, event: PartitionOffset) -> None:
        """The event is not in the log any more."""
        self._wanted.discard(event)

    def complete(self, entry: Entry) -> bool:
        """The event is completed, and may be wanted again."""
        self._wanted.discard(self._where.pop(entry.offset))
        return super().complete(entry)


async def still_stored(
    events: EventLog,
    log: str,
    wanted: Mapping[int, Collection[str]],
) -> Sequence[PartitionOffset]:
    """Those of the wanted offsets, by partition, that retention has left. Raises UnavailableError."""
    extents = await events.extents(log)
    return [
        (partition, offset)
        for partition, offsets in wanted.items()
        for offset in sorted(offsets)
        if (extents.first.get(partition) or offset) <= offset <= positions.stored(extents.last.get(partition))
    ]


async def read_one(events: EventLog, log: str, event: PartitionOffset) -> Arrival | None:
    """Read one event; None: it is not in the log any more, or it is not a CloudEvent."""
    partition, offset = event
    after = positions.previous(offset)
    stream = cast(
        "AsyncGenerator[Sequence[Stored], None]",
        events.read(log, {partition: positions.read_from(after)}),
    )
    async with aclosing(stream) as batches:
        try:
            async with asyncio.timeout(ANSWER_S):
                arrival = Arrival((await anext(batches))[0], after)
        except TimeoutError:
            return None
    return arrival if arrival.offset == offset and arrival.attributes is not None else None
