"""Held events and their bytes."""

import asyncio

from knative_gateway.delivery import Window
from knative_gateway.dispatcher.arrival import OVERHEAD_BYTES, Arrival
from knative_gateway.dispatcher.subscribers.source import HeldBytes, Source
from knative_gateway.ports import Order, Stored


def arrival(number: int, size: int = 100) -> Arrival:
    return Arrival(Stored(0, f"{number:016d}", 1000 + number, b"x" * size), "")


def source(held: HeldBytes) -> Source:
    return Source(Window(Order.UNORDERED, 10), held)


async def test_one_event_may_always_be_held_and_others_only_below_the_limit() -> None:
    held = HeldBytes(1000)
    assert held.has_room(5000)
    held.add(600)
    assert (held.has_room(400), held.has_room(401)) == (True, False)


async def test_sources_share_the_bytes_of_their_subscriber() -> None:
    held = HeldBytes(1 << 20)
    first, second = source(held), source(held)
    for number in range(3):
        first.hold(f"{number:016d}", arrival(number))
        second.hold(f"{number:016d}", arrival(number, 200))
    entry, _ = first.take()
    first.complete(entry)
    second.take()  # an attempt that is in flight when its source is dropped
    assert held.used == 2 * (100 + OVERHEAD_BYTES) + 3 * (200 + OVERHEAD_BYTES)
    second.drop()
    assert held.used == 2 * (100 + OVERHEAD_BYTES)
    assert (first.oldest_ms, second.oldest_ms) == (1001, None)


async def test_a_completed_event_wakes_all_that_wait_for_room() -> None:
    held = HeldBytes(1 << 20)
    one = source(held)
    one.hold("0", arrival(0))
    waiting = [asyncio.create_task(held.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    one.complete(one.take()[0])
    assert await asyncio.gather(*waiting) == [True, True]
    assert not await held.wait(0.001)
