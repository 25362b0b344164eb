"""A limit for work that takes long.

`$info`, `$management`, and whatever clients request faster than the node can do it. The whole node spends a
millisecond of each loop iteration on it.

Law: however many links send requests, events, heartbeats and health probes are served in between.
"""

from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final, Protocol

import structlog

from amqp_streams.storage.ports import Use

BUDGET_S: Final = 0.001
"""Seconds per loop iteration. One step may exceed it.

Another client's event needs three iterations until it is accepted and delivered. With 5 ms, it took 15 ms
while one client kept the node busy. With 1 ms, the node accepts and delivers as many events as with 5 ms.
"""
LEAST_S: Final = 0.00025
"""Work of one kind may take this long, even if work of other kinds has used the time of the iteration."""
CONNECTION_BYTES_MAX: Final = 2 << 20
"""How many bytes of requests from one connection may wait. A single larger request is admitted if no other
waits.
"""
NODE_BYTES_MAX: Final = 64 << 20
"""How many bytes of requests from all connections may wait."""
SMALL_BYTES: Final = 4 << 10
"""At the limit of the node, a request of at most this size is still admitted if no other request of its
connection waits. One connection can therefore not exclude the others.
"""

log = structlog.get_logger("amqp_streams")


class Payer(Protocol):
    """A connection that pays for the work of its links."""

    def cut(self, reason: str) -> None:
        """End the connection at once, without a close frame."""


class Worker(Protocol):
    """A link or a connection that has work to do."""

    @property
    def name(self) -> str:
        """The name for log lines."""

    @property
    def owner(self) -> Payer:
        """The connection to end if the work fails."""

    def work(self) -> bool:
        """Do one step. Returns whether another step is waiting."""


class Iteration:
    """How long all connections together may take in one iteration of the event loop.

    Data of many connections can arrive in one iteration, and others may have work left. Without a common
    limit, a client with one event would wait for all of them.

    `soon`: schedules a call for the next iteration.
    """

    __slots__ = ("_ends_s", "_soon", "unfinished")

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon: Final = soon
        self._ends_s: float | None = None
        self.unfinished: Final[set[object]] = set()
        """The links with a batch that needs more steps."""

    def ends_s(self) -> float:
        """Return the `perf_counter` at which the time of this iteration ends. The first call starts it."""
        if self._ends_s is None:
            self._ends_s = perf_counter() + BUDGET_S
            self._soon(self._end)
        return self._ends_s

    def share_ends_s(self) -> float:
        """Like `ends_s`, for work that was left in an earlier iteration: at least LEAST_S from now."""
        return max(self.ends_s(), perf_counter() + LEAST_S)

    def batches_end_s(self) -> float:
        """Like `ends_s`, for batches. While a batch is unfinished, no link begins another one outside of the
        backlog, so the memory for unfinished batches does not grow with the number of links.
        """
        return 0.0 if self.unfinished else self.ends_s()

    def _end(self) -> None:
        self._ends_s = None


class OrderedCalls:
    """Makes calls in the order in which they were added, within the time of each loop iteration.

    While calls wait, it makes at least one in an iteration. `soon`: schedules a call for the next iteration.
    `then`: called after the calls of an iteration.
    """

    __slots__ = ("_calls", "_iteration", "_scheduled", "_soon", "_then")

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        iteration: Iteration,
        then: Callable[[], None],
    ) -> None:
        self._soon: Final = soon
        self._iteration: Final = iteration
        self._then: Final = then
        self._calls: Final[deque[Callable[[], None]]] = deque()
        self._scheduled = False

    def add(self, call: Callable[[], None]) -> None:
        """Make this call now, if it is the only one and the iteration has time, or later."""
        self._calls.append(call)
        if self._scheduled:
            return
        # Many answers may come in one iteration, one after the other.
        if perf_counter() > self._iteration.ends_s():
            self._scheduled = True
            self._soon(self._some)
        else:
            self._some()

    def _some(self) -> None:
        self._scheduled = True  # a call may add another one
        until = self._iteration.ends_s()
        try:
            while self._calls:
                self._calls.popleft()()
                if perf_counter() > until:
                    break
        finally:  # a call that fails must not stop the others
            self._scheduled = bool(self._calls)
            if self._scheduled:
                self._soon(self._some)
            self._then()


