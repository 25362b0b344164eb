"""The events of one partition that are on their way to one subscriber: which may start, and up to where all are completed.

Laws: the checkpoint is the offset of the last event up to which all are completed or passed over: the lowest that is not completed holds
it back, whatever comes after. What is completed above it is known as ranges, so that after a restart only events that were not completed
are delivered again, and those that were completed since the ranges were kept. The bound is on events that are not completed: ranges are
merged, so there are at most as many of them, and one event that fails for long holds up nothing.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from knative_gateway.ports import Order, Range

LOOK_AHEAD_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class Entry:
    """One event, or a range of events that are completed or not for this subscriber. `offset`: its own, or the range's last."""

    offset: str
    key: Hashable | None
    started: bool = False
    completed: bool = False
    _before: "Entry | None" = None
    _after: "Entry | None" = None


@dataclass(slots=True, eq=False)
class Window:
    """The window of one subscriber on one partition. `look_ahead`: events that are not completed, at most.

    Events are given in the log's order. `order`: UNORDERED starts all at once, BY_KEY those of the same key one after the other (an event
    without a key waits for nobody), ORDERED each after the one before it.
    """

    order: Order
    look_ahead: int
    checkpoint: str | None = None
    _first: Entry | None = field(default=None, init=False)
    _last: Entry | None = field(default=None, init=False)
    _startable: deque[Entry] = field(default_factory=deque, init=False)
    _behind: dict[Hashable, deque[Entry]] = field(default_factory=dict, init=False)
    _open: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 1 <= self.look_ahead <= LOOK_AHEAD_MAX, self.look_ahead

    @property
    def full(self) -> bool:
        """No event can be added before another one is completed."""
        return self._open >= self.look_ahead

    @property
    def open(self) -> int:
        """Events that are not completed, started or not."""
        return self._open

    @property
    def ranges(self) -> Sequence[Range]:
        """What is completed or passed over above the checkpoint, in order."""
        found: list[Range] = []
        entry = self._first
        while entry is not None:
            if entry.completed and entry._before is not None:
                found.append((entry._before.offset, entry.offset))
            entry = entry._after
        return found

    @property
    def startable(self) -> int:
        """Events that `take` has to give."""
        return len(self._startable)

    def add(self, offset: str, key: Hashable | None = None) -> Entry:
        """The next event of the log for this subscriber; the window must not be full."""
        assert not self.full
        entry = Entry(offset, key)
        self._append(entry)
        self._open += 1
        lane = self._lane(entry)
        if lane is None:
            self._startable.append(entry)
        elif lane in self._behind:
            self._behind[lane].append(entry)
        else:
            self._behind[lane] = deque()
            self._startable.append(entry)
        return entry

    def pass_over(self, offset: str) -> None:
        """The log's events up to here are not for this subscriber. Takes no room, however many there are."""
        if self._last is None:
            self.checkpoint = offset
        elif self._last.completed:
            self._last.offset = offset
        else:
            self._append(Entry(offset, None, completed=True))

    def take(self) -> Entry | None:
        """The next event to start; None if there is none that may."""
        if not self._startable:
            return None
        entry = self._startable.popleft()
        entry.started = True
        return entry

    def complete(self, entry: Entry) -> bool:
        """A started event is completed; whether the checkpoint moved. Events that waited for it may start then."""
        assert entry.started
        assert not entry.completed
        entry.completed = True
        self._open -= 1
        self._follow(entry)
        before, after = entry._before, entry._after
        if after is not None and after.completed:
            entry.offset = after.offset
            self._unlink(after)
        if before is None:
            self.checkpoint = entry.offset
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

    def _lane(self, entry: Entry) -> Hashable | None:
        """Entries of one lane go one after the other; those of none do as they like."""
        if self.order is Order.ORDERED:
            return True
        return ("key", entry.key) if self.order is Order.BY_KEY and entry.key is not None else None

    def _follow(self, entry: Entry) -> None:
        lane = self._lane(entry)
        if lane is None:
            return
        behind = self._behind[lane]
        if behind:
            self._startable.append(behind.popleft())
        else:
            del self._behind[lane]
