"""A process ends in time, no matter how its parts behave."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from knative_gateway.running.stopping import CUT_OFF, Deadline, Parts


async def test_parts_are_left_in_the_opposite_order() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def part(name: str) -> AsyncIterator[str]:
        yield name
        left.append(name)

    parts = Parts()
    assert [await parts.enter(name, part(name)) for name in ("store", "dispatcher")] == [
        "store",
        "dispatcher",
    ]
    await parts.close(10)
    assert left == ["dispatcher", "store"]
    await parts.close(10)
    assert len(left) == 2


async def test_a_part_that_does_not_end_or_raises_holds_up_no_other() -> None:
    stopped = asyncio.Event()
    never = asyncio.Event()

    async def stubborn() -> None:
        try:
            await never.wait()
        except asyncio.CancelledError:
            await never.wait()

    async def broken() -> None:
        raise ZeroDivisionError

    async def first() -> None:
        stopped.set()

    parts = Parts(part_s_min=0.01)
    for name, do in (("first", first), ("broken", broken), ("stubborn", stubborn)):
        parts.on_close(name, do)
    with capture_logs() as logs:
        async with asyncio.timeout(60):
            await parts.close(0)
    assert stopped.is_set()
    assert [(each["event"], each["part"]) for each in logs] == [
        ("part_not_stopped", "stubborn"),
        ("part_not_stopped", "broken"),
    ]
    never.set()


def test_a_process_that_does_not_end_is_cut_off() -> None:
    ended, statuses = threading.Event(), []

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()

    deadline = Deadline(end)
    deadline.arm(0)
    assert ended.wait(60)
    assert statuses == [CUT_OFF]


def test_one_that_ends_by_itself_is_not() -> None:
    deadline = Deadline(lambda _status: None)
    deadline.arm(3600)
    before = threading.active_count()
    deadline.disarm()
    deadline.disarm()
    assert threading.active_count() <= before