class OrderedSteps:
    """Takes the steps of iterators, one iterator after the other, within its own time of each iteration.

    While steps wait, it takes at least one in an iteration. `soon`: schedules a call for the next iteration.
    """

    __slots__ = ("_iteration", "_iterators", "_scheduled", "_soon")

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon: Final = soon
        self._iteration: Final = Iteration(soon)
        self._iterators: Final[deque[Iterator[None]]] = deque()
        self._scheduled = False

    def add(self, steps: Iterator[None]) -> None:
        """Take these steps now, as far as no others wait and the iteration has time, or later."""
        self._iterators.append(steps)
        if self._scheduled:
            return
        self._scheduled = True  # a step may add others
        if perf_counter() > self._iteration.ends_s():
            self._soon(self._some)
        else:
            self._some()

    def _some(self) -> None:
        until = self._iteration.ends_s()
        try:
            while self._iterators:
                for _ in self._iterators[0]:
                    if perf_counter() > until:
                        return
                self._iterators.popleft()
        except BaseException:  # the others go on
            self._iterators.popleft()
            raise
        finally:
            self._scheduled = bool(self._iterators)
            if self._scheduled:
                self._soon(self._some)


class Turns:
    """Runs the workers round-robin, within the limit of time.

    `soon`: schedules a call for the next loop iteration. `during`: names the work in log lines. `first`:
    called before the work of an iteration.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        iteration: Iteration,
        during: str = "request",
        *,
        first: Callable[[], None] = lambda: None,
    ) -> None:
        self._iteration: Final = iteration
        self._first: Final = first
        self._during: Final = during
        self.seconds = 0.0
        """How many seconds this work has taken since the node started."""
        self._soon: Final = soon
        self._ready: Final[deque[Worker]] = deque()
        self._members: Final[set[Worker]] = set()
        self._scheduled = False
        self._held: Final[dict[int, int]] = {}
        self._held_bytes = 0

    def add(self, worker: Worker, *, first: bool = False) -> None:
        """Schedule a worker that has something to do. A second call has no effect.

        `first`: before all others.
        """
        if worker not in self._members:
            self._members.add(worker)
            if first:
                self._ready.appendleft(worker)
            else:
                self._ready.append(worker)
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._turn)

    def hold(self, connection: int, size: int) -> bool:
        """Count a waiting request of this connection.

        Returns False, and does not count it, if too many bytes are waiting already.
        """
        held = self._held.get(connection, 0)
        if held and held + size > CONNECTION_BYTES_MAX:
            return False
        if self._held_bytes and self._held_bytes + size > NODE_BYTES_MAX and (held or size > SMALL_BYTES):
            return False
        self._held[connection] = held + size
        self._held_bytes += size
        return True

    def release(self, connection: int, size: int) -> None:
        """Undo `hold`: the request has been answered or dropped."""
        self._held_bytes -= size
        # Requests without bytes wait as well, so the connection may have no entry left.
        if held := self._held.get(connection, 0) - size:
            self._held[connection] = held
        else:
            self._held.pop(connection, None)

    def uses(self) -> dict[str, Use]:
        """How much of each limit is in use, by name."""
        return {"request_bytes": Use(self._held_bytes, NODE_BYTES_MAX)}

    def _turn(self) -> None:
        self._scheduled = False
        self._first()
        began = now = perf_counter()
        until = self._iteration.share_ends_s()
        while self._ready:
            worker = self._ready.popleft()
            # Before the work: during it, the worker may be added again.
            self._members.discard(worker)
            if self._work(worker):
                self.add(worker)
            now = perf_counter()
            if now >= until:
                break
        self.seconds += now - began
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._soon(self._turn)

    # One failing request costs its connection, not the node.
    def _work(self, worker: Worker) -> bool:
        try:
            return worker.work()
        except Exception:
            log.exception("connection_failed", link=worker.name, during=self._during)
            worker.owner.cut(f"the node failed, during={self._during}")
            return False
