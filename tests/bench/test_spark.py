"""The table of `bench.spark`, and which processes it counts as Spark's workers. Measuring itself needs a
quiet machine.
"""

import subprocess
import sys

from bench.spark import READ_AT_LEAST, Row, size_mb, table, wanted, workers


def test_the_table_says_what_was_wanted_and_whether_it_is_met() -> None:
    lines = table(
        [
            Row("read the log", 300_000.4, "rows/s", "", ">= 250,000", True),
            Row("a", 1, "ms", "", "<= 0", False),
            Row("b", 2, "ms"),
        ]
    )
    _, met, missed, plain = lines.splitlines()
    assert "300,000 rows/s" in met
    assert met.endswith("yes")
    assert missed.endswith("NO")
    assert plain.split() == ["b", "2", "ms"]


def test_only_reading_the_log_with_all_columns_is_judged() -> None:
    assert wanted("the log", READ_AT_LEAST) == (f">= {READ_AT_LEAST:,}", True)
    assert wanted("the log", READ_AT_LEAST - 1)[1] is False
    assert wanted("JSON files", 1) == ("", None)


def test_workers_are_the_python_processes_of_spark_below_a_process() -> None:
    """Two generations down, as Spark has them; others are not counted."""
    worker = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()',"
        " 'pyspark.worker'])"
    )
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        assert started.stdout.readline() == b"1\n"
        found = list(workers(started.pid))
        assert len(found) == 2  # the first has the second's command in its own
        assert all(size_mb(pid) > 1 for pid in found)
        started.stdin.close()
    assert size_mb(found[0]) == 0
