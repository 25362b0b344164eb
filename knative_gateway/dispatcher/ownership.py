"""Which partitions of a log this gateway delivers: all of them, unless replicas share them.

At most one replica begins deliveries of a partition, as far as the replicas know of each other. A replica
that loses a partition releases the partition as soon as it knows. Stored positions are correct in any case:
they state what is completed, no matter which replica completed it.
"""

from collections.abc import Callable
from typing import Final, Protocol

AWAIT_S: Final = 5.0
"""A worker that does not lead may know a route this long before the leader has created its log. It warns
that the log does not exist only after this time.
"""


class Share(Protocol):
    """The partitions of one log that this gateway owns."""

    @property
    def partitions(self) -> frozenset[int] | None:
        """The partitions that this gateway owns now; None: all."""

    async def close(self) -> None:
        """Give the partitions up to other replicas."""


class Ownership(Protocol):
    """Decides which partitions a gateway owns."""

    def share(self, log: str, changed: Callable[[], None]) -> Share:
        """Request a share of a log. `changed` is called whenever `partitions` of the share changes."""


class Everything:
    """The share of the only replica."""

    partitions: frozenset[int] | None = None

    async def close(self) -> None:
        """Do nothing: other replicas do not exist."""


class Alone:
    """The ownership of the only replica."""

    def share(self, log: str, changed: Callable[[], None]) -> Share:  # noqa: ARG002  nothing ever changes
        """Return a share of all partitions."""
        return Everything()
