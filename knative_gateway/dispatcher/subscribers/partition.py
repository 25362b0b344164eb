"""[io] One subscriber in one partition: the events that are held for it, and its position.

Events come in the order of the log, each at most once in the lifetime of the process. The number and the
bytes of held events are limited.
"""

from collections.abc import Callable, Sequence
from typing import Final

from knative_gateway.delivery import Entry, Window
from knative_gateway.dispatcher import positions
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.cursor import Cursor
from knative_gateway.dispatcher.subscribers.source import Source
from knative_gateway.dispatcher.subscribers.state import SubscriberState
from knative_gateway.ports import Order, Range


class SubscriberPartition(Source):
    """`number`: the number of the partition. `read_ms`: the timestamp of the last event that the own reader
    has read. `on_room`: called when an event was completed and at most half of the limits is used.
    """

    def __init__(
        self,
        state: SubscriberState,
        number: int,
        start: str,
        completed: Sequence[Range],
        ready: Callable[[Source], None],
    ) -> None:
        """Begin at the position `start`. `ready` is called whenever an event may be begun."""
        super().__init__(Window(state.spec.order, state.context.settings.look_ahead, start), state.held)
        self.state: Final = state
        self.number: Final = number
        self.cursor: Final = Cursor((state.spec.uid, number), self.window, start, completed)
        self.read_ms: int | None = None
        self.on_room: Callable[[], None] | None = None
        self._ready: Final = ready
        self._is_by_key: Final = state.spec.order is Order.BY_KEY

    def offer(self, arrival: Arrival) -> bool:
        """Hold an event; False: no room. An event that the subscriber has received is skipped."""
        cursor = self.cursor
        # First this, then the room: an event that is skipped needs no room, and a full subscriber can skip
        # it.
        if cursor.has_had(arrival.offset):
            return True
        if self.window.full or not self.held.has_room(arrival.size):
            return False
        # The events between the last held one and this one did not match. They are completed, in order,
        # before this one is added.
        cursor.advance(arrival.before)
        self.hold(arrival.offset, arrival, arrival.key if self._is_by_key else None)
        cursor.last = arrival.offset
        self.state.figures.matched += 1
        self._ready(self)
        return True

    def complete(self, entry: Entry) -> bool:
        """Complete an event. If the position moved, the cursor is stored by the next flush."""
        moved = super().complete(entry)
        if moved:
            self.state.context.moved.add(self.cursor)
        if self.on_room is not None and self.has_room:
            self.on_room()
        return moved

    def close(self) -> None:
        """Begin no more events. The caller stores the cursor for the last time."""
        self.closed = self.cursor.closed = True

    def overtaken(self, after: str, last: str) -> None:
        """Record the events between two offsets that retention removed before they were delivered."""
        lost = positions.lost(max(after, self.cursor.last), last)
        if lost is not None:
            self.state.overtaken(self.number, lost)

    @property
    def has_room(self) -> bool:
        """Whether at most half of the limits is used. Half, so that a subscriber does not switch readers at
        every event.
        """
        held = self.held
        return self.window.open * 2 <= self.window.look_ahead and held.used * 2 <= held.limit
