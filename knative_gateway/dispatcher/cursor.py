"""How far one subscriber is in one partition. Pure.

Law: the position never passes an event that is not completed.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from knative_gateway.delivery.window import Window
from knative_gateway.dispatcher import positions
from knative_gateway.ports import Range

RANGES_MAX: Final = 1_000
"""The number of ranges of completed events that are stored for one cursor, the lowest ones. Events in further
ranges may be delivered again after a restart.
"""


class ReadPosition:
    """How far a reader has read: `offset` is that of the last event that it offered or skipped.

    Members of a shared reader share this object, so that the reader moves all of them with one assignment.
    """

    __slots__ = ("offset",)

    def __init__(self, offset: str) -> None:
        self.offset = offset


class Cursor:
    """The cursor of one subscriber in one partition.

    `key`: the subscriber's uid and the partition. `read`: of the reader that brings its events now; `own`: of
    the subscriber's own reader. `last`: the last event that was held, completed or skipped. `saved` and
    `saved_done`: what is stored. `closed`: another owner may have stored a later position, so this one is not
    stored any more.
    """

    def __init__(
        self,
        key: tuple[str, int],
        window: Window,
        start: str,
        completed: Sequence[Range] = (),
    ) -> None:
        """Begin at `start`. `completed`: ranges above it that were completed before; their events are
        skipped.
        """
        self.key: Final = key
        self.window: Final = window
        self.own: Final = ReadPosition(start)
        self.read = self.own
        self.last = start
        self.saved = start
        self.saved_done: Sequence[Range] = completed
        self.closed = False
        self._completed: Final = deque(completed)

    # -- whose reader brings the events

    @property
    def is_shared(self) -> bool:
        """Whether the shared reader brings the events."""
        return self.read is not self.own

    def join(self, shared: ReadPosition) -> None:
        """The shared reader brings the events from now on."""
        self.advance(self.own.offset)
        self.read = shared

    def leave(self, position: str | None = None) -> None:
        """The shared reader brings no more events. `position`: of the own reader now, None: where the shared
        one is.
        """
        self.own.offset = max(self.own.offset, self.read.offset) if position is None else position
        self.read = self.own

    # -- how far it is

    def has_had(self, offset: str) -> bool:
        """Whether the event was held before, or completed before this process began."""
        if offset <= self.last:
            return True
        if self._completed and self._was_completed(offset):
            self.advance(offset)
            return True
        return False

    def advance(self, position: str) -> None:
        """Skip the events up to a position: they are not for this subscriber, or it has had them."""
        if position > self.last:
            self.window.skip_to(position)
            self.last = position

    def position(self) -> str:
        """The position up to which everything is completed, as far as is known now."""
        self.advance(self.read.offset)
        return self.window.position or positions.BEGINNING

    @property
    def reached(self) -> str:
        """What `position` would return, without a change.

        `/metrics` is made in another thread while the event loop works on the window. What was read is looked
        at first: if nothing is open after that, all of it is completed.
        """
        read = self.read.offset
        is_open = self.window.open > 0
        completed = self.window.position or positions.BEGINNING
        return completed if is_open else max(completed, read)

    @property
    def done(self) -> Sequence[Range]:
        """What is completed above `position`, including the ranges of before that were not reached yet."""
        known = self.window.ranges
        last = known[-1][1] if known else self.window.position or positions.BEGINNING
        return [*known, *((max(after, last), upto) for after, upto in self._completed if upto > last)][
            :RANGES_MAX
        ]

    def _was_completed(self, offset: str) -> bool:
        while self._completed and self._completed[0][1] < offset:
            self._completed.popleft()
        return bool(self._completed) and self._completed[0][0] < offset
