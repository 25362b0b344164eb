"""How often the status of one object is written: replicas that disagree, as when one cannot reach the log, must not chase each other."""

from typing import Final

from knative_gateway.ports import Key

WRITES_MAX: Final = 20
"""Of one object in a window; what people and data planes do needs a few."""
WINDOW_S: Final = 10.0
KEYS_MAX: Final = 10_000
"""Objects that are counted; beyond it all begin anew."""


class Pace:
    """Counts writes by object. Time is an argument, in seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._since: float = 0.0
        self._counts: dict[Key, int] = {}

    def may_write(self, key: Key, now_s: float) -> bool:
        """Whether one more write of it is well now; counts it if so."""
        if now_s - self._since >= WINDOW_S or len(self._counts) > KEYS_MAX:
            self._since = now_s
            self._counts.clear()
        count = self._counts.get(key, 0)
        if count >= WRITES_MAX:
            return False
        self._counts[key] = count + 1
        return True
