"""The CPU time of other programs, with a program that uses some."""

import os
import subprocess
import sys
import time

from attack.load import Load, attacker_s
from bench.process import usage

SECONDS = 1.0
TICK_S = 0.05
"""Linux counts in ticks of 10 ms, and reads no two figures at the same time."""


def test_the_time_of_a_program_that_takes_no_part_is_foreign_and_that_of_a_part_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            began, before = time.monotonic(), usage(other.pid).cpu_seconds
            without = Load(attacker_s)
            with_it = Load(lambda: attacker_s() + usage(other.pid).cpu_seconds)
            while usage(other.pid).cpu_seconds < before + SECONDS:
                time.sleep(0.05)
            own, foreign = with_it.share(), without.share()
            elapsed_s = (time.monotonic() - began) * (os.cpu_count() or 1)
        finally:
            other.kill()
    assert foreign * elapsed_s >= SECONDS - TICK_S
    assert (foreign - own) * elapsed_s >= SECONDS - TICK_S
