"""Make a blocking method from the asyncio method that it runs.

Same parameters, same defaults, same documentation.

The defaults of every call are therefore written only once, in the asyncio client, and type checkers and
`help()` show the parameters of the asyncio method.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from amqp_streams.client.blocking.background import Background

_Inner = TypeVar("_Inner")
_Made = TypeVar("_Made")
_Shown = TypeVar("_Shown")
_Result = TypeVar("_Result")
_P = ParamSpec("_P")


class Wrapper(Generic[_Inner]):
    """A blocking object that wraps an asyncio object. The asyncio object lives on the client's thread."""

    def __init__(self, thread: Background, inner: _Inner) -> None:
        self._thread: Final = thread
        self._inner: Final = inner

    def __repr__(self) -> str:
        return repr(self._inner)


def waits(
    method: Callable[Concatenate[_Inner, _P], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Wrapper[_Inner], _P], _Result]:
    """Make a method that runs the coroutine `method` on the client's thread and waits for its result."""

    @wraps(method)
    def call(self: Wrapper[_Inner], /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        return self._thread.call(method(self._inner, *args, **kwargs))

    return call


def makes(
    method: Callable[Concatenate[_Inner, _P], _Made], wrapper: Callable[[Background, _Made], _Shown]
) -> Callable[Concatenate[Wrapper[_Inner], _P], _Shown]:
    """Make a method that creates an object and returns the blocking object around it.

    `method` creates the asyncio object.
    """

    @wraps(method)
    def make(self: Wrapper[_Inner], /, *args: _P.args, **kwargs: _P.kwargs) -> _Shown:
        return wrapper(self._thread, method(self._inner, *args, **kwargs))

    return make
