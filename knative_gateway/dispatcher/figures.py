"""The counters of one subscriber. Pure."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

LATENCY_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000)
"""Upper bounds of the histogram's buckets. One more bucket is unbounded."""


@dataclass(slots=True, eq=False)
class Latencies:
    """A histogram: `counts` by bucket, and `total_ms`, the sum of all values."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1))
    total_ms: int = 0

    def note(self, elapsed_ms: int) -> None:
        """Count one latency."""
        self.counts[bisect_left(LATENCY_BOUNDS_MS, elapsed_ms)] += 1
        self.total_ms += elapsed_ms


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a subscriber is behind the end of its log.

    `events`: all events after its position, whether the filter matches them or not. `seconds`: the age of the
    oldest event that is not completed; 0 if all events are completed.
    """

    events: int
    seconds: float


NO_LAG: Final = Lag(0, 0.0)


@dataclass(slots=True, eq=False)
class Figures:
    """Counters since the process began; `in_flight` and `waiting` are current values.

    `matched`: events that the filters matched. `delivered`: events that the subscriber accepted. `replied`:
    replies that were stored or delivered. `retried`: attempts after the first. `failed_attempts`: failed
    requests to any destination. `dead_lettered` and `dropped`: events that the subscriber did not accept.
    `skipped`: stored messages that are not CloudEvents, and events whose filter failed. `removed`: events of
    the log, matching or not, that retention removed before they were delivered. `request`: the duration of
    one request to the subscriber. `end_to_end`: the time from the storing of an event to its completion.
    """

    matched: int = 0
    delivered: int = 0
    replied: int = 0
    retried: int = 0
    failed_attempts: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    skipped: int = 0
    replies_expired: int = 0
    removed: int = 0
    in_flight: int = 0
    waiting: int = 0
    request: Latencies = field(default_factory=Latencies)
    end_to_end: Latencies = field(default_factory=Latencies)

    def counters(self) -> dict[str, int]:
        """Return all counters under their names in statuses."""
        return {
            "matched": self.matched,
            "delivered": self.delivered,
            "replied": self.replied,
            "retried": self.retried,
            "failedAttempts": self.failed_attempts,
            "deadLettered": self.dead_lettered,
            "dropped": self.dropped,
            "skipped": self.skipped,
            "repliesExpired": self.replies_expired,
            "removed": self.removed,
            "inFlight": self.in_flight,
            "waiting": self.waiting,
        }
