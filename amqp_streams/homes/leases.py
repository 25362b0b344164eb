"""Leases: durations that one machine promises and another machine counts. Pure.

All times are readings of CLOCK_BOOTTIME in milliseconds. No two machines compare their readings: only
durations travel.

Law: if a lease of `lease_ms` began on one machine at or before the moment at which another machine begins to
wait for `outlasting_ms`, it is over when the wait is over, as long as the rates of the two clocks differ by
less than one in `RATE`.
"""

from dataclasses import dataclass
from typing import Final

RATE: Final = 50
"""The clocks of two machines differ by less than 2 %. A clock that NTP corrects differs by at most 0.1 %; the
rest is for the readings, which are whole milliseconds.
"""


@dataclass(frozen=True, slots=True)
class Times:
    """The durations of homes."""

    lease_ms: int = 3000
    """How long a home may decide after the start of its last successful transaction."""
    renew_ms: int = 1000
    """How often a node reports its links, and a home renews its lease."""
    report_gap_ms: int = 20
    """The shortest time between two reports of a node to one home."""
    gather_ms: int = 150
    """How long a new home waits at least for the reports of nodes before it assigns partitions."""
    positions_ms: int = 1000
    """How often positions that no receiver waits for are written."""
    drain_ms: int = 800
    """How long a home that is asked to leave waits for the nodes that have grants."""
    retry_ms: int = 500
    """How long a home waits before it fences again."""
    unknown_ms: int = 5000
    """How long a link waits whose log the home does not know: nodes look for new logs each two seconds."""
    paused_ms: int = 30_000
    """How long a link may be paused, or unanswered, before it is closed."""
    sweep_ms: int = 60_000
    """How often a home looks for states of logs that do not exist."""
    gone_ms: int = 600_000
    """How long all topics must be described without a log before its states are removed."""

    @property
    def outlasting_ms(self) -> int:
        """How long to wait on one machine, so that a lease that another machine counts is over."""
        return outlasting(self.lease_ms)


def outlasting(ms: int) -> int:
    """How long to wait on one machine, so that `ms` of another machine are over."""
    return ms + ms // RATE + 2
