"""The events of a producer that have no outcome yet: order, window and resending. Pure.

Laws: the oldest event is sent first. An event leaves with exactly one outcome: accepted or an error. While
released events wait to be sent again, no newer event overtakes them. On a new link all events without an
outcome are sent again, in order.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal

from amqp_streams.client.errors import ClosedError, EndpointError, ReleasedError
from amqp_streams.errors import AmqpStreamsError

FAILURES_KEPT: Final = 100
"""The most failures that a SendError names; more are only counted."""
_CANCELLED: Final = ClosedError("the send was cancelled before the event was sent")


class Entry:
    """One event without an outcome.

    When it has one, `outcome` is True (accepted) or the error, and `on_outcome` is called.
    """

    __slots__ = ("attempts", "event", "message", "message_format", "number", "on_outcome", "outcome")
    cancelled = False
    awaited_alone = False

    def __init__(self, event: object, message: bytes, message_format: int = 0) -> None:
        self.event = event
        self.message = message
        self.message_format = message_format
        self.number = 0
        self.attempts = 0
        self.outcome: AmqpStreamsError | Literal[True] | None = None
        self.on_outcome: Callable[[], None] | None = None


class LoneEntry(Entry):
    """An event whose sender waits for this one outcome and may cancel the send.

    `flush` does not report its failure.
    """

    __slots__ = ("cancelled",)
    awaited_alone = True

    def __init__(self, event: object, message: bytes, message_format: int = 0) -> None:
        super().__init__(event, message, message_format)
        self.cancelled = False


class Outbox:
    """The events of one producer, from `add` to their outcome."""

    def __init__(self, *, events_max: int, bytes_max: int, attempts_max: int) -> None:
        assert events_max > 0
        self.events_max: Final = events_max
        self._bytes_max: Final = bytes_max
        self._attempts_max: Final = attempts_max
        self._unsent: deque[Entry] = deque()
        self._in_flight: deque[Entry] = deque()
        self._in_flight_count = 0
        self._released: list[Entry] = []
        self._number = 0
        self.largest = 0
        self.formatted = False
        """Whether an event ever had a message-format other than 0."""
        self.events = 0
        self.bytes = 0
        self.failures: list[tuple[object, AmqpStreamsError]] = []
        self.failure_count = 0

    @property
    def room(self) -> int:
        """How many events may be added now."""
        return self.events_max - self.events if self.bytes < self._bytes_max else 0

    @property
    def bytes_left(self) -> int:
        """How many bytes may be added now.

        The last event may exceed it: otherwise a large one could never be sent.
        """
        return self._bytes_max - self.bytes

    @property
    def ready(self) -> bool:
        """Whether `take` returns events."""
        return bool(self._unsent) and not self._released

    @property
    def unsent(self) -> int:
        """How many events wait to be sent, or to be sent again after a loss."""
        return len(self._unsent)

    @property
    def in_flight(self) -> int:
        """How many events were sent and have no outcome."""
        return self._in_flight_count

    @property
    def resend_due(self) -> bool:
        """Whether released events wait and nothing else is in flight: call `resend` after a wait."""
        return bool(self._released) and self._in_flight_count == 0

    def add(self, entries: Sequence[Entry]) -> None:
        """Add events. The caller has checked `room`."""
        # Hot path: local variables, and one update of the totals per batch.
        number, size, largest = self._number, 0, self.largest
        for entry in entries:
            number += 1
            entry.number = number
            length = len(entry.message)
            size += length
            if entry.message_format:
                self.formatted = True
            if length > largest:  # noqa: PLR1730 (max is a call for each event)
                largest = length
        self._number, self.largest = number, largest
        self.events += len(entries)
        self.bytes += size
        self._unsent.extend(entries)

    def add_failed(self, entry: Entry, error: AmqpStreamsError) -> None:
        """Add an event that cannot be sent. Its outcome is `error` at once."""
        self.add([entry])
        # Added first, so that it has a number and is counted like every other event.
        self._give_up(self._unsent.pop(), error)

    def take(self, count_max: int) -> list[Entry]:
        """Return the next events to send, at most `count_max`, and count them as in flight.

        Returns nothing while released events wait, to keep the order.
        """
        taken: list[Entry] = []
        if self._released:
            return taken
        popleft = self._unsent.popleft
        for _ in range(min(count_max, len(self._unsent))):
            entry = popleft()
            # Checked here and not when it is cancelled: removing it from the middle of the queue is slow.
            if entry.cancelled:
                self._leave(entry, _CANCELLED)
                continue
            entry.attempts += 1
            taken.append(entry)
        self._in_flight.extend(taken)
        self._in_flight_count += len(taken)
        return taken

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Undo the last `take` for events that the link did not accept."""
        for entry in reversed(entries):
            last = self._in_flight.pop()
            assert last is entry
            # The event was not sent, so the attempt does not count.
            entry.attempts -= 1
            self._unsent.appendleft(entry)
        self._in_flight_count -= len(entries)

    def accepted(self, entries: Sequence[Entry]) -> None:
        """Record that the peer accepted these events."""
        size = 0
        for entry in entries:
            size += len(entry.message)
            entry.outcome = True
            if entry.on_outcome is not None:
                entry.on_outcome()
        self.bytes -= size
        self.events -= len(entries)
        self._remove_answered(len(entries))

    def refused(self, entry: Entry, error: EndpointError) -> bool:
        """Record that the peer did not store an event.

        Returns True if that is final, False if it will be sent again.
        """
        again = (
            isinstance(error, ReleasedError) and entry.attempts <= self._attempts_max and not entry.cancelled
        )
        if again:
            self._released.append(entry)
            self._in_flight.remove(entry)
        else:
            self._give_up(entry, error)
        self._remove_answered(1)
        return not again

    def reject(self, entry: Entry, error: AmqpStreamsError) -> None:
        """Give a taken event that cannot be sent its outcome."""
        self._give_up(entry, error)
        self._remove_answered(1)

    def resend(self) -> None:
        """Put released events before all others, in order."""
        self._to_front(self._released)
        self._released = []

    def lost(self) -> None:
        """Record the loss of the link: all events without an outcome will be sent again, in order."""
        # Both parts may contain older events: `_to_front` sorts them by number.
        again = [entry for entry in self._in_flight if entry.outcome is None] + self._released
        self._in_flight.clear()
        self._in_flight_count = 0
        self._released = []
        self._to_front(again)

    def fail(self, error: AmqpStreamsError) -> None:
        """Give all events the outcome `error`: no link will follow.

        Some may be stored although the producer cannot know it.
        """
        self.lost()
        while self._unsent:
            self._give_up(self._unsent.popleft(), error)

    def take_failures(self) -> tuple[list[tuple[object, AmqpStreamsError]], int]:
        """Return the failures since the last call, and their number."""
        taken = self.failures, self.failure_count
        self.failures, self.failure_count = [], 0
        return taken

    def _to_front(self, entries: list[Entry]) -> None:
        for entry in sorted(entries, key=_number, reverse=True):
            self._unsent.appendleft(entry)

    def _remove_answered(self, count: int) -> None:
        """Remove events with an outcome.

        Outcomes mostly come in the order of sending, so the front is the place to look.
        """
        self._in_flight_count -= count
        in_flight = self._in_flight
        while in_flight and in_flight[0].outcome is not None:
            in_flight.popleft()

    def _give_up(self, entry: Entry, error: AmqpStreamsError) -> None:
        # Its sender gets the error itself.
        if not entry.awaited_alone:
            self.failure_count += 1
            # A node that refuses everything must not fill the memory.
            if len(self.failures) < FAILURES_KEPT:
                self.failures.append((entry.event, error))
        self._leave(entry, error)

    def _leave(self, entry: Entry, error: AmqpStreamsError) -> None:
        self.events -= 1
        self.bytes -= len(entry.message)
        entry.outcome = error
        if entry.on_outcome is not None:
            entry.on_outcome()


def _number(entry: Entry) -> int:
    return entry.number
