"""The events of one partition that are held for one subscriber: which events may start, and up to which event
all are completed. Pure.

The position is the offset of the last event up to which all events are completed or skipped. One event that
is not completed stops the position. Completed events above it are kept as ranges: after a restart, only
events that were not completed, or whose range was not stored yet, are delivered again.

`look_ahead` limits the events that are not completed. Completed neighbours are merged into ranges, so the
number of ranges has the same limit, and one event that fails for a long time does not block the others.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from knative_gateway.ports import Order, Range

LOOK_AHEAD_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class Entry:
    """One event, or a range of events that are completed or do not match.

    `offset`: of the event, or of the last event of the range.
    """

    offset: str
    key: Hashable | None
    started: bool = False
    completed: bool = False
    # A linked list: completing an entry in the middle merges it with its neighbours without a search.
    _before: "Entry | None" = None
    _after: "Entry | None" = None


@dataclass(slots=True, eq=False)
class Window:
    """`look_ahead`: the maximum number of events that are not completed. `position` None: before all events.
    `startable`: the events that `take` returns next.

    Events are added in the order of the log. `order` decides when they start:

    - UNORDERED: all at once.
    - BY_KEY: the events of one key one after the other; an event without a key does not wait.
    - ORDERED: each event after the one before it.
    """

    order: Order
    look_ahead: int
    position: str | None = None
    _first: Entry | None = field(default=None, init=False)
    _last: Entry | None = field(default=None, init=False)
    startable: deque[Entry] = field(default_factory=deque, init=False)
    _behind: dict[Hashable, deque[Entry]] = field(default_factory=dict, init=False)
    _open: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 1 <= self.look_ahead <= LOOK_AHEAD_MAX, self.look_ahead

    @property
    def full(self) -> bool:
        """Whether an event must be completed before another one can be added."""
        return self._open >= self.look_ahead

    @property
    def open(self) -> int:
        """How many events are not completed, started or not."""
        return self._open

    def has_started(self, offset: str) -> bool:
        """Return whether an event that is not completed has started. The cost grows with `look_ahead`."""
        entry = self._first
        while entry is not None and (entry.completed or entry.offset != offset):
            entry = entry._after
        return entry is not None and entry.started

    @property
    def ranges(self) -> Sequence[Range]:
        """The completed or skipped ranges above the position, in order. A start is exclusive, an end
        inclusive.
        """
        ranges: list[Range] = []
        entry = self._first
        while entry is not None:
            if entry.completed and entry._before is not None:
                ranges.append((entry._before.offset, entry.offset))
            entry = entry._after
        return ranges

    def add(self, offset: str, key: Hashable | None = None) -> Entry:
        """Add the next event of the log that matches. The window must not be full."""
        assert self._open < self.look_ahead
        entry = Entry(offset, key)
        self._append(entry)
        self._open += 1
        queue = None if self.order is Order.UNORDERED else self._queue(entry)
        if queue is None:
            self.startable.append(entry)
        # A key is in `_behind` exactly while one of its events has started or may start. Its events behind
        # that one wait there.
        elif queue in self._behind:
            self._behind[queue].append(entry)
        else:
            self._behind[queue] = deque()
            self.startable.append(entry)
        return entry

    def skip_to(self, offset: str) -> None:
        """Skip the events up to `offset`: the filter did not match them. The cost does not depend on their
        number.
        """
        if self._last is None:
            self.position = offset
        # Neighbouring skips become one range, so a filter that matches nothing costs one entry and not one
        # for each event.
        elif self._last.completed:
            self._last.offset = offset
        else:
            self._append(Entry(offset, None, completed=True))

    def take(self) -> Entry | None:
        """Return the next event to start; None if no event may start now."""
        if not self.startable:
            return None
        entry = self.startable.popleft()
        entry.started = True
        return entry

    def complete(self, entry: Entry) -> bool:
        """Complete a started event, so that events waiting for it may start. Returns whether the position
        moved.
        """
        assert entry.started
        assert not entry.completed
        entry.completed = True
        self._open -= 1
        if self.order is not Order.UNORDERED:
            self._start_next(entry)
        before, after = entry._before, entry._after
        # Merging with both neighbours keeps the number of ranges below the number of open events, which
        # `look_ahead` bounds.
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
        """Return the key queue of an event; None if it waits for no other event.

        The events of one key queue start one after the other.
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
            self.startable.append(behind.popleft())
        else:
            # An empty queue is removed at once: keys come from senders, and would fill memory.
            del self._behind[queue]
