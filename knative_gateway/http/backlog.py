"""Connections that have more to do than one request: they take turns, for a short time of each loop
iteration.

A connection begins one request when data arrives. If more requests have arrived, it waits here, and begins
one in each turn. So clients that send many requests at once share a small part of each iteration of the event
loop, however many they are, and other connections do not wait for them.
"""

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

TURN_S: Final = 0.001
"""How long connections of the backlog are served in one iteration of the event loop."""
TURNS_MAX: Final = 16
"""How many turns one iteration has: a request can do most of its work after its turn."""


class Waiter(Protocol):
    """A connection."""

    def turn(self) -> None:
        """Do a little: begin one request. Call `Backlog.add` again if more is left."""


class Backlog:
    """The connections of a listener that wait for a turn, in the order of their arrival.

    `later`: calls a function in the next iteration of the event loop. `clock`: returns seconds.
    """

    def __init__(
        self, later: Callable[[Callable[[], None]], object], clock: Callable[[], float] = perf_counter
    ) -> None:
        self._later: Final = later
        self._clock: Final = clock
        self._waiting: Final[deque[Waiter]] = deque()
        self._members: Final[set[Waiter]] = set()
        self._is_due = False

    def add(self, waiter: Waiter) -> None:
        """Give it a turn soon. Ignored if it waits already."""
        if waiter in self._members:
            return
        self._members.add(waiter)
        self._waiting.append(waiter)
        self._call()

    def _call(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._later(self._serve)

    def _serve(self) -> None:
        """The share of one iteration."""
        self._is_due = False
        until = self._clock() + TURN_S
        try:
            turns = 0
            while self._waiting and turns < TURNS_MAX and (not turns or self._clock() < until):
                turns += 1
                waiter = self._waiting.popleft()
                self._members.discard(waiter)
                waiter.turn()
        finally:
            if self._waiting:
                self._call()
