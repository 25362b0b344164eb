"""[io] The pace of a backup: at most so many bytes a second, for the sake of a node on the same disk."""

import time
from collections.abc import Callable
from typing import Final

_BURST_S: Final = 0.1
"""The most unused time that is made up for later."""


class Pace:
    """Call it with the bytes that were just read or written: it sleeps while they are too many.

    `rate`: bytes a second; None: no limit.
    """

    def __init__(
        self,
        rate: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate: Final = rate
        self._clock: Final = clock
        self._sleep: Final = sleep
        self._due = clock()

    def __call__(self, count: int) -> None:
        """Sleep until `count` more bytes are allowed."""
        if self._rate is None:
            return
        now = self._clock()
        self._due = max(self._due, now - _BURST_S) + count / self._rate
        if self._due > now:
            self._sleep(self._due - now)
