"""A blocking method is the asyncio method, waited for."""

import inspect
from collections.abc import Iterator

import pytest

from amqp_streams.client import aio, blocking
from amqp_streams.client.blocking.background import Background
from amqp_streams.client.blocking.wrapper import Wrapper, makes, waits


class Inner:
    """Returns its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def plus(self, more: int, *, times: int = 2) -> int:
        """Add two numbers."""
        if more < 0:
            raise ValueError(more)
        return self.number + more * times

    def another(self, number: int = 7) -> "Inner":
        """Create another object."""
        return Inner(number)


class Outer(Wrapper[Inner]):
    plus = waits(Inner.plus)


class Maker(Wrapper[Inner]):
    another = makes(Inner.another, Outer)


@pytest.fixture
def thread() -> Iterator[Background]:
    made = Background()
    yield made
    made.stop()


def test_a_call_gives_the_result_with_the_defaults_of_the_asyncio_method(thread: Background) -> None:
    assert Outer(thread, Inner(1)).plus(10) == 21
    assert Outer(thread, Inner(1)).plus(10, times=3) == 31


def test_a_call_raises_what_the_asyncio_method_raises(thread: Background) -> None:
    with pytest.raises(ValueError, match="-1"):
        Outer(thread, Inner(1)).plus(-1)


def test_created_objects_are_blocking_too(thread: Background) -> None:
    assert Maker(thread, Inner(1)).another().plus(1) == 9


@pytest.mark.parametrize(
    ("shown", "inner"),
    [
        (blocking.Client, aio.Client),
        (blocking.Producer, aio.Producer),
        (blocking.Consumer, aio.Consumer),
        (blocking.GroupConsumer, aio.GroupConsumer),
        (blocking.RangeReader, aio.RangeReader),
        (blocking.Management, aio.Management),
    ],
)
def test_every_call_of_the_asyncio_client_is_there_with_its_parameters(shown: type, inner: type) -> None:
    """All but those that the blocking client cannot have (`post` returns another kind of pending result) or
    that are internal.
    """
    own = {"post", "post_entries", "put_back", "settle", "open", "close"}
    calls = {
        name: method
        for name, method in vars(inner).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    assert not {name for name in calls if name not in own and not hasattr(shown, name)}
    for name in calls.keys() - own:
        parameters = list(inspect.signature(getattr(shown, name)).parameters.values())[1:]
        assert parameters == list(inspect.signature(calls[name]).parameters.values())[1:]
        assert getattr(shown, name).__doc__ == calls[name].__doc__
