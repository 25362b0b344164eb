"""Logs are created and deleted with their Brokers and Channels."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knative_gateway.controller import log_keeping
from knative_gateway.controller.controller import Controller
from knative_gateway.controller.log_keeping import LogKeeper
from knative_gateway.errors import RefusedError
from knative_gateway.ports import Key, Stored
from knative_gateway.resources.objects import text, uid_of
from tests.knative_gateway.controller.rig import Here, Plane, here_at, soon
from tests.knative_gateway.controller.world import NOW_MS, broker, channel

LOG = "broker.default.b"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with here_at(tmp_path) as made_:
        yield made_


async def test_a_log_goes_with_its_broker_and_a_successor_begins_with_an_empty_one(here: Here) -> None:
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key)
        here.logs.logs["broker.default.b"][0].append(Stored(0, "0001", NOW_MS, b""))
        await here.delete(key)

        async def gone() -> bool:
            return not here.logs.logs

        await soon(gone)
        await here.send(broker())
        await here.ready(key)
        assert here.logs.logs == {"broker.default.b": [[], []]}


async def test_a_log_stays_where_several_replicas_share_the_work(here: Here) -> None:
    """A late deletion could remove the log of its successor."""
    async with here.controller(counting=False) as controller:
        key = await here.send(broker())
        await here.ready(key)
        await here.delete(key)

        async def unserved() -> bool:
            return not here.plane.applied[-1].by_path

        await soon(unserved)
        await controller.settled()
        assert list(here.logs.logs) == ["broker.default.b"]


async def test_a_log_that_cannot_be_deleted_is_retried(here: Here) -> None:
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key)
        here.logs.away = True
        await here.delete(key)

        async def unserved() -> bool:
            return here.plane.served("/broker/default/b") is None

        await soon(unserved)
        here.logs.away = False

        async def gone() -> bool:
            return not here.logs.logs

        await soon(gone)


async def test_a_successor_that_comes_at_once_begins_with_an_empty_log(here: Here) -> None:
    """Before the controller has seen that its predecessor was deleted."""
    async with here.controller():
        key = await here.send(broker())
        old = uid_of(await here.ready(key))
        here.logs.logs[LOG][0].append(Stored(0, "0001", NOW_MS, b""))
        await here.delete(key)
        await here.send(broker())
        found = await here.ready(key)
        assert uid_of(found) != old
        assert here.logs.logs == {LOG: [[], []]}


async def test_a_successor_is_not_served_on_the_log_of_its_predecessor(here: Here) -> None:
    """The node does not answer when the log of the predecessor must be deleted."""
    path = "/broker/default/b"
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key)
        here.logs.logs[LOG][0].append(Stored(0, "0001", NOW_MS, b""))
        here.logs.away = True
        await here.delete(key)
        await here.send(broker())
        await here.ready(key, "False")
        assert here.plane.served(path) is None
        here.logs.away = False
        await here.ready(key)
        assert here.plane.served(path) is not None
        assert here.logs.logs == {LOG: [[], []]}


async def test_a_log_whose_broker_went_before_a_crash_is_deleted_at_the_next_start(here: Here) -> None:
    async with here.controller():
        key, other = await here.send(broker()), await here.send(broker("other"))
        await here.ready(key)
        await here.ready(other)
    await here.delete(key)
    async with here.controller():

        async def gone() -> bool:
            return list(here.logs.logs) == ["broker.default.other"]

        await soon(gone)
        await here.ready(other)


async def test_a_successor_that_came_while_nothing_ran_begins_with_an_empty_log(here: Here) -> None:
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key)
        here.logs.logs[LOG][0].append(Stored(0, "0001", NOW_MS, b""))
    await here.delete(key)
    await here.send(broker())
    async with here.controller(plane=Plane()):
        await here.ready(key)
        assert here.logs.logs == {LOG: [[], []]}


async def test_a_log_that_was_there_before_its_owner_was_kept_is_taken_over_with_its_events(
    here: Here,
) -> None:
    """The log is from an earlier gateway, or was created by hand. It does not belong to a predecessor."""
    await here.logs.ensure(LOG, partitions=2, retention_ms=None)
    here.logs.logs[LOG][0].append(Stored(0, "0001", NOW_MS, b""))
    async with here.controller():
        found = await here.ready(await here.send(broker()))
        assert len(here.logs.logs[LOG][0]) == 1
        kept = await here.store.resources.get(Key("gateway.knative.dev", "Log", "", LOG))
        assert text(kept, "spec", "owner") == uid_of(found)


async def test_one_log_that_does_not_answer_holds_up_no_other(here: Here) -> None:
    stuck, ensure = asyncio.Event(), here.logs.ensure

    async def slow(log: str, *, partitions: int, retention_ms: int | None) -> int:
        if log == LOG:
            await stuck.wait()
        return await ensure(log, partitions=partitions, retention_ms=retention_ms)

    here.logs.ensure = slow  # type: ignore[method-assign]  # one log's node is slow
    async with here.controller():
        late = await here.send(broker())
        await here.ready(await here.send(channel()))
        await here.ready(late, "Unknown")
        stuck.set()
        await here.ready(late)


async def test_a_log_that_raises_something_unexpected_costs_its_broker_only(here: Here) -> None:
    ensure = here.logs.ensure

    async def odd(log: str, *, partitions: int, retention_ms: int | None) -> int:
        if log == LOG:
            raise ZeroDivisionError
        return await ensure(log, partitions=partitions, retention_ms=retention_ms)

    here.logs.ensure = odd  # type: ignore[method-assign]  # whatever it is
    async with here.controller() as controller:
        bad = await here.send(broker())
        await here.ready(await here.send(broker("other")))
        await here.ready(bad, "False")
        assert isinstance(controller, Controller)
        await controller.settled()
        assert controller.lacking is None


async def test_a_log_that_the_node_refuses_is_tried_more_and_more_rarely_until_it_is_accepted(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It concerns its Broker only: everything else is served."""
    pauses, refuses, ensure = list[float](), True, here.logs.ensure
    later = LogKeeper._later

    def noted(keeper: LogKeeper, name: str, pause_s: float) -> None:
        pauses.append(pause_s)
        later(keeper, name, pause_s)

    async def refusing(log: str, *, partitions: int, retention_ms: int | None) -> int:
        if refuses:
            raise RefusedError("retention-ms must be at least 1000")
        return await ensure(log, partitions=partitions, retention_ms=retention_ms)

    monkeypatch.setattr(LogKeeper, "_later", noted)
    monkeypatch.setattr(log_keeping, "PAUSE_S_MAX", 0.05)
    here.logs.ensure = refusing  # type: ignore[method-assign]  # the node's answer
    async with here.controller() as controller:
        key = await here.send(broker())
        await here.ready(key, "False")

        async def tried() -> bool:
            controller._logs.tend(LOG)  # other reasons to look at it do not add attempts without end
            return len(pauses) > 20

        await soon(tried)
        await controller.settled()
        assert controller.lacking is None
        assert len(controller._logs._again) == 1
        refuses = False
        await here.ready(key)
        assert pauses[:4] == [0.01, 0.02, 0.04, 0.05]
        assert set(pauses[4:]) == {0.05}


async def test_a_log_that_waits_for_the_node_is_named(here: Here) -> None:
    here.logs.away = True
    async with here.controller() as controller:
        key = await here.send(broker())
        await here.ready(key, "False")
        assert controller.lacking is not None
        assert controller.lacking.startswith(LOG)
        here.logs.away = False
        await here.ready(key)
        await controller.settled()
        assert controller.lacking is None
