"""Which partitions of a log this gateway delivers: all of them, unless replicas share them.

Law: at most one replica begins deliveries of a partition, as far as the replicas know of each other; a
replica that loses a partition releases it as soon as it knows. Stored positions stay correct in any case:
they say what is completed, whichever replica completed it.
"""

from collections.abc import Callable
from typing import Protocol


class Share(Protocol):
    """This gateway's share of one log's partitions."""

    @property
    def partitions(self) -> frozenset[int] | None:
        """The partitions that this gateway owns now; None: all."""

    async def close(self) -> None:
        """Leave the partitions to other replicas."""


class Ownership(Protocol):
    """Decides the shares of a gateway."""

    def share(self, log: str, changed: Callable[[], None]) -> Share:
        """Ask for a share of a log. `changed` is called whenever its `partitions` changed."""


class Everything:
    """The share of the only replica."""

    partitions: frozenset[int] | None = None

    async def close(self) -> None:
        """Do nothing: no other replica exists."""


class Alone:
    """The ownership of the only replica."""

    def share(self, log: str, changed: Callable[[], None]) -> Share:  # noqa: ARG002  nothing ever changes
        """All partitions."""
        return Everything()
