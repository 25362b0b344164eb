"""[io] Wakes the tasks that wait for the next change: a few in each iteration of the event loop.

A thousand watches that wake at once would occupy the event loop for more than 100 ms.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeAlias

WOKEN_A_TURN: Final = 8
"""A watch that sends a change takes about 0.15 ms."""
Waiting: TypeAlias = dict[asyncio.Future[None], None]
"""Tasks that wait, in order."""


class Waking:
    """The tasks that wait. A task that begins to wait after `wake` waits for the next `wake`."""

    def __init__(self) -> None:
        self._at_once: Final[Waiting] = {}
        self._in_turns: Final[Waiting] = {}
        self._due: Final[Waiting] = {}
        """Those of `_in_turns` that are still to be woken after the last `wake`."""
        self._scheduled = False

    async def wait(self, *, in_turns: bool) -> None:
        """Wait for the next `wake`. `in_turns`: at most `WOKEN_A_TURN` such tasks wake in an iteration."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._in_turns if in_turns else self._at_once)[mine] = None
        try:
            await mine
        finally:
            # A task that is cancelled leaves at once: the next change may be hours away.
            for waiting in (self._at_once, self._in_turns, self._due):
                waiting.pop(mine, None)

    def wake(self) -> None:
        """Wake all tasks that wait now."""
        _wake(self._at_once)
        self._at_once.clear()
        self._due.update(self._in_turns)
        self._in_turns.clear()
        if not self._scheduled:
            self._wake_some()

    def _wake_some(self) -> None:
        self._scheduled = False
        some = list(islice(self._due, WOKEN_A_TURN))
        for each in some:
            del self._due[each]
        _wake(some)
        if self._due:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._wake_some)


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    for each in waiting:
        if not each.done():  # a watch that ended has cancelled it
            each.set_result(None)
