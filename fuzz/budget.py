"""What an input costs: processor time in units of a reference loop, and memory as Python's allocator sees it.

Law: a slow or a busy machine is not a finding. An input that seems too expensive is measured again, each time
beside the reference loop in the same process, and the best of the ratios counts.
"""

import time
import tracemalloc
from collections.abc import Callable
from typing import Final

REFERENCE_S: Final = 0.004
"""Processor time of the reference loop on the machine for which the budgets of the targets are written."""
ROUNDS: Final = 3
_LOOP: Final = 60_000


def reference() -> int:
    """Work whose cost is known: integers, a list and a dictionary, as in the code under test."""
    seen: dict[int, int] = {}
    places = []
    for number in range(_LOOP):
        seen[number & 0xFF] = number
        places.append(number)
    return len(seen) + len(places)


def cost_s(work: Callable[[], object]) -> float:
    """What `work` costs, in seconds of the reference machine; on a faster one, in its own seconds."""
    costs = []
    for _ in range(ROUNDS):
        speed = max(1.0, _seconds(reference) / REFERENCE_S)
        costs.append(_seconds(work) / speed)
    return min(costs)


def peak_bytes(work: Callable[[], object]) -> int:
    """How many bytes of Python objects `work` has in memory at once, beside what was there before."""
    tracemalloc.start(1)
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
