"""A target that never returns and uses no CPU time, like a lock in C."""

import time
from typing import Final

from fuzz.target import Target


def run(_data: bytes) -> int:
    """Wait without end."""
    time.sleep(3600)
    return 0


TARGET: Final = Target("tests.fuzz.hanging", run, seconds_max=0.2, guided=False)
