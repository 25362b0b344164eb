"""A target that never comes back and uses no time while it does not: what a lock in C looks like."""

import time
from typing import Final

from fuzz.target import Target


def run(_data: bytes) -> int:
    """Wait for what never comes."""
    time.sleep(3600)
    return 0


TARGET: Final = Target("tests.fuzz.hanging", run, seconds_max=0.2, guided=False)
