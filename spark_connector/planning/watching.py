"""What the logs have, asked for no more often than needed: Spark asks an idle source ninety times a second. Pure: clock and node are given.

Law: while nothing is new the node is asked once in `every_ms`, so that what comes is known at most that much later; right after a batch it
is asked at once.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from spark_connector.planning.holdings import Available

_T = TypeVar("_T")


class Watch:
    """Of the logs of one query."""

    def __init__(self, ask: Callable[[], Available], every_ms: int, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._ask: Final = ask
        self._every_s: Final = every_ms / 1000
        self._now: Final = now
        self._sleep: Final = sleep
        self._asked_at = 0.0
        self._idle = True
        self.seen: Available | None = None

    def fresh(self) -> Available:
        """What they have now."""
        self._asked_at = self._now()
        self.seen = self._ask()
        return self.seen

    def until(self, end: Callable[[Available], _T | None]) -> _T | None:
        """What `end` makes of what they have, waiting for the next time to ask if it makes nothing of what is known. None: nothing then."""
        left = self._asked_at + self._every_s - self._now()
        if self.seen is not None and left > 0:
            found = end(self.seen)
            if found is not None:
                self._idle = False
                return found
            if self._idle:  # where something came just now, more may have come since: batches bound how often that is asked
                self._sleep(left)
        found = end(self.fresh())
        self._idle = found is None
        return found
