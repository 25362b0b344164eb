"""The CPUs during an attack: the time of other programs, and the priority of the attacker."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from attack.load import PRIORITY_LOWEST, Load, attacker_s, give_way
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


def test_an_attacker_gives_way_with_what_it_starts_and_the_rest_of_the_process_does_not() -> None:
    print_own = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with ThreadPoolExecutor(1, initializer=give_way) as attacker:
        started = attacker.submit(subprocess.check_output, [sys.executable, "-c", print_own]).result()
    assert int(started) == PRIORITY_LOWEST
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
