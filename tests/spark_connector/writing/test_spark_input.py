"""The stream of a task's rows, as pyspark's worker holds it."""

import inspect
from io import BufferedReader, BytesIO
from typing import Any

import pytest
from pyspark import worker

from spark_connector.writing.spark_input import input_is_whole


def ask(infile: object, file: str = "site-packages/pyspark/worker.py", function: str = "main") -> bool:
    """Called from a function of this name in this file that has this variable, and some functions further
    in.
    """
    scope: dict[str, Any] = {"ask": lambda: input_is_whole()}  # noqa: PLW0108 (one more frame in between)
    exec(compile(f"def {function}(infile):\n    return ask()\n", file, "exec"), scope)
    found: bool = scope[function](infile)
    return found


@pytest.mark.parametrize(("rest", "is_whole"), [(b"\xff\xff\xff\xfc", True), (b"", False)])
def test_a_stream_is_complete_when_spark_continues_the_conversation(rest: bytes, is_whole: bool) -> None:
    stream = BufferedReader(BytesIO(rest))
    assert ask(stream) is is_whole
    assert stream.read() == rest, "Spark's word is left for its worker"


def test_without_the_worker_rows_are_taken_for_whole() -> None:
    assert input_is_whole()
    assert ask(BufferedReader(BytesIO()), file="elsewhere.py")
    assert ask("no stream")


def test_this_release_of_pyspark_has_the_stream_where_it_is_looked_for() -> None:
    """Otherwise a task whose rows end early would write a part of its last chunk, and write it again when it
    is repeated.
    """
    main = inspect.unwrap(worker.main)
    assert "infile" in main.__code__.co_varnames
    assert main.__code__.co_filename.endswith("pyspark/worker.py")
