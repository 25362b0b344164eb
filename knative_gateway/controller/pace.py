"""A limit on writes of one object's status: replicas that disagree, for example because one of them cannot
reach the log, must not overwrite each other all the time. Pure.
"""

from typing import Final

from knative_gateway.ports import Key

WRITES_MAX: Final = 20
"""Writes of one object in a window. Users and data planes cause only a few."""
WINDOW_S: Final = 10.0
KEYS_MAX: Final = 10_000
"""Objects that are counted. If there are more, counting begins again."""


class Pace:
    """Counts writes by object. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._since: float = 0.0
        self._counts: dict[Key, int] = {}

    def may_write(self, key: Key, now_s: float) -> bool:
        """Whether the object may be written once more now; if so, the write is counted."""
        if now_s - self._since >= WINDOW_S or len(self._counts) > KEYS_MAX:
            self._since = now_s
            self._counts.clear()
        count = self._counts.get(key, 0)
        if count >= WRITES_MAX:
            return False
        self._counts[key] = count + 1
        return True
