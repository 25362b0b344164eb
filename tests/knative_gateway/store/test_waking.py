"""Tasks that wait are woken once, watches of clients in turns."""

import asyncio
import itertools

from knative_gateway.store.waking import WOKEN_A_TURN, Waking

MANY = 10 * WOKEN_A_TURN + 3


class World:
    """Tasks that count how often they were woken."""

    def __init__(self) -> None:
        self.waking = Waking()
        self.woken: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, name: str, *, in_turns: bool, times: int = 1) -> None:
        async def wait() -> None:
            for _ in range(times):
                await self.waking.wait(in_turns=in_turns)
                self.woken.append(name)

        self.tasks.append(asyncio.create_task(wait()))
        await asyncio.sleep(0)


async def test_watches_of_clients_are_woken_a_few_in_each_iteration_and_the_others_at_once() -> None:
    world = World()
    for number in range(MANY):
        await world.begin(str(number), in_turns=True)
    await world.begin("controller", in_turns=False)
    world.waking.wake()
    seen = [0]
    while len(world.woken) < MANY + 1:
        await asyncio.sleep(0)
        seen.append(len(world.woken))
    assert "controller" in world.woken[: WOKEN_A_TURN + 1]
    assert [each for each in world.woken if each != "controller"] == [str(number) for number in range(MANY)]
    assert max(b - a for a, b in itertools.pairwise(seen)) <= WOKEN_A_TURN + 1


async def test_one_wake_wakes_each_once_and_a_second_one_wakes_those_that_wait_again() -> None:
    world = World()
    for number in range(MANY):
        await world.begin(str(number), in_turns=True, times=2)
    world.waking.wake()
    for _ in range(3 * MANY):
        await asyncio.sleep(0)
    assert len(world.woken) == MANY
    world.waking.wake()
    world.waking.wake()
    await asyncio.gather(*world.tasks)
    assert sorted(world.woken) == sorted(2 * [str(number) for number in range(MANY)])


async def test_those_that_were_cancelled_do_no_harm() -> None:
    world = World()
    for number in range(MANY):
        await world.begin(str(number), in_turns=True)
    for task in world.tasks[::2]:
        task.cancel()
    world.waking.wake()
    await asyncio.gather(*world.tasks, return_exceptions=True)
    assert world.woken == [str(number) for number in range(1, MANY, 2)]


async def test_those_that_leave_take_no_memory_until_the_next_change() -> None:
    """Clients may begin and end watches for hours while nothing changes."""
    world = World()
    for in_turns in (True, False):
        for number in range(MANY):
            await world.begin(str(number), in_turns=in_turns)
    waiting = world.waking._at_once, world.waking._in_turns, world.waking._due
    assert sum(map(len, waiting)) == 2 * MANY
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)
    assert not any(waiting)


async def test_those_that_leave_during_their_turn_take_no_place_in_it() -> None:
    world = World()
    for number in range(MANY):
        await world.begin(str(number), in_turns=True)
    world.waking.wake()
    for task in world.tasks[WOKEN_A_TURN:-1]:
        task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert str(MANY - 1) in world.woken
