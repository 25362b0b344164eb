"""Work on many objects in short steps. [io]

Law: between two steps, the event loop serves others, and a request waits for its next turn.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final, TypeVar

STEP_S: Final = 0.001
"""The length of a step, in seconds."""

T = TypeVar("T")
U = TypeVar("U")


async def for_each(items: Iterable[T], do: Callable[[T], U]) -> list[U]:
    """The results of `do` for all items, in order. A step takes `STEP_S` at most, plus one item."""
    done: list[U] = []
    until = perf_counter() + STEP_S
    for item in items:
        done.append(do(item))
        if perf_counter() > until:
            await asyncio.sleep(0)
            until = perf_counter() + STEP_S
    return done


async def filtered(items: Iterable[T], is_wanted: Callable[[T], bool]) -> list[T]:
    """The items that are wanted, in order."""
    every = list(items)
    wanted = await for_each(every, is_wanted)
    return [item for item, is_one in zip(every, wanted, strict=True) if is_one]
