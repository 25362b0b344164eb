"""Many objects take several steps, between which others run."""

import asyncio

import pytest

from knative_gateway.api import stepping
from knative_gateway.api.stepping import filtered, for_each


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
