"""[io] A limit on the share of the event loop for a kind of requests, independent of the number of clients.

In one iteration of the event loop, at most one waiting request begins, in the order of arrival. After a long
iteration, the next request waits for the same time. So these requests together use about half of the event
loop. A connection answers one request at a time, so a client that sends many requests at once waits behind
other connections.
"""

import asyncio
from collections import deque
from time import perf_counter as clock
from typing import Final

LONG_S: Final = 0.001
"""An iteration that takes longer is followed by a pause of the same length. Timers of the event loop have a
resolution of 1 ms.
"""
PAUSE_S_MAX: Final = 0.25


class Turns:
    """The turns of all connections of a listener."""

    def __init__(self) -> None:
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        self._is_taken = False
        """A request has begun in this iteration, or in the pause after it."""
        self._since = 0.0

    async def turn(self) -> None:
        """Wait until the caller may begin. Returns at once if no other request has begun."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            mine: asyncio.Future[None] = loop.create_future()
            self._waiting.append(mine)
            await mine
        else:
            self._is_taken, self._since = True, clock()
            # `call_soon` runs after the first step of the caller, in the next iteration: the difference is
            # the time that the request used.
            loop.call_soon(self._pause)

    def _pause(self) -> None:
        """The request that began has done its first step: let the next one begin, now or after a pause."""
        took = clock() - self._since
        loop = asyncio.get_running_loop()
        if took > LONG_S:
            loop.call_later(min(took, PAUSE_S_MAX), self._next)
        else:
            self._next()

    def _next(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            # A client that has left has cancelled its future. Its turn goes to the next one.
            if not first.done():
                first.set_result(None)
                self._since = clock()
                asyncio.get_running_loop().call_soon(self._pause)
                return
        self._is_taken = False
