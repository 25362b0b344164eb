"""What a producer has been given and does not know the outcome of: order, window, resending. Pure.

Three laws. What goes out first is the oldest there is. An event leaves by exactly one outcome: accepted or an error. While events wait to
be sent again after a release, nothing younger overtakes them; on a new link everything without an outcome goes again, in order.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from amqp_streams.client.errors import EndpointError, ReleasedError
from amqp_streams.errors import AmqpStreamsError

FAILURES_KEPT: Final = 100
"""Failures named by a SendError; the others are counted."""


class Entry:
    """One event on its way. `waiter` is what somebody awaits its outcome by, made when that is wanted."""

    __slots__ = ("attempts", "awaited_alone", "cancelled", "done", "error", "event", "message", "number", "waiter")

    def __init__(self, event: object, message: bytes, *, awaited_alone: bool = False) -> None:
        self.event: Final = event
        self.message: Final = message
        self.awaited_alone: Final = awaited_alone
        self.number = 0
        self.attempts = 0
        self.done = False
        self.cancelled = False
        self.error: AmqpStreamsError | None = None
        self.waiter: Any = None


class Outbox:
    """The events of one producer, from `add` to their outcome."""

    def __init__(self, *, events_max: int, bytes_max: int, attempts_max: int) -> None:
        assert events_max > 0
        self.events_max: Final = events_max
        self._bytes_max: Final = bytes_max
        self._attempts_max: Final = attempts_max
        self._unsent: deque[Entry] = deque()
        self._in_flight: dict[Entry, None] = {}
        self._released: list[Entry] = []
        self._number = 0
        self.events = 0
        self.bytes = 0
        self.failures: list[tuple[object, AmqpStreamsError]] = []
        self.failure_count = 0

    @property
    def room(self) -> int:
        """Events that may be added now."""
        return self.events_max - self.events if self.bytes < self._bytes_max else 0

    @property
    def resend_due(self) -> bool:
        """Released events wait, and nothing else is in flight: `resend` after a wait."""
        return bool(self._released) and not self._in_flight

    def add(self, entry: Entry) -> None:
        """Take an event; the caller has asked for `room`."""
        self._number += 1
        entry.number = self._number
        self.events += 1
        self.bytes += len(entry.message)
        self._unsent.append(entry)

    def take(self, count_max: int) -> list[Entry]:
        """The next to send, at most `count_max`; they are in flight now. Nothing while released ones wait."""
        taken: list[Entry] = []
        if self._released:
            return taken
        unsent, in_flight = self._unsent, self._in_flight
        for _ in range(min(count_max, len(unsent))):
            entry = unsent.popleft()
            if entry.cancelled:
                self._leave(entry)
                continue
            entry.attempts += 1
            in_flight[entry] = None
            taken.append(entry)
        return taken

    def put_back(self, entries: Sequence[Entry]) -> None:
        """The last taken were not sent after all."""
        for entry in reversed(entries):
            del self._in_flight[entry]
            entry.attempts -= 1
            self._unsent.appendleft(entry)

    def accepted(self, entries: Sequence[Entry]) -> None:
        """The peer accepted these."""
        in_flight = self._in_flight
        for entry in entries:
            del in_flight[entry]
            self.bytes -= len(entry.message)
            entry.done = True
            if entry.waiter is not None:
                _wake(entry)
        self.events -= len(entries)

    def refused(self, entry: Entry, error: EndpointError) -> None:
        """The peer did not store this one: for good, or it is kept to be sent again."""
        del self._in_flight[entry]
        if isinstance(error, ReleasedError) and entry.attempts <= self._attempts_max and not entry.cancelled:
            self._released.append(entry)
        else:
            self._give_up(entry, error)

    def reject(self, entry: Entry, error: AmqpStreamsError) -> None:
        """A taken one that cannot be sent at all."""
        del self._in_flight[entry]
        self._give_up(entry, error)

    def resend(self) -> None:
        """Released events go first again, in order."""
        self._to_front(self._released)
        self._released = []

    def lost(self) -> None:
        """The link is gone: everything without an outcome goes again, in order."""
        again = list(self._in_flight) + self._released
        self._in_flight.clear()
        self._released = []
        self._to_front(again)

    def fail(self, error: AmqpStreamsError) -> None:
        """No link comes any more: nothing that is here will be known to be stored."""
        self.lost()
        while self._unsent:
            self._give_up(self._unsent.popleft(), error)

    def take_failures(self) -> tuple[list[tuple[object, AmqpStreamsError]], int]:
        """Failures since this was last asked for, and their count."""
        told = self.failures, self.failure_count
        self.failures, self.failure_count = [], 0
        return told

    def _to_front(self, entries: list[Entry]) -> None:
        for entry in sorted(entries, key=_number, reverse=True):
            self._unsent.appendleft(entry)

    def _give_up(self, entry: Entry, error: AmqpStreamsError) -> None:
        entry.error = error
        if not entry.awaited_alone and not entry.cancelled:
            self.failure_count += 1
            if len(self.failures) < FAILURES_KEPT:
                self.failures.append((entry.event, error))
        self._leave(entry)

    def _leave(self, entry: Entry) -> None:
        self.events -= 1
        self.bytes -= len(entry.message)
        entry.done = True
        if entry.waiter is not None:
            _wake(entry)


def _number(entry: Entry) -> int:
    return entry.number


def _wake(entry: Entry) -> None:
    if not entry.waiter.done():
        entry.waiter.set_result(None)
