"""An asyncio event loop on the schedule: each turn is a call that is due, and an exception ends the run."""

import asyncio
import inspect
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, cast

from tests.simulation.machine.clocks import Steps
from tests.simulation.machine.schedule import MS, SECOND, Schedule

TURN_US = 20
"""Time between the event that wakes a loop and its iteration."""


class Handle:
    """A call that a loop has to make."""

    __slots__ = ("arguments", "call", "cancelled", "context")

    def __init__(
        self, call: Callable[..., object], arguments: tuple[Any, ...], context: Context | None
    ) -> None:
        self.call = call
        self.arguments = arguments
        self.context = context
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        if self.context is None:
            self.call(*self.arguments)
        else:
            self.context.run(self.call, *self.arguments)


class NodeLoop:
    """The loop of one process, with the methods that asyncio's futures and the node need. `guard(call)` makes
    the calls of an iteration, and handles the end of the process.
    """

    def __init__(self, schedule: Schedule, steps: Steps, guard: Callable[[Callable[[], None]], None]) -> None:
        self._schedule = schedule
        self._steps = steps
        self._guard = guard
        self._ready: deque[Handle] = deque()
        self._armed = False
        self._tasks: list[Any] = []
        self.dead = False
        self.serving = True
        """The end of a process may take its time."""
        self.frozen_until_us = 0
        self.turns = 0
        self.steps_max = 0
        """The most steps of one call."""
        self.slowest = ""

    # -- what asyncio asks for

    def time(self) -> float:
        return self._schedule.now_us / SECOND

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        self._arm()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = Handle(callback, args, context)
        self._schedule.at(round(when * SECOND), lambda: self._due(handle))
        return handle

    def create_future(self) -> Any:
        return asyncio.Future(loop=cast("Any", self))

    def create_task(self, coro: Any, **_options: Any) -> Any:
        task: Any = asyncio.Task(coro, loop=cast("Any", self))
        task._log_destroy_pending = False  # a process that dies leaves such tasks
        self._tasks.append(task)
        return task

    def die(self) -> None:
        """End the process: none of its code runs any more."""
        self.dead = True
        for task in self._tasks:
            if inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_CREATED:
                task.get_coro().close()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: Any) -> None:
        raise AssertionError(context)

    # -- turns

    def freeze(self, us: int) -> None:
        """The process stops for a while, and does not know it."""
        self.frozen_until_us = max(self.frozen_until_us, self._schedule.now_us + us)

    def _due(self, handle: Handle) -> None:
        if not self.dead and not handle.cancelled:
            self._ready.append(handle)
            self._arm()

    def _arm(self) -> None:
        if not self._armed and not self.dead:
            self._armed = True
            self._schedule.after(TURN_US, self._turn)

    def _turn(self) -> None:
        if self.dead:
            return
        if self.frozen_until_us > self._schedule.now_us:
            self._schedule.at(self.frozen_until_us + MS, self._turn)
            return
        self._armed = False
        self.turns += 1
        ready, self._ready = self._ready, deque()
        events._set_running_loop(cast("Any", self))
        try:
            self._guard(lambda: self._run(ready))
        finally:
            events._set_running_loop(None)
        if self._ready:
            self._arm()

    def _run(self, ready: deque[Handle]) -> None:
        while ready and not self.dead:
            handle = ready.popleft()
            if handle.cancelled:
                continue
            steps = self._steps.run(handle.run)
            if steps > self.steps_max and self.serving:
                self.steps_max, self.slowest = steps, repr(handle.call)[:200]
