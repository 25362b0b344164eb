"""The CPU time of other programs: beside much of it, the times of the neighbour mean nothing."""

import resource
import time
from collections.abc import Callable
from typing import Final

from bench.process import busy_seconds, foreign_share

FOREIGN_MAX: Final = 0.1
"""Share of all CPUs. If other programs use more, no time is judged."""


class Load:
    """What other programs use from now on. `own_s`: CPU seconds so far of what takes part in the attack."""

    def __init__(self, own_s: Callable[[], float]) -> None:
        self._own_s: Final = own_s
        self._own_before: Final = own_s()
        self._busy_before: Final = busy_seconds()
        self._began: Final = time.monotonic()

    def share(self) -> float:
        """Their share of all CPUs."""
        return foreign_share(self._own_s() - self._own_before, self._busy_before, self._began)


def attacker_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    found = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in found)
