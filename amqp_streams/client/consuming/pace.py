"""How fast an application gets events done, so that no more are fetched than it needs. Pure; time is an
argument, in seconds.

Why: a partition moves to another consumer only when all that was sent is settled. What waits unread here
delays that, or is sent twice.
"""

from typing import Final

FIRST: Final = 2
"""Events fetched ahead for a partition before anything is known of the application."""
_MEMORY: Final = 64
"""Events after which what was measured counts half and less."""
_STEP: Final = 4


class Pace:
    """Measures how long the application is away with what it was given; the time it waits for events does not
    count.
    """

    def __init__(self, ahead_s: float, most: int) -> None:
        """`ahead_s`: how long what is fetched ahead should last.

        `most`: events of one partition, at any pace.
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
        """The application comes for more: what it was given is done, or as good as."""
        if self._given:
            keep = max(0.5, 1 - self._given / _MEMORY)
            self._busy_s = self._busy_s * keep + max(0.0, now_s - self._given_s)
            self._done = self._done * keep + self._given
            self._given = 0
            # In steps: a few quick events tell little about those that follow.
            self._bound = max(1, min(self._in_time(), _STEP * self._bound))

    def gave(self, count: int, now_s: float) -> None:
        """It goes away with `count` events."""
        self._given += count
        self._given_s = now_s

    def ahead(self, partitions: int) -> int:
        """How many events each of so many partitions may have on their way or unread."""
        return max(1, min(self._most, self._bound // partitions if self._done else FIRST))

    def _in_time(self) -> int:
        most = self._most << 10
        return (
            most
            if self._busy_s * most <= self._ahead_s * self._done
            else int(self._done * self._ahead_s / self._busy_s)
        )
