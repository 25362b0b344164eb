"""Many requests at once leave the event loop to others between two of them."""

import asyncio
import itertools
import time

import pytest

from knative_gateway.http import turns
from knative_gateway.http.turns import Turns

REQUESTS = 30


async def test_a_request_alone_begins_at_once() -> None:
    """Without an iteration of the loop: the first step of the coroutine ends it."""
    taking = Turns().turn()
    try:
        taking.send(None)
    except StopIteration:
        return
    taking.close()
    raise AssertionError


async def test_between_two_requests_everything_else_of_the_loop_has_its_turn() -> None:
    """Work that needs as many iterations as an event ends after as many requests, and not after all
    of them.
    """
    shared, begun = Turns(), 0

    async def request() -> None:
        nonlocal begun
        await shared.turn()
        begun += 1

    asking = [asyncio.create_task(request()) for _ in range(REQUESTS)]
    at_iteration = []
    while begun < REQUESTS:
        await asyncio.sleep(0)
        at_iteration.append(begun)
    await asyncio.gather(*asking)
    assert max(now - before for before, now in itertools.pairwise(at_iteration)) == 1


async def test_requests_begin_in_the_order_in_which_they_came() -> None:
    shared, order = Turns(), []

    async def request(number: int) -> None:
        await shared.turn()
        order.append(number)

    await asyncio.gather(*(request(number) for number in range(REQUESTS)))
    assert order == list(range(REQUESTS))


async def test_after_a_long_request_others_get_as_much_time() -> None:
    """Two requests that take 20 ms each do not follow each other."""
    shared = Turns()
    ended: list[float] = []
    began: list[float] = []

    async def request() -> None:
        await shared.turn()
        began.append(time.perf_counter())
        time.sleep(0.02)  # noqa: ASYNC251  the request keeps the loop busy
        ended.append(time.perf_counter())

    await asyncio.gather(*(request() for _ in range(3)))
    pauses = [later - earlier for earlier, later in zip(ended, began[1:], strict=False)]
    assert min(pauses) >= 0.019, pauses


async def test_the_pause_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that reports 1,000 seconds for each request."""
    clock = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(turns, "clock", lambda: float(next(clock)))
    shared = Turns()
    async with asyncio.timeout(10):
        await asyncio.gather(shared.turn(), shared.turn(), shared.turn())


async def test_a_client_that_has_left_delays_no_other_client() -> None:
    shared = Turns()
    first, gone, waits = (asyncio.create_task(shared.turn()) for _ in range(3))
    await asyncio.sleep(0)
    assert first.done()
    gone.cancel()
    async with asyncio.timeout(10):
        await waits
    assert gone.cancelled()


async def test_each_step_of_a_request_takes_a_turn() -> None:
    """The heaviest steps come after the first one: to read a body of 3 MB, and to patch an object with it."""
    shared, steps = Turns(), 0

    async def request() -> None:
        nonlocal steps
        for _ in range(4):
            steps += 1
            await asyncio.sleep(0)

    asking = [asyncio.create_task(shared.pace(request(), lambda: False)) for _ in range(REQUESTS)]
    at_iteration = [0]
    while steps < 4 * REQUESTS:
        await asyncio.sleep(0)
        at_iteration.append(steps)
    await asyncio.gather(*asking)
    assert max(now - before for before, now in itertools.pairwise(at_iteration)) == 1


async def test_an_answer_that_has_begun_waits_for_no_turn() -> None:
    shared, steps = Turns(), 0

    async def watch() -> None:
        nonlocal steps
        for _ in range(3):
            await asyncio.sleep(0)
            steps += 1

    watching = [asyncio.create_task(shared.pace(watch(), lambda: True)) for _ in range(REQUESTS)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert steps == 3 * REQUESTS
    await asyncio.gather(*watching)


async def test_a_request_that_is_cancelled_ends_where_it_waits() -> None:
    """In the wait for a turn, and in its own."""
    shared, ended = Turns(), []

    async def request(name: str) -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    # On a busy machine, the first step takes so long that the others pause: repeat until each has begun.
    async with asyncio.timeout(60):
        while set(ended) != set("abc"):
            for iterations in range(1, 20):
                asking = [asyncio.create_task(shared.pace(request(name), lambda: False)) for name in "abc"]
                for _ in range(iterations):
                    await asyncio.sleep(0)
                for each in asking:
                    each.cancel()
                answers = await asyncio.gather(*asking, return_exceptions=True)
                assert {type(each) for each in answers} == {asyncio.CancelledError}
    async with asyncio.timeout(10):
        await shared.turn()


async def test_errors_and_time_limits_of_a_request_are_as_without_turns() -> None:
    shared, seen = Turns(), []

    async def request() -> None:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append("late")
        await asyncio.sleep(0)
        raise OSError

    answers = await asyncio.gather(
        *(shared.pace(request(), lambda: False) for _ in range(3)), return_exceptions=True
    )
    assert seen == ["late"] * 3
    assert {type(each) for each in answers} == {OSError}
