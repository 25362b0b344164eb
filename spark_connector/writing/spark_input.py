"""Whether a task got all of its rows, or the input ended early. [io]

If the producer of the rows fails in the same task (a source, or a UDF in front of the sink), Spark closes the
input. To `write` this looks like the end of the rows. The worker notices only later that Spark's end marker
is missing, and until then the sink would have written an incomplete task as if it were complete. The sink
therefore checks the input itself. tests/spark_connector/test_sink_replays.py shows that this works.
"""

import sys
from io import BufferedReader
from types import FrameType

_ENTRY = ("pyspark/worker.py", "main", "infile")
"""File, function and variable in which pyspark's worker (4.2 and 4.3) keeps its input from Spark."""


def input_is_whole() -> bool:
    """Whether Spark sends more bytes after the last row. Waits for them.

    True also if the input cannot be found.
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
