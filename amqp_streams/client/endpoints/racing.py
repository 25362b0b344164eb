"""Tries several things in order until one succeeds, and does not wait for one that is silent.

Laws: the next one begins when one has failed, or after `stagger_s` of silence; those before it continue. All
together take at most `limit_s`. Nothing that was begun is left behind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

STAGGER_S_MAX: Final = 2.5
"""The longest silence of one before the next begins."""
STAGGER_S_MIN: Final = 0.1

C = TypeVar("C")
T = TypeVar("T")


def stagger_s(count: int, limit_s: float) -> float:
    """Return how long to wait for one of `count` before the next begins.

    Each gets a share of `limit_s`, and the last one at least twice as much.
    """
    return max(STAGGER_S_MIN, min(STAGGER_S_MAX, limit_s / (count + 1)))


@dataclass(slots=True)
class Race(Generic[C, T]):
    """The result. `winner` None: all failed, or nothing answered in time.

    `failures`: those that failed, in this order. `silent`: those that had at least their share of the time
    and did not answer, with the seconds that they had. `unbegun`: those for which no time was left.
    """

    winner: T | None = None
    failures: dict[C, Exception] = field(default_factory=dict)
    silent: dict[C, float] = field(default_factory=dict)
    unbegun: list[C] = field(default_factory=list)


async def race(
    choices: Sequence[C],
    begin: Callable[[C], Awaitable[T]],
    *,
    limit_s: float,
    discard: Callable[[T], None],
) -> Race[C, T]:
    """Call `begin` for the choices until one call returns a result.

    `discard` gets the result of one that succeeded at the same moment as the winner.
    """
    loop = asyncio.get_running_loop()
    share_s, ends_s = stagger_s(len(choices), limit_s), loop.time() + limit_s
    result: Race[C, T] = Race(unbegun=list(choices))
    running: dict[asyncio.Future[T], tuple[C, float]] = {}
    winner: asyncio.Future[T] | None = None
    try:
        while winner is None and (running or result.unbegun) and (now_s := loop.time()) < ends_s:
            if result.unbegun:
                choice = result.unbegun.pop(0)
                running[asyncio.ensure_future(begin(choice))] = choice, now_s
            wait_s = min(share_s, ends_s - now_s) if result.unbegun else ends_s - now_s
            done, _ = await asyncio.wait(running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is None:
                    winner = winner or task
                else:
                    _failed(result, running.pop(task)[0], task)
    except BaseException:
        winner = None  # the caller has given up
        raise
    finally:
        await _end(result, running, winner, discard, share_s)
    result.winner = None if winner is None else winner.result()
    return result


async def _end(
    result: Race[C, T],
    running: dict[asyncio.Future[T], tuple[C, float]],
    winner: asyncio.Future[T] | None,
    discard: Callable[[T], None],
    share_s: float,
) -> None:
    """End what still runs, and discard each result but that of the winner."""
    now_s = asyncio.get_running_loop().time()
    for task in running:
        task.cancel()
    try:
        await asyncio.gather(*running, return_exceptions=True)
    except asyncio.CancelledError:
        winner = None
        raise
    finally:
        for task, (choice, began_s) in running.items():
            if not task.done() or task.cancelled():
                # One that began a moment before the winner answered may be as good.
                if winner is None or now_s - began_s >= share_s:
                    result.silent[choice] = now_s - began_s
            elif task.exception() is not None:
                _failed(result, choice, task)
            elif task is not winner:
                discard(task.result())


def _failed(result: Race[C, T], choice: C, task: asyncio.Future[T]) -> None:
    error = task.exception()
    # KeyboardInterrupt and the like end the whole race.
    if not isinstance(error, Exception):
        assert error is not None
        raise error
    result.failures[choice] = error
