"""The state of logs at one moment, as values for planning. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """The extent of one partition.

    The offset of its earliest event, the offset of its next event, and the bytes between them. `gaps`: some
    offsets in between belong to no event.
    """

    earliest: int
    next: int
    bytes: int = 0
    gaps: bool = False

    def __post_init__(self) -> None:
        assert 0 <= self.earliest <= self.next, (self.earliest, self.next)

    @property
    def average_bytes(self) -> int:
        """The average size of an event, rounded up; 1 for an empty partition."""
        count = self.next - self.earliest
        return max(1, -(-self.bytes // count)) if count else 1


@dataclass(frozen=True, slots=True)
class LogState:
    """One log. `incarnation` distinguishes it from other logs with the same name."""

    incarnation: str | None
    partitions: Mapping[int, Held]


Available = Mapping[str, LogState]
