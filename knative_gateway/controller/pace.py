"""A limit on writes of one object's status. Pure.

Replicas may disagree, for example because one of them cannot reach the log. Without a limit, they would
overwrite each other's status continuously.
"""

from typing import Final

from knative_gateway.ports import Key

WRITES_MAX: Final = 20
"""Writes of one object in WINDOW_S seconds. Users and data planes cause only a few."""
WINDOW_S: Final = 10.0
KEYS_MAX: Final = 10_000
"""Objects that are counted. If there are more, all counts begin at 0 again."""


class Pace:
    """Counts writes by object. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._since: float = 0.0
        self._counts: dict[Key, int] = {}

    def may_write(self, key: Key, now_s: float) -> bool:
        """Return whether the object may be written now. If so, the write is counted."""
        if now_s - self._since >= WINDOW_S or len(self._counts) > KEYS_MAX:
            self._since = now_s
            self._counts.clear()
        count = self._counts.get(key, 0)
        if count >= WRITES_MAX:
            return False
        self._counts[key] = count + 1
        return True
