"""The regular work continues when a step fails, and reports which step it is."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from amqp_streams.config import LogSettings
from amqp_streams.server.regular import RETENTION_EVERY_TICKS, Regular
from amqp_streams.storage.plans.retention import HOLD_MS
from amqp_streams.testing import ManualClock, MemoryStore

DAY_MS = 24 * 3600 * 1000


class Work:
    """The regular work of a store. The test controls its clocks, and one step fails while the test requests
    it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.store = MemoryStore()
        self.wall, self.monotonic = ManualClock(), ManualClock(0)
        self.broken = False
        self.done = 0
        steps: list[tuple[str, Callable[[], None]]] = [("first", self.step), ("second", self.count)]
        self.regular = Regular(loop, self.store, steps, wall_ms=self.wall, monotonic_ms=self.monotonic)

    def step(self) -> None:
        assert not self.broken, "a fault of our own"

    def count(self) -> None:
        self.done += 1

    def ticks(self, count: int = RETENTION_EVERY_TICKS) -> list[str]:
        with capture_logs() as lines:
            for _ in range(count):
                self.wall.advance(500)
                self.monotonic.advance(500)
                self.regular.tick()
        return [line["event"] for line in lines]


@pytest.fixture
def work() -> Iterator[Work]:
    with closing(asyncio.new_event_loop()) as loop:
        yield Work(loop)


def test_a_step_that_fails_keeps_no_other_from_being_done(work: Work) -> None:
    work.broken = True
    assert work.ticks(3) == ["regular_work_failed"]
    assert work.done == 3
    assert work.regular.faults == {"first": 3}
    assert "the step 'first' of the regular work fails: AssertionError: a fault of our own" in (
        work.regular.hindrance() or ""
    )
    work.broken = False
    assert work.ticks(2) == ["regular_work_recovered"]
    assert work.regular.hindrance() is None


def test_a_full_disk_is_a_hindrance_until_it_has_room(work: Work) -> None:
    work.store.full = "the disk that holds data is full"
    assert work.ticks(2) == ["disk_full"]
    assert work.regular.hindrance() == "the disk that holds data is full"
    work.store.full = None
    assert work.ticks(2) == ["disk_has_room"]
    assert work.regular.hindrance() is None


def test_a_clock_that_jumps_ahead_for_a_while_removes_nothing(work: Work) -> None:
    settings = LogSettings(retention_ms=DAY_MS, segment_ms=1000)
    partition = work.store.create("log", settings, incarnation="i").partitions[0]
    partition.append([b"event"], b"\0", work.wall())
    work.store.commit()
    work.ticks()
    work.wall.advance(400 * DAY_MS)
    assert "clock_jumped" in work.ticks(2 * RETENTION_EVERY_TICKS)
    assert partition.start == 0
    work.wall.advance(-400 * DAY_MS)
    assert "clock_trusted" in work.ticks()
    assert partition.start == 0
    work.wall.advance(400 * DAY_MS)
    work.ticks()
    work.wall.advance(HOLD_MS)
    work.monotonic.advance(HOLD_MS)
    assert "retention" in work.ticks()
    assert partition.start == 1
