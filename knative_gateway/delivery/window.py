"""The events of one partition that are on their way to one subscriber: which may start, and up to where all are completed.

Law: the checkpoint is the offset of the last event up to which all are completed or passed over: the lowest that is not completed holds it
back, whatever comes after. So after a crash everything that was not completed is delivered again, and something that was may be. No more
events than the look-ahead are held.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from knative_gateway.ports import Order

LOOK_AHEAD_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class Entry:
    """One event, or a stretch of events that are not for this subscriber, in the window. `offset`: its own, or the stretch's last."""

    offset: str
    key: Hashable | None
    started: bool = False
    completed: bool = False


@dataclass(slots=True, eq=False)
class Window:
    """The window of one subscriber on one partition. `look_ahead`: events held at most, from the lowest not completed on.

    Events are given in the log's order. `order`: UNORDERED starts all at once, BY_KEY those of the same key one after the other (an event
    without a key waits for nobody), ORDERED each after the one before it.
    """

    order: Order
    look_ahead: int
    checkpoint: str | None = None
    _entries: deque[Entry] = field(default_factory=deque, init=False)
    _startable: deque[Entry] = field(default_factory=deque, init=False)
    _behind: dict[Hashable, deque[Entry]] = field(default_factory=dict, init=False)
    _open: int = field(default=0, init=False)
    _span: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 1 <= self.look_ahead <= LOOK_AHEAD_MAX, self.look_ahead

    @property
    def full(self) -> bool:
        """No event can be added before the lowest is completed."""
        return self._span >= self.look_ahead

    @property
    def span(self) -> int:
        """Events held, from the lowest not completed on."""
        return self._span

    @property
    def open(self) -> int:
        """Events that are not completed, started or not."""
        return self._open

    @property
    def startable(self) -> int:
        """Events that `take` has to give."""
        return len(self._startable)

    def add(self, offset: str, key: Hashable | None = None) -> Entry:
        """The next event of the log for this subscriber; the window must not be full."""
        assert not self.full
        entry = Entry(offset, key)
        self._entries.append(entry)
        self._span += 1
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
        if not self._entries:
            self.checkpoint = offset
        elif self._entries[-1].completed and not self._entries[-1].started:
            self._entries[-1].offset = offset
        else:
            self._entries.append(Entry(offset, None, completed=True))

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
        moved = False
        while self._entries and self._entries[0].completed:
            gone = self._entries.popleft()
            self._span -= gone.started
            self.checkpoint = gone.offset
            moved = True
        return moved

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
