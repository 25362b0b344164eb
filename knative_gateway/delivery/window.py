"""The events of one partition that one subscriber holds: which may start, and up to where all are completed.

Laws: the position is the offset of the last event up to which all are completed or skipped: the lowest event
that is not completed holds it back. What is completed above it is known as ranges, so that a restart delivers
again only events that were not completed, and those that were completed after the ranges were stored. The
bound is on events that are not completed: ranges are merged, so there are at most as many of them, and one
event that fails for long holds up nothing.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from knative_gateway.ports import Order, Range

LOOK_AHEAD_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class Entry:
    """One event, or a range of events that are completed or not for this subscriber.

    `offset`: of the event, or of the range's last event.
    """

    offset: str
    key: Hashable | None
    started: bool = False
    completed: bool = False
    _before: "Entry | None" = None
    _after: "Entry | None" = None


@dataclass(slots=True, eq=False)
class Window:
    """`look_ahead`: how many events that are not completed it holds at most. `position` None: before all
    events.

    Events are added in the log's order. `order`: UNORDERED starts all at once; BY_KEY starts those of one key
    one after the other (an event without a key waits for no other); ORDERED starts each after the one before
    it.
    """

    order: Order
    look_ahead: int
    position: str | None = None
    _first: Entry | None = field(default=None, init=False)
    _last: Entry | None = field(default=None, init=False)
    _startable: deque[Entry] = field(default_factory=deque, init=False)
    _behind: dict[Hashable, deque[Entry]] = field(default_factory=dict, init=False)
    _open: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 1 <= self.look_ahead <= LOOK_AHEAD_MAX, self.look_ahead

    @property
    def full(self) -> bool:
        """Whether no event can be added before another one is completed."""
        return self._open >= self.look_ahead

    @property
    def open(self) -> int:
        """How many events are not completed, started or not."""
        return self._open

    @property
    def ranges(self) -> Sequence[Range]:
        """What is completed or skipped above the position, in order."""
        ranges: list[Range] = []
        entry = self._first
        while entry is not None:
            if entry.completed and entry._before is not None:
                ranges.append((entry._before.offset, entry.offset))
            entry = entry._after
        return ranges

    @property
    def startable(self) -> int:
        """How many events `take` can return now."""
        return len(self._startable)

    def add(self, offset: str, key: Hashable | None = None) -> Entry:
        """Add the log's next event for this subscriber; the window must not be full."""
        assert not self.full
        entry = Entry(offset, key)
        self._append(entry)
        self._open += 1
        queue = self._queue(entry)
        if queue is None:
            self._startable.append(entry)
        elif queue in self._behind:
            self._behind[queue].append(entry)
        else:
            self._behind[queue] = deque()
            self._startable.append(entry)
        return entry

    def skip_to(self, offset: str) -> None:
        """The log's events up to here are not for this subscriber. Costs the same however many they are."""
        if self._last is None:
            self.position = offset
        elif self._last.completed:
            self._last.offset = offset
        else:
            self._append(Entry(offset, None, completed=True))

    def take(self) -> Entry | None:
        """The next event to start; None: no event may start now."""
        if not self._startable:
            return None
        entry = self._startable.popleft()
        entry.started = True
        return entry

    def complete(self, entry: Entry) -> bool:
        """A started event is completed, so that those that waited for it may start. Whether the position
        moved.
        """
        assert entry.started
        assert not entry.completed
        entry.completed = True
        self._open -= 1
        self._start_next(entry)
        before, after = entry._before, entry._after
        if after is not None and after.completed:
            entry.offset = after.offset
            self._unlink(after)
        if before is None:
            self.position = entry.offset
            self._unlink(entry)
        elif before.completed:
            before.offset = entry.offset
            self._unlink(entry)
        return before is None

    def _append(self, entry: Entry) -> None:
        if self._last is None:
            self._first = entry
        else:
            self._last._after, entry._before = entry, self._last
        self._last = entry

    def _unlink(self, entry: Entry) -> None:
        before, after = entry._before, entry._after
        if before is None:
            self._first = after
        else:
            before._after = after
        if after is None:
            self._last = before
        else:
            after._before = before
        entry._before = entry._after = None

    def _queue(self, entry: Entry) -> Hashable | None:
        """The key queue of an event: events of one queue start one after the other. None: it waits for no
        other.
        """
        if self.order is Order.ORDERED:
            return True
        return ("key", entry.key) if self.order is Order.BY_KEY and entry.key is not None else None

    def _start_next(self, entry: Entry) -> None:
        queue = self._queue(entry)
        if queue is None:
            return
        behind = self._behind[queue]
        if behind:
            self._startable.append(behind.popleft())
        else:
            del self._behind[queue]
