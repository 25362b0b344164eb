"""The order of simulated actions: a clock that moves to the next action that is due."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Schedule:
    """Actions at times in milliseconds, carried out in order. Actions of one time run in the order of
    scheduling.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()

    def after(self, ms: int, act: Callable[[], object]) -> None:
        """Do this so much later."""
        heappush(self._due, (self.now_ms + ms, next(self._numbers), act))

    def every(self, ms: int, act: Callable[[], object], *, while_: Callable[[], bool] = lambda: True) -> None:
        """Do this again and again, as long as a condition holds."""

        def turn() -> None:
            if while_():
                act()
                self.after(ms, turn)

        self.after(ms, turn)

    def run(self, until_ms: int) -> None:
        """Advance the time."""
        while self._due and self._due[0][0] <= until_ms:
            self.now_ms, _, act = heappop(self._due)
            act()
        self.now_ms = until_ms
