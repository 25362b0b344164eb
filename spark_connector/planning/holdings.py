"""What logs have at one moment, as planning sees it. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """Of one partition: its earliest event's number, the number that the next event will get, and the bytes between them."""

    earliest: int
    next: int
    bytes: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.earliest <= self.next, (self.earliest, self.next)

    @property
    def average_bytes(self) -> int:
        """Of an event, rounded up; 1 where there is none."""
        count = self.next - self.earliest
        return max(1, -(-self.bytes // count)) if count else 1


@dataclass(frozen=True, slots=True)
class LogState:
    """Of one log; `incarnation` tells it from others of its name."""

    incarnation: str | None
    partitions: Mapping[int, Held]


Available = Mapping[str, LogState]
