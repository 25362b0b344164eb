"""[io] Events that are delivered once more by request: found in the log by their offsets, and sent beside what is on its way.

They are outside of all windows and checkpoints. Bounded by the history, which has the latest failures only.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Final, cast

from knative_gateway.delivery import Entry, Window
from knative_gateway.delivery.window import LOOK_AHEAD_MAX
from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.ports import EventLog, Order, Stored


class Again:
    """A window of what is delivered again, in no order."""

    def __init__(self) -> None:
        self.window: Final = Window(Order.UNORDERED, LOOK_AHEAD_MAX)
        self._arrivals: Final[dict[str, Arrival]] = {}
        self._added = 0

    def add(self, arrival: Arrival) -> None:
        """One more; what is beyond the window's room is left out."""
        if not self.window.full:
            self._added += 1
            number = f"{self._added:016d}"
            self.window.add(number)
            self._arrivals[number] = arrival

    def take(self) -> tuple[Entry, Arrival]:
        """The next to begin with; there is one."""
        entry = self.window.take()
        assert entry is not None
        return entry, self._arrivals.pop(entry.offset)

    def complete(self, entry: Entry, arrival: Arrival) -> None:  # noqa: ARG002  as a track does
        """It is done."""
        self.window.complete(entry)


async def stored_at(events: EventLog, log: str, wanted: Mapping[int, Collection[str]]) -> Sequence[Arrival]:
    """The events at these offsets that retention has left, by partition and offset."""
    found: list[Arrival] = []
    ends = await events.ends(log)
    for partition, offsets in wanted.items():
        for offset in sorted(offsets):
            if positions.stored(ends.get(partition)) < offset:
                break
            arrival = await _first(events, log, partition, positions.previous(offset))
            if arrival.offset == offset and arrival.attributes is not None:
                found.append(arrival)
    return found


async def _first(events: EventLog, log: str, partition: int, after: str) -> Arrival:
    """The first event behind a position; there is one."""
    stream = cast("AsyncGenerator[Sequence[Stored], None]", events.read(log, {partition: positions.read_from(after)}))
    async with aclosing(stream) as batches:
        return Arrival((await anext(batches))[0], after)
