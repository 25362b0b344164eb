"""The cursor of one subscriber in one partition. Pure.

The position never skips an event that is not completed.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from knative_gateway.delivery.window import Window
from knative_gateway.dispatcher import positions
from knative_gateway.ports import Range

RANGES_MAX: Final = 1_000
"""How many ranges of completed events are stored for one cursor. The lowest ranges are stored. Events in the
other ranges may be delivered again after a restart.
"""


class ReadPosition:
    """How far a reader has read: `offset` is the offset of the last event that it offered or skipped.

    All members of a shared reader refer to one object, so that the reader moves all members with one
    assignment.
    """

    __slots__ = ("offset",)

    def __init__(self, offset: str) -> None:
        self.offset = offset


class Cursor:
    """The cursor of one subscriber in one partition.

    `key`: the subscriber's uid and the partition. `read`: the position of the reader that brings the events
    now. `own`: the position of the subscriber's own reader. `last`: the last event that was held, completed
    or skipped. `saved` and `saved_done`: the stored values. `closed`: the cursor is not stored any more,
    because another owner may have stored a later position. `incarnation`: of the log that the position
    belongs to; empty: it is not known.
    """

    def __init__(
        self,
        key: tuple[str, int],
        window: Window,
        start: str,
        completed: Sequence[Range] = (),
    ) -> None:
        """Begin at `start`.

        `completed`: ranges above `start` whose events are completed; they are skipped.
        """
        self.key: Final = key
        self.window: Final = window
        self.own: Final = ReadPosition(start)
        self.read = self.own
        self.last = start
        self.saved = start
        self.saved_done: Sequence[Range] = completed
        self.closed = False
        self.incarnation = ""
        self._completed: Final = deque(completed)

    # -- whose reader brings the events

    @property
    def is_shared(self) -> bool:
        """Whether the shared reader brings the events."""
        return self.read is not self.own

    def join(self, shared: ReadPosition) -> None:
        """Let the shared reader bring the events from now on."""
        # The window must know what the own reader skipped before `read` refers to another reader.
        self.advance(self.own.offset)
        self.read = shared

    def leave(self, position: str | None = None) -> None:
        """Let the own reader bring the events from now on. It begins at `position`, or at the position of the
        shared reader.
        """
        self.own.offset = max(self.own.offset, self.read.offset) if position is None else position
        self.read = self.own

    # -- how far it is

    def has_had(self, offset: str) -> bool:
        """Return whether the event was held before, or was completed before this process began."""
        # Texts of one length compare like the numbers (see `positions`), and no conversion is needed for each
        # event and member.
        if offset <= self.last:
            return True
        if self._completed and self._was_completed(offset):
            self.advance(offset)
            return True
        return False

    def advance(self, position: str) -> None:
        """Skip the events up to a position: the filter did not match them, or the subscriber has received
        them.
        """
        if position > self.last:
            self.window.skip_to(position)
            self.last = position

    def position(self) -> str:
        """Return the position up to which all events are known to be completed."""
        self.advance(self.read.offset)
        return self.window.position or positions.BEGINNING

    @property
    def reached(self) -> str:
        """The value that `position` would return, without a change of the cursor.

        `/metrics` is built in another thread while the event loop changes the window. So `read` is read
        first: if the window is empty after that, all events up to `read` are completed.
        """
        read = self.read.offset
        is_open = self.window.open > 0
        completed = self.window.position or positions.BEGINNING
        return completed if is_open else max(completed, read)

    def has_passed(self, offset: str) -> bool:
        """Return whether the subscriber has passed an event that is not held: it was completed, or its
        filters did not match it when it was read. Changes nothing.
        """
        passed = max(self.reached, self.last, self.read.offset)
        return offset <= passed or any(after < offset <= last for after, last in self._completed)

    @property
    def done(self) -> Sequence[Range]:
        """The completed ranges above `position`, including stored ranges that the reader has not
        reached yet.
        """
        known = self.window.ranges
        last = known[-1][1] if known else self.window.position or positions.BEGINNING
        return [*known, *((max(after, last), upto) for after, upto in self._completed if upto > last)][
            :RANGES_MAX
        ]

    def _was_completed(self, offset: str) -> bool:
        while self._completed and self._completed[0][1] < offset:
            self._completed.popleft()
        return bool(self._completed) and self._completed[0][0] < offset
