"""The order of simulated calls: a clock that moves to the next call that is due."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

MS = 1000
SECOND = 1000 * MS
CALLS_MAX: Final = 2_000_000
"""Of a run. The largest runs need some ten thousand: with so many, the time probably stands still."""


class Schedule:
    """Calls at times in microseconds, made in order. Calls of one time run in the order of scheduling."""

    def __init__(self) -> None:
        self.now_us = 0
        self.calls = 0
        """The number of calls so far. It limits `until`, in addition to the time."""
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()

    @property
    def now_ms(self) -> int:
        """The time in ms."""
        return self.now_us // MS

    def at(self, us: int, call: Callable[[], object]) -> None:
        """Call at this time, or at once if it is over."""
        heappush(self._due, (max(us, self.now_us), next(self._numbers), call))

    def after(self, us: int, call: Callable[[], object]) -> None:
        """Call so much later."""
        heappush(self._due, (self.now_us + us, next(self._numbers), call))

    def every(self, us: int, call: Callable[[], object], *, while_: Callable[[], bool]) -> None:
        """Call again and again, as long as a condition holds."""

        def turn() -> None:
            if while_():
                call()
                self.after(us, turn)

        self.after(us, turn)

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Advance the time. With `done`, stop when it returns true. Returns whether it did."""
        due = self._due
        while due and due[0][0] <= until_us:
            self.now_us, _, call = heappop(due)
            self.calls += 1
            assert self.calls < CALLS_MAX, f"the run makes {self.calls} calls until {self.now_us} us"
            call()
            if done is not None and done():
                return True
        self.now_us = until_us
        return done is not None and done()
