"""Waiting and waking."""

import asyncio

import pytest

from amqp_streams.client.connection.endpoint import Signal
from amqp_streams.client.errors import TimedOutError


async def test_fire_wakes_all_waiting_callers_and_is_not_remembered() -> None:
    signal = Signal()
    signal.fire()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert signal.has_waiters
    assert not any(task.done() for task in waiting)
    signal.fire()
    await asyncio.gather(*waiting)
    assert not signal.has_waiters


async def test_one_that_is_cancelled_leaves_nothing_behind() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not signal.has_waiters


async def test_a_condition_is_looked_at_whenever_it_fires() -> None:
    signal = Signal()
    seen: list[int] = []
    waiting = asyncio.create_task(signal.wait_until(lambda: len(seen) == 2, None, "two"))
    for number in range(2):
        await asyncio.sleep(0)
        assert not waiting.done()
        seen.append(number)
        signal.fire()
    await waiting
    await signal.wait_until(lambda: True, 0, "nothing")


async def test_a_condition_that_does_not_come_true_in_time_says_what_was_waited_for() -> None:
    signal = Signal()
    with pytest.raises(TimedOutError, match="flushing took longer than 0 s"):
        await signal.wait_until(lambda: False, 0, "flushing")
    assert not signal.has_waiters
