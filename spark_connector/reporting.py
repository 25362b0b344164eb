"""How errors reach the users of Spark: our sentence with as few lines around it as PySpark allows. Pure.

PySpark puts the traceback of an error into the message of its own error. `shortly` leaves one frame of the
traceback of a `ConnectorError`: the others are of this package, and the sentence says what is wrong. All
other errors keep their tracebacks. `reason` finds the sentence in the error that PySpark raises.
"""

import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from spark_connector.errors import ConnectorError

P = ParamSpec("P")
T = TypeVar("T")
_SENTENCE: Final = re.compile(rf"^{re.escape(ConnectorError.__module__)}\.\w+: (.+?)$", re.MULTILINE)


def shortly(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that Spark calls: its `ConnectorError` has one frame."""

    @wraps(call)
    def shown(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except ConnectorError as error:
            raise error.with_traceback(None) from None

    return shown


def shortly_each(call: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Decorate a function whose iterator Spark reads, as `shortly` does."""

    @wraps(call)
    def shown(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from call(*args, **kwargs)
        except ConnectorError as error:
            raise error.with_traceback(None) from None

    return shown


def reason(error: BaseException) -> str:
    """Return the sentence of this package in an error of Spark, or the first line of another error.

    A notebook prints it instead of the traceback:

        try:
            frame.count()
        except Exception as error:
            print(reason(error))
    """
    text = str(error)
    found = _SENTENCE.findall(text)
    return found[-1] if found else (text.strip().splitlines() or [type(error).__name__])[0]
