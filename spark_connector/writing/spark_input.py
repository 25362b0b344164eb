"""Detects whether a task got all of its rows, or its input ended early. [io]

If the producer of the rows fails in the same task (a source, or a UDF before the sink), Spark closes the
input. For `write`, this looks like the end of the rows. The worker notices only later that Spark's end marker
is missing; by then, the sink would have written an incomplete task as if it were complete. So the sink checks
the input itself. tests/spark_connector/test_sink_replays.py shows that this works.
"""

import sys
from io import BufferedReader
from types import FrameType

_ENTRY = ("pyspark/worker.py", "main", "infile")
"""File, function and variable in which PySpark's worker (4.2 and 4.3) holds its input from Spark."""


def input_is_whole() -> bool:
    """Return whether Spark sends more bytes after the last row. Waits for them.

    Returns True if the input cannot be found.
    """
    found = _input(sys._getframe())
    return found is None or found.peek(1) != b""


def _input(frame: FrameType | None) -> BufferedReader | None:
    file, function, variable = _ENTRY
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file):
            found = frame.f_locals.get(variable)
            if isinstance(found, BufferedReader):
                return found
        frame = frame.f_back
    return None
