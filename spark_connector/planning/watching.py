"""What the logs have, with as few requests as possible: Spark asks an idle source ninety times a second.

Pure: the clock and the request are arguments.

Law: while nothing is new, there is one request every `every_ms`, so new events are noticed at most that much
later. After a batch the next request follows at once.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from spark_connector.planning.holdings import Available

_T = TypeVar("_T")


class Watch:
    """Watches the logs of one query."""

    def __init__(
        self,
        ask: Callable[[], Available],
        every_ms: int,
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._ask: Final = ask
        self._every_s: Final = every_ms / 1000
        self._now: Final = now
        self._sleep: Final = sleep
        self._asked_at = 0.0
        self._idle = True
        self.seen: Available | None = None

    def fresh(self) -> Available:
        """What the logs have now: sends a request."""
        self._asked_at = self._now()
        self.seen = self._ask()
        return self.seen

    def until(self, end: Callable[[Available], _T | None]) -> _T | None:
        """The result of `end` for what the logs have.

        If `end` returns None for the latest answer, wait until the next request is due, and ask again. None
        if that answer has nothing new either.
        """
        left = self._asked_at + self._every_s - self._now()
        if self.seen is not None and left > 0:
            found = end(self.seen)
            if found is not None:
                self._idle = False
                return found
            if (
                self._idle
            ):  # right after a batch more events may exist already; the batches limit how often that is asked
                self._sleep(left)
        found = end(self.fresh())
        self._idle = found is None
        return found
