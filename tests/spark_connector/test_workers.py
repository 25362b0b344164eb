"""The work that a worker process does once."""

import subprocess
import sys

_LOADED = """
import gc, sys
from types import SimpleNamespace
import pyarrow, spark_connector.source
from spark_connector.workers import settle
settle()
assert gc.get_freeze_count() == 0
sys.modules["__main__"].__spec__ = SimpleNamespace(name="pyspark.daemon")
settle()
kept = gc.get_freeze_count()
cycle = type("Cycle", (), {})()
cycle.itself = cycle
settle()
assert gc.get_freeze_count() == kept
del cycle
print(kept, len(gc.get_objects()), gc.collect() > 0)
"""


def test_modules_loaded_once_in_spark_s_workers_are_frozen_for_the_collector_and_garbage_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True, timeout=60
    )
    kept, seen, collected = done.stdout.split()
    assert int(kept) > 10_000
    assert int(seen) < 1_000
    assert collected == "True"
