"""A limit on deliveries per second: a token bucket. Pure.

The time is an argument in milliseconds. A time that goes back counts as unchanged.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Final

PER_SECOND_MAX: Final = 1_000_000.0


def rate_of(per_second: float | None) -> "Rate | None":
    """Return the bucket for a subscriber's limit; None if the subscriber does not have a limit."""
    return None if per_second is None else Rate(min(per_second, PER_SECOND_MAX))


@dataclass(slots=True, eq=False)
class Rate:
    """`per_second`: above 0, may be a fraction. `burst`: how many deliveries may begin at once after a pause;
    at least 1, and at least the deliveries of a tenth of a second.
    """

    per_second: float
    burst: float = 0.0
    _tokens: float = field(default=0.0, init=False)
    _at_ms: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        assert 0 < self.per_second <= PER_SECOND_MAX, self.per_second
        # A tenth of a second: timers have a resolution of about a millisecond, so a bucket for a single event
        # could not reach a high rate.
        self.burst = max(self.burst, self.per_second / 10, 1.0)
        self._tokens = self.burst

    def take(self, now_ms: int) -> bool:
        """Take a token for one delivery; False if no token is left."""
        self._fill(now_ms)
        # A sum of many fractions is not exact. Without the tolerance, the token could be missing after
        # `wait_ms`.
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens -= 1.0
        return True

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next token; 0 if a token is left."""
        self._fill(now_ms)
        return max(0, ceil((1.0 - 1e-9 - self._tokens) * 1000 / self.per_second))

    def _fill(self, now_ms: int) -> None:
        if self._at_ms is not None and now_ms > self._at_ms:
            self._tokens = min(self.burst, self._tokens + (now_ms - self._at_ms) * self.per_second / 1000)
        self._at_ms = now_ms if self._at_ms is None else max(now_ms, self._at_ms)
