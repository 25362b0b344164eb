"""Long work in short steps, or in a thread. [io]

Law: between two steps, the event loop serves others, and a request waits for its next turn. While the thread
computes, the event loop gets the interpreter after at most `service_parts.event_loop.SWITCH_S`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Final, TypeVar

from knative_gateway.resources.documents.large import is_large, json_pieces
from knative_gateway.resources.refusals import StatusError
from service_parts.shares import Shares

STEP_S: Final = 0.001
"""The length of a step, in seconds."""
WAITING_MAX: Final = 32
"""Requests of one user that wait for the thread, or are in it. Each may take half a second."""
_RETRY_S: Final = 1
# One thread: the event loop would wait for each of several ones in turn.
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="api")

T = TypeVar("T")
U = TypeVar("U")


async def _next_iteration() -> None:
    await asyncio.sleep(0)


async def for_each(
    items: Iterable[T], do: Callable[[T], U], pause: Callable[[], Awaitable[None]] = _next_iteration
) -> list[U]:
    """The results of `do` for all items, in order. A step takes `STEP_S` at most, plus one item.

    `pause`: waits until the next step may begin.
    """
    done: list[U] = []
    until = perf_counter() + STEP_S
    for item in items:
        done.append(do(item))
        if perf_counter() > until:
            await pause()
            until = perf_counter() + STEP_S
    return done


async def filtered(items: Iterable[T], is_wanted: Callable[[T], bool]) -> list[T]:
    """The items that are wanted, in order."""
    every = list(items)
    wanted = await for_each(every, is_wanted)
    return [item for item, is_one in zip(every, wanted, strict=True) if is_one]


async def json_text(document: object, pause: Callable[[], Awaitable[None]] = _next_iteration) -> bytes:
    """The JSON text of a document, in steps if it is large. `pause`: see `for_each`."""
    return b"".join(await for_each(json_pieces(document), str.encode, pause))


async def beside(work: Callable[[], T], *documents: object) -> T:
    """The result of the work on the documents. If one of them is large, a thread does it.

    The thread does one work at a time, in the order of the calls.
    """
    return await in_thread(work) if any(is_large(each) for each in documents) else work()


async def in_thread(work: Callable[[], T]) -> T:
    """The result of the work, which the thread does.

    Raises:
      StatusError: too many requests of the caller wait (429).
      ClientLeftError: the client has left before the work began.
    """
    caller = _caller.get()
    if caller is None:
        return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
    return await caller.callers.served(caller, work)


def caller_key() -> Hashable:
    """Return for whom this task works; None: for the gateway."""
    caller = _caller.get()
    return None if caller is None else caller.key


class ClientLeftError(Exception):
    """The client that asked for the work has left."""


class Callers:
    """Who waits for the thread. Users take turns, so that the requests of one do not delay the others."""

    def __init__(self) -> None:
        self._shares: Final = Shares(1)
        self._waiting: Final[Counter[Hashable]] = Counter()

    def call(self, key: Hashable, has_left: Callable[[], bool]) -> None:
        """Say for whom this task works: a user, and whether its client has left."""
        _caller.set(_Caller(self, key, has_left))

    async def served(self, caller: "_Caller", work: Callable[[], T]) -> T:
        """See `in_thread`."""
        key = caller.key
        if self._waiting[key] >= WAITING_MAX:
            words = f"{WAITING_MAX} requests with large objects wait already, please try again later"
            raise StatusError(429, "TooManyRequests", words, details={"retryAfterSeconds": _RETRY_S})
        self._waiting[key] += 1
        try:
            async with self._shares.place(key):
                if caller.has_left():
                    raise ClientLeftError
                return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]


@dataclass(frozen=True, slots=True)
class _Caller:
    callers: Callers
    key: Hashable
    has_left: Callable[[], bool]


_caller: Final[ContextVar[_Caller | None]] = ContextVar("caller", default=None)
