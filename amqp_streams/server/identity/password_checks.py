"""The queue of passwords that wait for a check.

A check takes tens of milliseconds of a thread and 64 MiB, so only a few run at a time.

Laws: the queue is bounded, and one address uses at most half of it. Addresses are served round-robin. A
password whose result is no longer wanted is not checked.
"""

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from amqp_streams.wire.security.mechanisms import VerifyPlain

RUNNING_MAX: Final = 2
"""How many threads check passwords. Each check computes in four threads of its own."""
NICENESS: Final = 10
"""Their priority for the processor: next to an event loop that has work, they get about a tenth of a core."""

Verify = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class _Check:
    asked: VerifyPlain
    wanted: Callable[[], bool]
    on_result: Callable[[bool], None]


def checking_threads() -> ThreadPoolExecutor:
    """Return the threads of the checks, which leave the processor to the event loop."""
    return ThreadPoolExecutor(RUNNING_MAX, thread_name_prefix="passwords", initializer=_step_back)


def _step_back() -> None:
    # On Linux, a thread has a priority of its own, and those that it starts have the same.
    thread = threading.get_native_id()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


class PasswordChecks:
    """The checks of one node.

    Everything except the check itself runs on the event loop's thread. `on_loop` schedules a call on that
    thread.
    """

    def __init__(
        self,
        verify: Verify,
        executor: Executor,
        *,
        waiting_max: int,
        on_loop: Callable[[Callable[[], None]], None],
    ) -> None:
        self._verify: Final = verify
        self._executor: Final = executor
        self._waiting_max: Final = waiting_max
        self._on_loop: Final = on_loop
        self._queues: Final[OrderedDict[str, deque[_Check]]] = OrderedDict()
        self._running = 0
        self.waiting = 0

    def ask(
        self,
        address: str,
        asked: VerifyPlain,
        *,
        wanted: Callable[[], bool],
        on_result: Callable[[bool], None],
    ) -> bool:
        """Queue a password check.

        `wanted` is asked before the check whether the result is still needed. `on_result` is called with the
        result.

        Returns False if too many checks are waiting; `on_result` is then not called.
        """
        own = len(self._queues.get(address, ()))
        if self.waiting >= self._waiting_max or own >= max(1, self._waiting_max // 2):
            return False
        self._queues.setdefault(address, deque()).append(_Check(asked, wanted, on_result))
        self.waiting += 1
        self._start()
        return True

    def _start(self) -> None:
        while self._running < RUNNING_MAX and self._queues:
            address, queue = self._queues.popitem(last=False)
            check = queue.popleft()
            self.waiting -= 1
            # Back to the end: the next address is served first.
            if queue:
                self._queues[address] = queue
            # The client may have left while its password waited.
            if check.wanted():
                self._running += 1
                future = self._executor.submit(self._verify, check.asked.user, check.asked.password)
                future.add_done_callback(partial(self._on_loop_done, check))

    def _on_loop_done(self, check: _Check, done: "Future[bool]") -> None:
        """Return the result to the event loop. Called on the executor's thread."""
        self._on_loop(partial(self._done, check, done))

    def _done(self, check: _Check, done: "Future[bool]") -> None:
        self._running -= 1
        check.on_result(not done.cancelled() and done.exception() is None and done.result())
        self._start()
