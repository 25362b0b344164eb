"""[io] A limit on the share of the event loop for a kind of requests, independent of the number of clients.

In one iteration of the event loop, at most one waiting request does a step, in the order of arrival. A step
ends where the request waits, for example for its body or for the database. When steps have taken a
millisecond, the next step waits for the same time. So these requests together use about half of the event
loop. What other threads compute meanwhile counts as well: they read the database for these requests, and the
event loop cannot run while they have the interpreter. A connection answers one request at a time, so a client
that sends many requests at once waits behind other connections.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from time import perf_counter as clock
from time import process_time, thread_time
from typing import Any, Final

LONG_S: Final = 0.001
"""Steps that take longer together are followed by a pause of the same length. Timers of the event loop have a
resolution of 1 ms.
"""
PAUSE_S_MAX: Final = 0.25
OTHERS_S_MAX: Final = 0.002
"""How much of the time of other threads counts for a step: one large request must not delay all others."""


def others_s() -> float:
    """Return the CPU seconds that the other threads of the process have used so far."""
    return process_time() - thread_time()


class Turns:
    """The turns of all connections of a listener. `others_s`: CPU seconds of other threads so far."""

    def __init__(self, others_s: Callable[[], float] = others_s) -> None:
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        self._others_s: Final = others_s
        self._is_taken = False
        """A request has done a step in this iteration, or in the one before the pause."""
        self._since = 0.0
        self._others = 0.0
        """What `others_s` was when it was last counted."""
        self._used = 0.0
        """Seconds that steps and other threads have used since the last pause."""

    async def pace(self, work: Coroutine[Any, Any, None], has_ended: Callable[[], bool]) -> None:
        """Do the work of a request, with a turn for each of its steps until `has_ended` returns True."""
        await _Paced(work, self, has_ended)

    async def turn(self) -> None:
        """Wait until the caller may do a step. Returns at once if no other request does one."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            mine: asyncio.Future[None] = loop.create_future()
            self._waiting.append(mine)
            await mine
        else:
            self._is_taken, self._used = True, 0.0
            self._since, self._others = clock(), self._others_s()
            # `call_soon` runs after the first step of the caller, in the next iteration: the difference is
            # the time that the request used.
            loop.call_soon(self._pause)

    def _pause(self) -> None:
        """The request has done its step: let the next one do a step, now or after a pause."""
        others = self._others_s()
        self._used += clock() - self._since + min(others - self._others, OTHERS_S_MAX)
        self._others = others
        loop = asyncio.get_running_loop()
        if self._used > LONG_S:
            pause_s, self._used = min(self._used, PAUSE_S_MAX), 0.0
            loop.call_later(pause_s, self._next)
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


class _Paced:
    """A coroutine as an awaitable that takes a turn before each step."""

    def __init__(self, work: Coroutine[Any, Any, None], turns: Turns, has_ended: Callable[[], bool]) -> None:
        self._work: Final = work
        self._turns: Final = turns
        self._has_ended: Final = has_ended

    def __await__(self) -> Generator[Any, Any, None]:
        work, error = self._work, None
        while True:
            # A cancellation, also of the wait for a turn, reaches the work where it waits.
            if not self._has_ended() and error is None:
                error = yield from _caught(self._turns.turn().__await__())
            try:
                waits_for = work.send(None) if error is None else work.throw(error)
            except StopIteration:
                return
            error = yield from _caught(iter((waits_for,)))


def _caught(waits: Any) -> Generator[Any, Any, BaseException | None]:
    """Wait, and return the exception that ended it."""
    try:
        yield from waits
    except BaseException as error:  # noqa: BLE001  the work gets it
        return error
    return None
