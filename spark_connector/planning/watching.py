"""The state of the logs, with few requests: Spark asks an idle source ninety times a second.

Pure: the clock and the request are arguments.

While no new events arrive, one request is sent every `every_ms`, so new events are noticed at most that
much later. After a batch, the next request follows at once.
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
        """Return the state of the logs after a new request."""
        self._asked_at = self._now()
        self.seen = self._ask()
        return self.seen

    def until(self, end: Callable[[Available], _T | None]) -> _T | None:
        """Return the result of `end` for the state of the logs.

        If `end` returns None for the latest state, wait until the next request is due, and ask again. Returns
        None if that state contains no new events either.
        """
        left = self._asked_at + self._every_s - self._now()
        if self.seen is not None and left > 0:
            found = end(self.seen)
            if found is not None:
                self._idle = False
                return found
            # Right after a batch, more events may already exist. The duration of batches limits the requests.
            if self._idle:
                self._sleep(left)
        found = end(self.fresh())
        self._idle = found is None
        return found
