"""Measures how fast the program processes events, so that no more are prefetched than it needs.

Pure; times are in seconds.

Why: a partition moves to another member only after everything sent has been settled. Unread events delay
that, or are sent twice.
"""

from typing import Final

FIRST: Final = 2
"""Events to prefetch for a partition before anything was measured."""
_MEMORY: Final = 64
"""A batch of half this many events, or more, halves the weight of all earlier measurements."""
_STEP: Final = 4
"""The bound grows at most by this factor per measurement."""


class Pace:
    """Measures how long the program works on the events that it received.

    Time spent waiting for events does not count.
    """

    def __init__(self, ahead_s: float, most: int) -> None:
        """`ahead_s`: how long the prefetched events should last.

        `most`: the maximum for one partition at any speed.
        """
        assert most > 0
        self._ahead_s: Final = ahead_s
        self._most: Final = most
        self._busy_s = 0.0
        self._done = 0.0
        self._given = 0
        self._given_s = 0.0
        self._bound = FIRST

    def asked(self, now_s: float) -> None:
        """Record that the program asks for more events.

        It has processed, or nearly processed, what it received.
        """
        if self._given:
            keep = max(0.5, 1 - self._given / _MEMORY)
            self._busy_s = self._busy_s * keep + max(0.0, now_s - self._given_s)
            self._done = self._done * keep + self._given
            self._given = 0
            # In steps, because a few fast events do not show how long the following ones take.
            self._bound = max(1, min(self._in_time(), _STEP * self._bound))

    def gave(self, count: int, now_s: float) -> None:
        """Record that the program received `count` events."""
        self._given += count
        self._given_s = now_s

    def ahead(self, partitions: int) -> int:
        """Return how many events of each partition may be in flight or unread.

        `partitions`: how many partitions the member owns.
        """
        return max(1, min(self._most, self._bound // partitions if self._done else FIRST))

    def _in_time(self) -> int:
        # The comparison avoids a division by zero, or by a very small time, if the program is faster than the
        # clock's resolution.
        most = self._most << 10
        return (
            most
            if self._busy_s * most <= self._ahead_s * self._done
            else int(self._done * self._ahead_s / self._busy_s)
        )
