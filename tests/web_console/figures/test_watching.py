"""Questions of views are shared, asked only while a view is open, and do not disturb each other."""

import asyncio
from typing import Any, cast

import pytest

from amqp_streams.client import Client, LogExtent, ManagementError, PartitionExtent
from web_console.figures import watching
from web_console.figures.watching import OUT, Question, Watcher


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PERIOD_S", 0.02)
    monkeypatch.setattr(watching, "QUESTION_S", 0.02)


@pytest.fixture
def watcher() -> Watcher:
    # Without logs in a view, only the questions use the client.
    return Watcher(cast("Client", None))


class Counted:
    """A question that counts how often it was asked."""

    def __init__(self, name: str, *, error: Exception | None = None, waits: bool = False) -> None:
        self.count = 0
        self._error, self._waits = error, waits
        self._changed = asyncio.Event()
        self.question = Question((name,), self.ask, lambda answer: {"count": float(cast("int", answer))})

    async def ask(self, _client: Any) -> object:
        self.count += 1
        self._changed.set()
        if self._waits:
            await asyncio.Event().wait()
        if self._error is not None:
            raise self._error
        return self.count

    async def asked(self, times: int) -> None:
        while self.count < times:
            self._changed.clear()
            await self._changed.wait()


async def test_views_with_the_same_question_share_its_answers(watcher: Watcher) -> None:
    counted = Counted("node")
    async with watcher.view(question=counted.question), watcher.view(question=counted.question) as second:
        await counted.asked(3)
        await second.changed.wait()
        asked = watcher.asked(("node",))
        assert asked.answer in {2, 3}
        # Each answer once, although two views show it.
        assert asked.trends["count"].values == [float(number + 1) for number in range(asked.answer)]
    await watcher.close()


async def test_nothing_is_asked_and_kept_after_the_last_view(watcher: Watcher) -> None:
    counted = Counted("node")
    async with watcher.view(question=counted.question):
        await counted.asked(2)
    count = counted.count
    assert watcher.asked(("node",)).answer is None
    await asyncio.sleep(0.1)
    assert counted.count == count
    async with watcher.view(question=counted.question):
        await counted.asked(count + 1)
    await watcher.close()


async def test_a_question_that_fails_or_does_not_end_disturbs_no_other(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_ASK_S", 0.05)
    good, bad = Counted("good"), Counted("bad", error=ManagementError(404, "gone"))
    silent = Counted("silent", waits=True)
    async with (
        watcher.view(question=good.question),
        watcher.view(question=bad.question),
        watcher.view(question=silent.question),
    ):
        await good.asked(3)
        await silent.asked(2)
        error = watcher.asked(("bad",)).error
        assert isinstance(error, ManagementError)
        assert watcher.asked(("silent",)).error is not None
        assert watcher.asked(("good",)).error is None
        assert watcher.latest.problem is None
    await watcher.close()


class Reading:
    """A node whose log was read up to `events_out`; None: a node that does not send it."""

    def __init__(self, events_out: int | None) -> None:
        self.events_out = events_out

    async def extents(self, logs: list[str], **_: object) -> dict[str, LogExtent]:
        if self.events_out is not None:
            self.events_out += 100
        return {log: LogExtent(log, "i", (), self.events_out) for log in logs}


@pytest.mark.parametrize("events_out", [0, None])
async def test_what_consumers_got_has_a_rate_of_its_own(events_out: int | None) -> None:
    watcher = Watcher(cast("Client", Reading(events_out)))
    async with watcher.view(frozenset({"temps"})) as view:
        while watcher.history("temps").rate is None:
            await view.changed.wait()
            view.changed.clear()
        out = watcher.history("temps", OUT).rate
    await watcher.close()
    assert watcher.history("temps").rate == 0
    assert (out is None) if events_out is None else (out is not None and out > 0)


class Wide:
    """A node with a log of many partitions, which gets an event in each between two readings."""

    def __init__(self, count: int) -> None:
        self.count, self.readings = count, 0

    async def extents(self, logs: list[str], **_: object) -> dict[str, LogExtent]:
        self.readings += 1
        partitions = tuple(
            PartitionExtent(str(number), 0, self.readings, 1, None, None, "open")
            for number in range(self.count)
        )
        return {log: LogExtent(log, "i", partitions) for log in logs}


async def test_each_of_a_thousand_partitions_has_a_rate() -> None:
    node = Wide(1024)
    watcher = Watcher(cast("Client", node))
    async with watcher.view(frozenset({"wide"}), partitions=True) as view:
        while node.readings < 3:
            await view.changed.wait()
            view.changed.clear()
    await watcher.close()
    assert all((watcher.history("wide", str(number)).rate or 0) > 0 for number in range(1024))


async def test_many_partitions_are_read_less_often() -> None:
    few, many = [await Wide(count).extents(["a", "b"]) for count in (100, 500)]
    assert watching.seconds_between({}) == 1.0
    assert watching.seconds_between(few) == 1.0
    assert watching.seconds_between(many) == 5.0
