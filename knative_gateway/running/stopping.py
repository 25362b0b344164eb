"""[io] A stop with a time limit: parts are closed in the opposite order of their start.

A part that does not stop does not delay the other parts. The process ends even if a database or a thread of
the resolver hangs.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

import structlog

T = TypeVar("T")

PART_S_MIN: Final = 1.0
"""The minimum time for each part, even if the limit has passed."""
GRACE_S: Final = 5.0
"""Time in addition to `drain`: for cursors, connections and the node."""
EXIT_S: Final = 5.0
"""Time for the event loop and its threads to end."""
CUT_OFF: Final = 1
"""The exit status of a process that did not stop in time."""

log = structlog.get_logger("knative_gateway")


class Parts:
    """Parts that were entered. `close` leaves them in the opposite order."""

    def __init__(self, *, part_s_min: float = PART_S_MIN) -> None:
        self._part_s_min: Final = part_s_min
        self._entered: Final[list[tuple[str, Callable[[], Awaitable[object]]]]] = []

    async def enter(self, name: str, part: AbstractAsyncContextManager[T]) -> T:
        """Enter a part. Errors of the part are raised."""
        entered = await part.__aenter__()
        self.on_close(name, lambda: part.__aexit__(None, None, None))
        return entered

    def on_close(self, name: str, do: Callable[[], Awaitable[object]]) -> None:
        """Register a function for `close`."""
        self._entered.append((name, do))

    async def close(self, limit_s: float) -> None:
        """Leave all parts within `limit_s` seconds, plus `part_s_min` for each part that is late."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + limit_s
        while self._entered:
            name, do = self._entered.pop()
            # Not awaited directly: a part that ignores its cancellation must not hold up the others.
            task = asyncio.ensure_future(do())
            await asyncio.wait({task}, timeout=max(self._part_s_min, latest - loop.time()))
            if not task.done():
                log.error("part_not_stopped", part=name, reason="it did not stop in time")
                task.cancel()
                task.add_done_callback(_looked_at)
            elif (error := _looked_at(task)) is not None:
                log.error("part_not_stopped", part=name, exc_info=error)


class Deadline:
    """Ends the process after a time, unconditionally. `end` is `os._exit`, except in tests."""

    def __init__(self, end: Callable[[int], object] = os._exit) -> None:
        self._end: Final = end
        self._timer: threading.Timer | None = None

    def arm(self, after_s: float) -> None:
        """Start the timer. It is a thread, because the event loop may hang."""
        self._timer = threading.Timer(after_s, self._cut_off, (after_s,))
        self._timer.daemon = True
        self._timer.start()

    def disarm(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut_off(self, after_s: float) -> None:
        log.error("stop_cut_off", after_s=after_s)
        self._end(CUT_OFF)


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})


def _looked_at(task: asyncio.Future[object]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
