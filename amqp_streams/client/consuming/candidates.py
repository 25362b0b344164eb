"""How many attaches a member of a consumer group keeps waiting, and when it retries.

Pure; times are in seconds.

Laws: never more links than partitions. A node may refuse attaches instead of keeping them waiting; then the
member sends one at a time and waits longer before each.
"""

from collections import deque
from enum import Enum, auto
from typing import Final

from amqp_streams import names
from amqp_streams.client.errors import PASSING, ConnectionLostError, EndpointError
from amqp_streams.client.options import RetryPolicy
from amqp_streams.errors import AmqpStreamsError

ASK_AGAIN_S_MAX: Final = 0.5
"""Longest wait after an attach that the node refused because no partition is free. The node assumes that a
member without an attach for a second has left the group.
"""
AT_ONCE_S: Final = 1.0
"""A refusal within this time means that the node keeps no attaches waiting; a later one, that it does."""
_MOVED: Final = frozenset({names.LINK_DETACH_FORCED, names.LINK_STOLEN, names.RESOURCE_LOCKED})
"""Conditions with which the node gives the partition to another member."""


class Ending(Enum):
    """What the end of a link means for its member: attach again, or fail."""

    AGAIN = auto()
    FINAL = auto()


class Candidates:
    """The attaches of one member that wait for a partition.

    `partitions`: how many the log has; None: not known.
    """

    def __init__(self, most: int, retry: RetryPolicy, prefix: str) -> None:
        """`most`: how many attaches may wait at the same time. `prefix`: the first part of all link names."""
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
        """Return how many attaches to start now. `held`: how many partitions the member owns."""
        # After a refusal or a failure, one attach shows whether the situation has changed.
        most = 1 if self._refusals or self._failures else self._most
        room = most if self.partitions is None else min(most, self.partitions - held)
        missing = max(0, room - self.waiting)
        self._short = missing > 0 and now_s < self._not_before_s
        return 0 if self._short else missing

    @property
    def due_at(self) -> float | None:
        """When to call `due` again if nothing changes before; None: only after a change."""
        return self._not_before_s if self._short else None

    def start(self) -> str:
        """Count an attach as started, and return the name for its link.

        Names of ended links are used again. The node then recognizes a link that it still holds for a lost
        connection and replaces it.
        """
        self.waiting += 1
        if self._names:
            return self._names.popleft()
        self._made += 1
        return f"{self._prefix}-{self._made}"

    def granted(self) -> None:
        """Record that a waiting attach was assigned a partition."""
        self.waiting -= 1
        self._refusals = self._failures = 0

    def ended(
        self, name: str, error: AmqpStreamsError, *, held: bool, lasted_s: float, now_s: float
    ) -> Ending:
        """Record that a link ended, and return what to do.

        `held`: it had a partition; otherwise it was waiting for one.

        `lasted_s`: how long the link owned the partition, or waited.
        """
        self._names.append(name)
        if not held:
            self.waiting -= 1
        # Not the fault of the link: the new connection attaches again at once.
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
        """Record an error of the node. Return how long to wait before the next attach; None: do not retry."""
        if (
            error.condition not in PASSING and error.condition != names.LINK_REDIRECT
        ) or self._failures >= self._retry.attempts_max:
            return None
        self._failures += 1
        return self._retry.wait_s(self._failures - 1)
