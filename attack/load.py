"""The CPUs that product, neighbour, attacker and other programs share.

If other programs use much CPU time, the times of the neighbour mean nothing. The attacker has a lower
priority than the product and the neighbour, as if it had a machine of its own: the neighbour waits only for
the product.
"""

import os
import resource
import threading
import time
from collections.abc import Callable
from typing import Final

from bench.process import busy_seconds, foreign_share

FOREIGN_MAX: Final = 0.1
"""Share of all CPUs. If other programs use more, no time is judged."""
PRIORITY_LOWEST: Final = 19
"""Of `setpriority(2)`, which Linux applies to one thread."""


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


def give_way() -> None:
    """Give this thread, and what it starts, the lowest priority for the CPUs."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PRIORITY_LOWEST)
