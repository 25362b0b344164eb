"""How long recent commits took, for percentiles.

Law: a commit costs one append to a ring. Percentiles are computed when an operator asks.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

COMMITS_MAX: Final = 1000
"""Of how many commits the time is kept."""
RECENT_MS: Final = 300_000
"""Commits before that are not recent."""


class Latency(NamedTuple):
    """Percentiles of the time to write and sync a commit, in seconds, over `commits` commits."""

    commits: int
    p50_s: float
    p99_s: float
    max_s: float


class Latencies:
    """The times of the latest commits."""

    def __init__(self) -> None:
        self._kept: Final[deque[tuple[int, float]]] = deque(maxlen=COMMITS_MAX)

    def add(self, now_ms: int, seconds: float) -> None:
        """Note a commit that ended. `now_ms`: a monotonic clock."""
        self._kept.append((now_ms, seconds))

    def recent(self, now_ms: int) -> Latency | None:
        """The percentiles of the recent commits; None: no commit is recent."""
        times = sorted(seconds for at_ms, seconds in self._kept if now_ms - at_ms <= RECENT_MS)
        if not times:
            return None
        return Latency(len(times), _at(times, 0.5), _at(times, 0.99), times[-1])


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
