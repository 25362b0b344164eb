"""[io] Wakes what waits for the next change: a few in each iteration of the event loop.

A thousand watches that wake at once would occupy the event loop for more than 100 ms.
"""

import asyncio
from collections import deque
from typing import Final

WOKEN_A_TURN: Final = 8
"""A watch that sends a change takes about 0.15 ms."""


class Waking:
    """Those who wait. One that begins to wait after `wake` is not woken by it."""

    def __init__(self) -> None:
        self._first: Final[deque[asyncio.Future[None]]] = deque()
        self._patient: Final[deque[asyncio.Future[None]]] = deque()
        self._due = 0
        """How many of the patient ones are still to be woken, from the left."""
        self._scheduled = False

    async def wait(self, *, patient: bool) -> None:
        """Until the next `wake`. `patient`: woken in turns with the other patient ones."""
        waiting = self._patient if patient else self._first
        waiting.append(mine := asyncio.get_running_loop().create_future())
        await mine

    def wake(self) -> None:
        """Wake all that wait now."""
        _wake(self._first, len(self._first))
        self._due = len(self._patient)
        if not self._scheduled:
            self._some()

    def _some(self) -> None:
        self._scheduled = False
        count = min(self._due, WOKEN_A_TURN)
        self._due -= count
        _wake(self._patient, count)
        if self._due:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._some)


def _wake(waiting: deque[asyncio.Future[None]], count: int) -> None:
    for _ in range(count):
        each = waiting.popleft()
        if not each.done():  # a watch that ended has cancelled it
            each.set_result(None)
