"""An event loop with virtual time: the time moves to the next timer, and nothing else advances it.

The loop has the granularity and the timers of uvloop, which runs the gateway: milliseconds, and a plain
`Handle` without `when()` for a timer that is due at once. A `Process` is a gateway that can be killed: its
tasks, timers and connections end at once, and its code has no effect while it unwinds.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random
from types import FrameType
from typing import Any, Final

START_MS: Final = 1_000_000
TURNS_MAX: Final = 20_000
"""Iterations of the loop at one instant. More: something runs in a circle."""
CALLS_MAX: Final = 400_000
"""Calls of functions in one callback. More: the callback holds up all others."""
BUSY_SHARE: Final = 0.1
"""Of the looks at the clock of a busy loop, how many find that a millisecond has passed."""


class SimulationError(AssertionError):
    """A law of the simulation is broken."""


class Process:
    """A program on the simulated machine. `stops`: it got SIGTERM, at `stopped_ms`. `stopped`: it has ended
    in order. `on_kill`: what ends with it at once.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.dead = self.stops = self.stopped = False
        self.stopped_ms = 0
        self.tasks: Final[dict[asyncio.Task[Any], None]] = {}
        self.on_kill: Final[list[Callable[[], None]]] = []


CURRENT: Final[ContextVar[Process | None]] = ContextVar("CURRENT", default=None)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address, so that each process repeats a seed."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: "VirtualLoop", **more: Any) -> None:
        self._number: Final = next(loop.numbers)
        super().__init__(coroutine, loop=loop, **more)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    """The same for a future."""

    def __init__(self, *, loop: "VirtualLoop") -> None:
        self._number: Final = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


def number_of(subject: Any) -> int:
    """The same as a hash for objects of the product."""
    attributes = subject.__dict__
    if "_number" not in attributes:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        attributes["_number"] = next(loop.numbers)
    number: int = attributes["_number"]
    return number


class VirtualLoop(asyncio.BaseEventLoop):
    """`now_ms`: the time. `handled`: callbacks so far. `calls`: the most calls of functions in one callback,
    counted between `count_calls` and `close`. `busy`: if set, the machine is slow: time passes while a
    callback runs, as with uvloop's clock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers: Final = count(1)
        """For hashes."""
        self.now_ms = START_MS
        self.handled = 0
        self.calls = 0
        self.busy: Random | None = None
        self.unhandled: Final[list[dict[str, Any]]] = []
        self.broken: BaseException | None = None
        """The first broken invariant, which ends the run."""
        self._is_over = False
        self._turns = 0
        self._called = 0
        self._callback = ""
        self._counts = False
        self._selector = self
        self.disk: Callable[[Callable[..., Any], Process | None], asyncio.Future[Any]]
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # of 3.11: it passes a context
        self.set_exception_handler(lambda _loop, context: self._note(context))

    # -- time

    def time(self) -> float:
        if self.busy is not None and self.busy.random() < BUSY_SHARE:
            self.now_ms += 1
        return self.now_ms / 1000

    def call_at(  # type: ignore[override]  # as uvloop's: a timer that is due at once is a plain Handle
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        due_ms = round(when * 1000)
        if due_ms <= self.now_ms:
            return self.call_soon(callback, *args, context=context)
        return super().call_at(due_ms / 1000, callback, *args, context=context)

    def call_later(  # type: ignore[override]  # as `call_at`
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def select(self, timeout: float | None) -> list[object]:
        """The wait of the loop: time moves to the next timer."""
        if self.broken is not None:
            raise self.broken
        if timeout is None:
            raise SimulationError("nothing is due any more, and the run has not ended")
        if timeout > 0:
            # Of BaseEventLoop.
            due_ms = round(self._scheduled[0].when() * 1000)  # type: ignore[attr-defined]
            self.now_ms = max(self.now_ms, due_ms)
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS_MAX:
                # The same.
                ready = {repr(handle)[:200] for handle in self._ready}  # type: ignore[attr-defined]
                raise SimulationError(f"{TURNS_MAX} turns at {self.now_ms} ms: {sorted(ready)[:5]}")
        self.handled += len(self._ready)  # type: ignore[attr-defined]  # the same
        return []

    def _process_events(self, _events: object) -> None:
        return None

    def _write_to_self(self) -> None:
        return None

    # -- threads

    def run_in_executor(  # type: ignore[override]  # it gives a future as the loop's own does
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Work for a thread is carried out in the loop, later: that of the store by `disk`."""
        is_store = getattr(executor, "_thread_name_prefix", "").startswith("store")
        if is_store and getattr(func, "__name__", "") != "_close":  # which does not touch the disk
            return self.disk(lambda: func(*args), CURRENT.get())
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  it is for the caller
            future.set_exception(error)
        return future

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    # -- processes

    def _make_task(
        self,
        _loop: object,
        coroutine: Coroutine[Any, Any, Any],
        context: Context | None = None,
        **more: Any,
    ) -> asyncio.Task[Any]:
        task = _Task(coroutine, loop=self, context=context, **more)
        process = CURRENT.get() if context is None else context.get(CURRENT)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda done: process.tasks.pop(done, None), context=Context())
        return task

    async def kill(self, process: Process) -> None:
        """End a process without any notice. Returns when all of its code has unwound."""
        process.dead = True
        for handle in list(self._scheduled):  # type: ignore[attr-defined]  # of BaseEventLoop
            if handle._context.get(CURRENT) is process:
                handle.cancel()
        for end in process.on_kill:
            end()
        for _ in range(30):
            for task in list(process.tasks):
                task.cancel()
            await asyncio.sleep(0)
            if not process.tasks:
                return
            await asyncio.sleep(0.1)
        raise SimulationError(f"tasks of {process.name} do not end: {list(process.tasks)[:3]}")

    def in_process(self, process: Process, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run in a process: all that this task begins belongs to it."""
        context = copy_context()
        context.run(CURRENT.set, process)
        return self.create_task(coroutine, context=context)

    def _note(self, context: dict[str, Any]) -> None:
        if self._is_over:
            return  # what follows the first failure does not replace it
        if isinstance(context.get("exception"), SimulationError):
            self.broken = self.broken or context["exception"]
        task = context.get("task") or context.get("future")
        process = CURRENT.get()
        if (process is None or not process.dead) and not (task is not None and task.cancelled()):
            self.unhandled.append(context)

    def wind_up(self) -> None:
        """End all tasks, also those of a run that failed."""
        self._is_over, self.broken = True, None
        for _ in range(20):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks, timeout=1))

    # -- the budget of a callback

    def count_calls(self) -> None:
        """Count calls from now on. A run takes three times as long then."""
        self._counts = True
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            if frame.f_code is _RUN:
                self._called, self._callback = 0, repr(frame.f_locals.get("self"))[:300]
            self._called += 1
            if self._called > self.calls:
                self.calls = self._called
                if self.calls == CALLS_MAX:
                    self.unhandled.append({"message": f"{CALLS_MAX} calls in one callback: {self._callback}"})

    def close(self) -> None:
        if self._counts:
            sys.setprofile(None)
        super().close()


_RUN: Final = asyncio.Handle._run.__code__  # each callback is run by it
