"""Many requests at once leave the event loop to others between two of them."""

import asyncio
import itertools
import time
from collections.abc import Callable

import pytest

from knative_gateway.http import turns
from knative_gateway.http.turns import LONG_S, OTHERS_S_MAX, Turns

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


class Hands:
    """A clock of the event loop, and one of the other threads, that tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.others = 0.0
        self.pauses: list[float] = []
        monkeypatch.setattr(turns, "clock", lambda: self.now)
        loop = asyncio.get_running_loop()

        def call_later(delay: float, callback: Callable[[], None]) -> None:
            self.pauses.append(delay)
            loop.call_soon(callback)

        monkeypatch.setattr(loop, "call_later", call_later)
        self.turns = Turns(lambda: self.others)

    async def requests(self, count: int, *, step_s: float = 0.0, others_s: float = 0.0) -> None:
        async def request() -> None:
            await self.turns.turn()
            self.now += step_s
            self.others += others_s

        await asyncio.gather(*(request() for _ in range(count)))
        for _ in range(3):
            await asyncio.sleep(0)


async def test_short_steps_of_many_requests_leave_half_of_the_time_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hands = Hands(monkeypatch)
    await hands.requests(1000, step_s=LONG_S / 5)
    assert sum(hands.pauses) == pytest.approx(hands.now, rel=0.02)
    assert min(hands.pauses) > LONG_S


async def test_what_other_threads_compute_for_requests_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read the database, and keep the interpreter from the event loop."""
    hands = Hands(monkeypatch)
    await hands.requests(1000, others_s=LONG_S / 5)
    assert sum(hands.pauses) == pytest.approx(hands.others, rel=0.02)


async def test_one_large_request_in_a_thread_does_not_delay_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hands = Hands(monkeypatch)
    await hands.requests(10, others_s=5.0)
    assert hands.pauses == [pytest.approx(OTHERS_S_MAX)] * 10


async def test_what_others_computed_without_requests_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands(monkeypatch)
    for _ in range(10):
        hands.others += 1.0
        await hands.requests(1)
    assert hands.pauses == []


async def test_the_pause_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that reports 1,000 seconds for each request."""
    clock = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(turns, "clock", lambda: float(next(clock)))
    shared = Turns()
    async with asyncio.timeout(60):
        await asyncio.gather(shared.turn(), shared.turn(), shared.turn())


async def test_a_client_that_has_left_delays_no_other_client() -> None:
    shared = Turns()
    first, gone, waits = (asyncio.create_task(shared.turn()) for _ in range(3))
    await asyncio.sleep(0)
    assert first.done()
    gone.cancel()
    async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
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
