"""Errors as the users of Spark see them."""

import pickle
import traceback
from collections.abc import Iterator

import pytest

from spark_connector import reason
from spark_connector.errors import ConnectorError, OptionError
from spark_connector.reporting import shortly, shortly_each


def deep(levels: int) -> int:
    if levels:
        return deep(levels - 1)
    message = "unknown option 'x'"
    raise OptionError(message, "option 'x'", "See the table")


@shortly
def called(levels: int) -> int:
    return deep(levels)


@shortly_each
def read(levels: int) -> Iterator[int]:
    yield 1
    try:
        deep(levels)
    except OptionError as error:
        raise ConnectorError("while reading") from error  # the text is what is looked for


@shortly
def broken() -> int:
    return len(deep.__name__) // 0


def frames(error: BaseException) -> int:
    """The lines of the traceback from the decorated function on: what PySpark's text has."""
    return sum("spark_connector" in frame.filename for frame in traceback.extract_tb(error.__traceback__)) - 1


@pytest.mark.parametrize("levels", [0, 30])
def test_our_error_has_one_frame_however_deep_it_was_raised(levels: int) -> None:
    with pytest.raises(OptionError, match="unknown option 'x'") as raised:
        called(levels)
    assert frames(raised.value) == 1
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_what_an_iterator_raises_has_one_frame_and_no_cause() -> None:
    items = read(5)
    assert next(items) == 1
    with pytest.raises(ConnectorError, match="while reading") as raised:
        next(items)
    assert frames(raised.value) == 1
    assert raised.value.__suppress_context__
    assert raised.value.__cause__ is None


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        broken()
    assert frames(raised.value) == 2


OURS = """[PYTHON_DATA_SOURCE_ERROR] Failed to create: Traceback (most recent call last):
  File "x.py", line 46, in schema
spark_connector.errors.OptionError: unknown option 'y'. Did you mean 'x'?
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (OURS, "unknown option 'y'. Did you mean 'x'?"),
        ("[UNSUPPORTED_MODE] Use Append.\nmore", "[UNSUPPORTED_MODE] Use Append."),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_our_sentence_or_the_first_line(text: str, found: str) -> None:
    assert reason(RuntimeError(text)) == found
