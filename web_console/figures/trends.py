"""A figure over time, since it was first shown, in a fixed number of values. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

VALUES_MAX: Final = 120
"""The most values of a trend. With more, every second one is dropped, and half as many are added."""


@dataclass(slots=True)
class Trend:
    """The values of a figure, oldest first, at equal distances in time."""

    values: list[float] = field(default_factory=list)
    _every: int = 1
    _passed: int = 0

    def add(self, value: float) -> None:
        """Add the present value."""
        self._passed += 1
        if self._passed < self._every and self.values:
            return
        self._passed = 0
        self.values.append(value)
        if len(self.values) > VALUES_MAX:
            # The first and the latest value stay: the number of values is odd here.
            self.values = self.values[::2]
            self._every *= 2


def trend_points(values: Sequence[float], *, width: int, height: int) -> str:
    """Return the points of an SVG line over the whole width, from 0 at the bottom to the highest value."""
    top = max(values, default=0.0) or 1.0
    step = width / max(1, len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{height - 1 - (height - 2) * value / top:.1f}"
        for index, value in enumerate(values)
    )
