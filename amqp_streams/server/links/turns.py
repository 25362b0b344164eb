"""Work that takes long, for the whole node a few milliseconds of it in each turn of the loop: `$info` and
`$management`, and what peers ask for faster than it can be done.

Law: however many links ask, events, heartbeats and probes get their turns in between.
"""

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

import structlog

from amqp_streams.storage.ports import Use

BUDGET_S: Final = 0.005
"""Of a turn. One step may exceed it: an answer about 1,024 partitions takes 10 ms."""
CONNECTION_BYTES_MAX: Final = 2 << 20
"""Of requests that wait, from one connection; a single larger one is let in."""
NODE_BYTES_MAX: Final = 64 << 20
"""The same of all connections."""
SMALL_BYTES: Final = 4 << 10
"""A request of at most so many bytes is let in if no other of its connection waits: nobody can keep everybody
else from asking.
"""

log = structlog.get_logger("amqp_streams")


class Payer(Protocol):
    """A connection."""

    def cut(self, reason: str) -> None:
        """End it at once, without a word."""


class Worker(Protocol):
    """A link or a connection that has work to do."""

    @property
    def name(self) -> str:
        """For the log."""

    @property
    def owner(self) -> Payer:
        """The connection that is closed after a failure."""

    def work(self) -> bool:
        """Do one step. Returns whether another step is waiting."""


class Turns:
    """Those that have work, in turn.

    `soon` calls in the next turn of the loop. `during`: what the work is, for the log.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], object], during: str = "request") -> None:
        self._during: Final = during
        self.seconds = 0.0
        """What this work has taken since the start of the node."""
        self._soon: Final = soon
        self._ready: Final[deque[Worker]] = deque()
        self._members: Final[set[Worker]] = set()
        self._scheduled = False
        self._held: Final[dict[int, int]] = {}
        self._held_bytes = 0

    def add(self, worker: Worker) -> None:
        """The worker has something to do."""
        if worker not in self._members:
            self._members.add(worker)
            self._ready.append(worker)
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._turn)

    def hold(self, connection: int, size: int) -> bool:
        """Count a waiting request of this connection. False: too much is waiting already, and it is not
        counted.
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
        """A counted request does not wait any more."""
        self._held_bytes -= size
        self._held[connection] -= size
        if not self._held[connection]:
            del self._held[connection]

    def uses(self) -> dict[str, Use]:
        """Its bounds, by name."""
        return {"request_bytes": Use(self._held_bytes, NODE_BYTES_MAX)}

    def _turn(self) -> None:
        self._scheduled = False
        began = now = perf_counter()
        while self._ready and now - began < BUDGET_S:
            worker = self._ready.popleft()
            self._members.discard(worker)
            if self._work(worker):
                self.add(worker)
            now = perf_counter()
        self.seconds += now - began
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._soon(self._turn)

    def _work(self, worker: Worker) -> bool:
        try:
            return worker.work()
        except Exception:
            log.exception("connection_failed", link=worker.name, during=self._during)
            worker.owner.cut(f"the node failed, during={self._during}")
            return False
