"""Places that users share."""

import asyncio
from contextlib import AsyncExitStack, suppress

from service_parts.shares import Shares


class Crowd:
    """Tasks that take a place and hold it until they are let go. `order`: who got a place, in order."""

    def __init__(self, places: int) -> None:
        self.shares = Shares(places)
        self.order: list[str] = []
        self.holding: dict[str, list[asyncio.Event]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, key: str, count: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._hold(key)) for _ in range(count)]
        await settle()

    async def let_go(self, key: str) -> None:
        self.holding[key].pop(0).set()
        await settle()

    def held(self, key: str) -> int:
        return len(self.holding.get(key, []))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _hold(self, key: str) -> None:
        async with self.shares.place(key):
            self.order.append(key)
            end = asyncio.Event()
            self.holding.setdefault(key, []).append(end)
            await end.wait()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_holds_at_most_half_of_the_places() -> None:
    crowd = Crowd(8)
    await crowd.come("greedy", 256)
    assert crowd.held("greedy") == 4
    await crowd.come("other", 2)
    assert crowd.held("other") == 2
    await crowd.end()


async def test_a_place_goes_to_the_one_that_holds_the_fewest() -> None:
    crowd = Crowd(8)
    for key in ("a", "b"):
        await crowd.come(key, 100)
    assert (crowd.held("a"), crowd.held("b")) == (4, 4)
    await crowd.come("late", 3)
    assert crowd.held("late") == 0
    for _ in range(3):
        await crowd.let_go("a")
    assert (crowd.held("a"), crowd.held("b"), crowd.held("late")) == (2, 4, 2)
    await crowd.let_go("b")
    assert (crowd.held("a"), crowd.held("b"), crowd.held("late")) == (2, 3, 3)
    await crowd.end()


async def test_equal_ones_take_turns() -> None:
    crowd = Crowd(1)
    await crowd.come("a", 3)
    await crowd.come("b", 3)
    for _ in range(5):
        await crowd.let_go(crowd.order[-1])
    assert crowd.order == ["a", "b", "a", "b", "a", "b"]
    await crowd.end()


async def test_who_leaves_gives_its_place_or_its_turn_back() -> None:
    crowd = Crowd(2)
    await crowd.come("a", 3)
    await crowd.come("b", 3)
    await crowd.end()
    async with AsyncExitStack() as stack:
        for key in ("c", "d"):
            await asyncio.wait_for(stack.enter_async_context(crowd.shares.place(key)), 60)
    assert not crowd.shares._waiting
    assert not crowd.shares._held


async def test_a_turn_that_comes_while_its_owner_is_cancelled_is_not_lost() -> None:
    shares = Shares(1)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(shares.place("a"))
        waiting = asyncio.create_task(stack.enter_async_context(shares.place("b")))
        await settle()
        await stack.aclose()  # gives the place to b ...
        waiting.cancel()  # ... which is cancelled before it runs
        with suppress(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(60), shares.place("c"):
        pass


async def test_a_place_is_free_if_nobody_need_wait_for_it() -> None:
    crowd = Crowd(4)
    assert crowd.shares.is_free("a")
    await crowd.come("a", 2)
    assert not crowd.shares.is_free("a"), "a user holds at most half"
    assert crowd.shares.is_free("b")
    await crowd.come("b")
    await crowd.come("c")
    assert not crowd.shares.is_free("b")
    await crowd.let_go("c")
    assert crowd.shares.is_free("b")
    await crowd.end()
    assert crowd.shares.is_free("a")
