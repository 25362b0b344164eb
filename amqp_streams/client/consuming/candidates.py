"""How many attaches a member of a consumer group keeps waiting, and when it tries again. Pure; time is an
argument, in seconds.

Laws: never more links than partitions; while the node refuses instead of keeping attaches waiting, one at a
time, after growing waits.
"""

from collections import deque
from enum import Enum, auto
from typing import Final

from amqp_streams import names
from amqp_streams.client.errors import PASSING, ConnectionLostError, EndpointError
from amqp_streams.client.options import RetryPolicy
from amqp_streams.errors import AmqpStreamsError

ASK_AGAIN_S_MAX: Final = 0.5
"""Between two attaches that the node refuses because no partition is free: it takes who stays away for a
second for gone.
"""
AT_ONCE_S: Final = 1.0
"""A refusal that comes sooner than this was given at once; one that comes later ends a time of waiting."""
_MOVED: Final = frozenset({names.LINK_DETACH_FORCED, names.LINK_STOLEN, names.RESOURCE_LOCKED})
"""Another has the partition."""


class Ending(Enum):
    """What the end of a link means for its member."""

    AGAIN = auto()
    FINAL = auto()


class Candidates:
    """The attaches of one member that wait for a partition. `partitions`: of the log; None: not known."""

    def __init__(self, most: int, retry: RetryPolicy, prefix: str) -> None:
        """`most`: attaches that may wait at a time.

        `prefix`: of the links' names, which come again and again.
        """
        assert most > 0
        self._most: Final = most
        self._retry: Final = retry
        self._prefix: Final = prefix
        self._names: deque[str] = deque()
        self._made = 0
        self._refusals = 0
        self._failures = 0
        self._not_before_s = 0.0
        self._short = False
        self.waiting = 0
        self.partitions: int | None = None

    def due(self, held: int, now_s: float) -> int:
        """How many attaches to start now."""
        most = 1 if self._refusals or self._failures else self._most
        room = most if self.partitions is None else min(most, self.partitions - held)
        missing = max(0, room - self.waiting)
        self._short = missing > 0 and now_s < self._not_before_s
        return 0 if self._short else missing

    @property
    def due_at(self) -> float | None:
        """When to ask for `due` again, if nothing happens before; None: not at all."""
        return self._not_before_s if self._short else None

    def start(self) -> str:
        """An attach starts: the name of its link.

        Names come back, so that the node takes the link that it holds dead for this one.
        """
        self.waiting += 1
        if self._names:
            return self._names.popleft()
        self._made += 1
        return f"{self._prefix}-{self._made}"

    def granted(self) -> None:
        """An attach that waited has a partition now."""
        self.waiting -= 1
        self._refusals = self._failures = 0

    def ended(
        self, name: str, error: AmqpStreamsError, *, held: bool, lasted_s: float, now_s: float
    ) -> Ending:
        """A link is over: one that had a partition (`held`), or one that waited."""
        self._names.append(name)
        if not held:
            self.waiting -= 1
        if isinstance(error, ConnectionLostError):
            return Ending.AGAIN
        if not isinstance(error, EndpointError):
            return Ending.FINAL
        if error.condition in _MOVED:
            if lasted_s < AT_ONCE_S:
                self._not_before_s = now_s + min(self._retry.wait_s(self._refusals), ASK_AGAIN_S_MAX)
                self._refusals += 1
            else:
                self._refusals = 0
            return Ending.AGAIN
        wait_s = self.failed(error)
        if wait_s is None:
            return Ending.FINAL
        self._not_before_s = now_s + wait_s
        return Ending.AGAIN

    def failed(self, error: EndpointError) -> float | None:
        """The node could not do what was asked.

        How long to wait before the next try; None: there is no use.
        """
        if (
            error.condition not in PASSING and error.condition != names.LINK_REDIRECT
        ) or self._failures >= self._retry.attempts_max:
            return None
        self._failures += 1
        return self._retry.wait_s(self._failures - 1)
