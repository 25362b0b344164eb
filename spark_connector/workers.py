"""[io] What is done once in each of Spark's worker processes.

PySpark's daemon has Python look for garbage in all there is after every task: 60 ms of CPU for some 90,000 objects, nearly all of them
functions and classes of pyspark, pandas and pyarrow that stay for good. Three times what a small task costs otherwise.
"""

import gc
import os
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_settled: set[int] = set()


def settle() -> None:
    """Take what this process has loaded by now out of the collector's sight, the first time that it is called here.

    To be called when a task has done its work, so that all it needs is loaded. Garbage of later tasks is found as before.
    In processes that are not of PySpark's daemon nothing is done.
    """
    if getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) != _DAEMON:
        return
    pid = os.getpid()  # a fork has its parent's variables
    if pid not in _settled:
        _settled.add(pid)
        gc.freeze()
