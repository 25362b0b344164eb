"""[io] Wakes the tasks that wait for the next change: a few in each iteration of the event loop.

A thousand watches that wake at once would occupy the event loop for more than 100 ms.
"""

import asyncio
from collections import deque
from typing import Final

WOKEN_A_TURN: Final = 8
"""A watch that sends a change takes about 0.15 ms."""


class Waking:
    """The tasks that wait. A task that begins to wait after `wake` waits for the next `wake`."""

    def __init__(self) -> None:
        self._at_once: Final[deque[asyncio.Future[None]]] = deque()
        self._in_turns: Final[deque[asyncio.Future[None]]] = deque()
        self._due = 0
        """How many of `_in_turns` are still to be woken, from the left."""
        self._scheduled = False

    async def wait(self, *, in_turns: bool) -> None:
        """Wait for the next `wake`. `in_turns`: at most `WOKEN_A_TURN` such tasks wake in an iteration."""
        waiting = self._in_turns if in_turns else self._at_once
        waiting.append(mine := asyncio.get_running_loop().create_future())
        await mine

    def wake(self) -> None:
        """Wake all tasks that wait now."""
        _wake(self._at_once, len(self._at_once))
        self._due = len(self._in_turns)
        if not self._scheduled:
            self._wake_some()

    def _wake_some(self) -> None:
        self._scheduled = False
        count = min(self._due, WOKEN_A_TURN)
        self._due -= count
        _wake(self._in_turns, count)
        if self._due:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._wake_some)


def _wake(waiting: deque[asyncio.Future[None]], count: int) -> None:
    for _ in range(count):
        each = waiting.popleft()
        if not each.done():  # a watch that ended has cancelled it
            each.set_result(None)
