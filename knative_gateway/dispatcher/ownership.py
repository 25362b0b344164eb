"""Which partitions of a log are ours to deliver: all of them, unless replicas share them.

Law: of each partition at most one replica begins deliveries, as far as they know of each other; one that loses a partition lets go of it as
soon as it knows. Positions hold in any case: they only ever say what is completed, whoever completed it.
"""

from collections.abc import Callable
from typing import Protocol


class Share(Protocol):
    """Our part of one log's partitions."""

    @property
    def partitions(self) -> frozenset[int] | None:
        """Those that are ours now; None: all that there are."""

    async def close(self) -> None:
        """Leave them to the others."""


class Ownership(Protocol):
    """Where shares come from."""

    def share(self, log: str, changed: Callable[[], None]) -> Share:
        """Ask for our share of a log. `changed` is called when `partitions` are others than before."""


class Everything:
    """The share of who is alone."""

    partitions: frozenset[int] | None = None

    async def close(self) -> None:
        """There is nobody to leave it to."""


class Alone:
    """The ownership of the only replica."""

    def share(self, log: str, changed: Callable[[], None]) -> Share:  # noqa: ARG002  nothing ever changes
        """All of it."""
        return Everything()
