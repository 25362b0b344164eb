"""Many objects take several steps, between which others run. Large ones are handled in a thread."""

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial

import pytest

from knative_gateway.api import stepping
from knative_gateway.api.stepping import (
    WAITING_MAX,
    Callers,
    ClientLeftError,
    beside,
    filtered,
    for_each,
    in_thread,
    json_text,
)
from knative_gateway.resources.documents.large import PIECE_VALUES
from knative_gateway.resources.refusals import StatusError


async def test_results_are_in_order_and_others_run_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "STEP_S", -1.0)  # each item takes all the time of a step
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    assert await for_each(range(100), lambda number: number * 2) == [number * 2 for number in range(100)]
    assert await filtered(range(100), lambda number: number % 3 == 0) == list(range(0, 100, 3))
    running.cancel()
    assert others >= 199


async def test_a_step_has_as_many_items_as_its_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        return now

    def slow(item: int) -> int:
        nonlocal now
        now += stepping.STEP_S / 10
        return item

    monkeypatch.setattr(stepping, "perf_counter", clock)
    pauses = 0
    sleep = asyncio.sleep

    async def counted(delay: float) -> None:
        nonlocal pauses
        pauses += 1
        await sleep(delay)

    monkeypatch.setattr(stepping.asyncio, "sleep", counted)  # type: ignore[attr-defined]  # the module's own
    assert len(await for_each(range(1000), slow)) == 1000
    assert 80 <= pauses <= 101


def here() -> str:
    return threading.current_thread().name


LARGE = {"data": dict.fromkeys(map(str, range(1000)), "x")}


async def test_a_thread_does_the_work_on_large_documents_only() -> None:
    assert await beside(here, {"a": 1}, []) == here()
    assert (await beside(here, {"a": 1}, LARGE)).startswith("api")
    assert (await in_thread(here)).startswith("api")


async def test_the_thread_does_one_work_at_a_time_in_order() -> None:
    """Each thread that computes delays the event loop."""
    done: list[int] = []
    running: list[int] = []
    most = 0

    def work(number: int) -> None:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        done.append(number)
        running.remove(number)

    await asyncio.gather(*(in_thread(partial(work, number)) for number in range(100)))
    assert (done, most) == (list(range(100)), 1)


async def test_an_error_of_the_work_reaches_the_caller() -> None:
    def fails() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await in_thread(fails)


async def test_a_large_document_is_written_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "STEP_S", -1.0)
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    assert await json_text(LARGE, pause) == json.dumps(LARGE, separators=(",", ":")).encode()
    assert pauses >= 1000 / PIECE_VALUES


def stays() -> bool:
    return False


async def ask(callers: Callers, user: str, work: Callable[[], object]) -> object:
    callers.call(user, stays)
    return await in_thread(work)


async def test_users_take_turns_in_the_thread() -> None:
    callers = Callers()
    order: list[str] = []
    asked = [asyncio.create_task(ask(callers, "mallory", partial(order.append, "m"))) for _ in range(10)]
    await asyncio.sleep(0)
    asked += [asyncio.create_task(ask(callers, "nina", partial(order.append, "n"))) for _ in range(3)]
    await asyncio.gather(*asked)
    assert "".join(order[:8]).count("n") == 3
    assert len(order) == 13


async def test_a_user_has_a_limited_number_of_large_requests() -> None:
    callers = Callers()
    asked = [asyncio.create_task(ask(callers, "mallory", here)) for _ in range(WAITING_MAX + 5)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [each for each in answers if isinstance(each, StatusError)]
    assert [each.code for each in refused] == [429] * 5
    assert "32 requests with large objects wait already" in str(refused[0])
    assert await ask(callers, "mallory", here)


async def test_the_work_of_a_client_that_has_left_does_not_begin() -> None:
    callers, has_left = Callers(), False
    done: list[int] = []

    async def leaving() -> None:
        callers.call("mallory", lambda: has_left)
        await in_thread(partial(done.append, 1))

    first = asyncio.create_task(ask(callers, "mallory", here))
    gone = asyncio.create_task(leaving())
    await asyncio.sleep(0)
    has_left = True
    await first
    with pytest.raises(ClientLeftError):
        await gone
    assert done == []
    assert await ask(callers, "mallory", here)


async def test_a_request_that_is_cancelled_gives_its_place_back() -> None:
    callers = Callers()
    asked = [asyncio.create_task(ask(callers, "mallory", here)) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    again = [ask(callers, "mallory", here) for _ in range(WAITING_MAX)]
    assert len(await asyncio.gather(*map(asyncio.create_task, again))) == WAITING_MAX
