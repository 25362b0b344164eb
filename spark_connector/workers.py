"""[io] Work that is done once in each of Spark's worker processes.

PySpark's daemon runs a full garbage collection after every task. It takes 60 ms of CPU for about 90,000
objects, which is three times the cost of a small task. Nearly all of these objects are functions and classes
of pyspark, pandas and pyarrow, which are never freed.
"""

import gc
import os
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_settled: set[int] = set()


def settle() -> None:
    """Exclude all objects that exist now from garbage collection.

    Only the first call in a process has an effect.

    Call it at the end of a task, when everything that tasks need is loaded. Garbage of later tasks is still
    collected. In a process that PySpark's daemon did not start, the call does nothing.
    """
    # Elsewhere the process belongs to the user's program, whose objects must stay under collection.
    if getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) != _DAEMON:
        return
    pid = os.getpid()  # a forked process inherits `_settled` from its parent
    if pid not in _settled:
        _settled.add(pid)
        gc.freeze()
