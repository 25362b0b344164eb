"""Python's search for garbage in a gateway, in a process of its own."""

import subprocess
import sys

_PROGRAM = """
import gc
from knative_gateway.running import garbage

examined = []

def searched(phase, facts):
    if phase == "start" and facts["generation"] == 0:
        examined.append(gc.get_count()[0])

garbage.search_seldom()
gc.callbacks.append(searched)
waiting = [[] for _ in range(30_000)]  # requests, of clients that send many ahead
print(len(examined), max(examined))
"""


def test_a_search_examines_few_objects_though_many_are_in_use() -> None:
    """A search of 20,000 objects stopped all clients for 10 to 19 ms."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    searches, most = map(int, done.stdout.split())
    assert searches >= 10
    assert most <= 2_500
