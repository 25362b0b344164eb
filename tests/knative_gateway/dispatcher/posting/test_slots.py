"""Which subscribers may open a connection while others have many."""

import asyncio

import pytest

from knative_gateway.dispatcher.posting.slots import Slots


async def test_one_that_never_answers_leaves_half_to_the_others() -> None:
    slots = Slots(10)
    for _ in range(5):
        await slots.acquire("hog")
    waiting = asyncio.create_task(slots.acquire("hog"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await slots.acquire("healthy")
    assert (slots.used, slots.waiting) == (6, 1)
    waiting.cancel()


async def test_many_that_never_answer_leave_a_share_to_the_next_one() -> None:
    slots = Slots(100)
    waiting = [asyncio.create_task(slots.acquire(f"hog{number % 9}")) for number in range(900)]
    await asyncio.sleep(0)
    assert slots.used == 90
    await asyncio.wait_for(slots.acquire("healthy"), 60)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert slots.waiting == 0


async def test_free_slots_go_to_waiting_owners_in_turns() -> None:
    slots = Slots(2)
    await slots.acquire("a")
    await asyncio.wait_for(_take_rest(slots), 60)
    served: list[str] = []

    async def use(owner: str) -> None:
        await slots.acquire(owner)
        served.append(owner)
        slots.release(owner)

    waiting = [asyncio.create_task(use(owner)) for owner in ("a", "a", "b")]
    await asyncio.sleep(0)
    slots.release("rest")
    slots.release("a")
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert sorted(served) == ["a", "a", "b"]
    assert (slots.used, slots.waiting) == (0, 0)


async def test_a_request_that_stops_waiting_keeps_no_slot_and_no_turn() -> None:
    slots = Slots(1)
    await slots.acquire("a")
    first, second = asyncio.create_task(slots.acquire("b")), asyncio.create_task(slots.acquire("c"))
    await asyncio.sleep(0)
    slots.release("a")
    first.cancel()  # it was its turn
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, 60)
    assert slots.used == 1


async def _take_rest(slots: Slots) -> None:
    slots.take("rest")
