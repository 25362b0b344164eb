"""Figures of a measurement: rates and latency percentiles. Pure: times are arguments."""

from array import array
from dataclasses import dataclass, field
from math import ceil
from typing import Final

PERCENTILES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
_MEGABYTE: Final = 1_000_000


@dataclass(slots=True)
class Latencies:
    """All measured latencies, in seconds; percentiles are exact."""

    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def record(self, seconds: float) -> None:
        """Add a latency."""
        self.seconds.append(seconds)

    def summary(self) -> dict[str, float]:
        """Milliseconds by the name of the percentile (nearest rank); empty if nothing was measured."""
        ordered = sorted(self.seconds)
        return (
            {name: ordered[max(0, ceil(share * len(ordered)) - 1)] * 1000 for name, share in PERCENTILES}
            if ordered
            else {}
        )


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement."""

    what: str
    events: int
    bytes: int
    seconds: float
    refused: int
    latency_ms: dict[str, float]
    samples: int

    def as_json(self) -> dict[str, object]:
        """The result with names that programs rely on."""
        return {
            "what": self.what,
            "events": self.events,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 6),
            "refused": self.refused,
            "events_per_second": round(self.events_per_second, 1),
            "megabytes_per_second": round(self.megabytes_per_second, 3),
            "latency_ms": {name: round(ms, 3) for name, ms in self.latency_ms.items()},
            "latency_samples": self.samples,
        }

    @property
    def events_per_second(self) -> float:
        """Over the measured time."""
        return self.events / self.seconds if self.seconds > 0 else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """Millions of bytes of bodies (consume: of messages)."""
        return self.bytes / _MEGABYTE / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Even spacing: event i (from 0) is due `i / rate` seconds after the start.

    Without a rate, all are due at once.
    """

    rate: float | None

    def due(self, elapsed_s: float) -> int | None:
        """The number of events that are due by now; None: no limit."""
        return None if self.rate is None else int(elapsed_s * self.rate) + 1

    def due_at(self, index: int) -> float:
        """Seconds from the start at which event `index` is due."""
        return 0.0 if self.rate is None else index / self.rate
