"""Rates from what was read of a log at different times. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

SAMPLES_MAX: Final = 120
"""How many rates are kept for plots, at most one for each second: those of two minutes."""
_WINDOW_S: Final = 3.0
"""The time over which a rate is measured, so that it does not jump between two reads."""


@dataclass(slots=True)
class History:
    """The counts of one thing that only grows, for example the events that a log has received.

    `window_s`: the time over which the rate is measured, at most that of 16 counts.
    """

    window_s: float = _WINDOW_S
    counts: "deque[tuple[float, int]]" = field(default_factory=lambda: deque(maxlen=16))
    rates: "deque[tuple[float, float]]" = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))

    def add(self, now_s: float, count: int) -> None:
        """Add a count. A smaller count than the last one begins again: the log was created again."""
        if self.counts and (count < self.counts[-1][1] or now_s <= self.counts[-1][0]):
            self.counts.clear()
        self.counts.append((now_s, count))
        while len(self.counts) > 2 and now_s - self.counts[1][0] >= self.window_s:
            self.counts.popleft()
        if (rate := self.rate) is not None:
            self.rates.append((now_s, rate))
            while now_s - self.rates[0][0] > SAMPLES_MAX:
                self.rates.popleft()

    @property
    def rate(self) -> float | None:
        """How much the count grows in a second; None before two counts are known."""
        if len(self.counts) < 2:
            return None
        (then_s, before), (now_s, after) = self.counts[0], self.counts[-1]
        return (after - before) / (now_s - then_s)


def skew(sizes: Sequence[int]) -> float | None:
    """Return how many times the mean the largest part has; None if all are empty. 1 means equal parts."""
    total = sum(sizes)
    return max(sizes) * len(sizes) / total if total else None


def points(rates: Sequence[float], *, width: int, height: int) -> str:
    """Return the points of an SVG line: the newest rate at the right edge, the highest at the top."""
    top = max(rates, default=0.0) or 1.0
    step = width / (SAMPLES_MAX - 1)
    left = width - step * (len(rates) - 1)
    return " ".join(
        f"{left + index * step:.1f},{height - 1 - (height - 2) * rate / top:.1f}"
        for index, rate in enumerate(rates)
    )
