"""Reports of logs that are created again, events that retention removes, events that are given up, and faults
at the beginning.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from knative_gateway.dispatcher.reader import PartitionReader
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.subscribers import state
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Delivery, Order, Routes, Stored
from tests.knative_gateway.dispatcher.rig import LOG, Rig, event, route, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(partitions=1) as made:
        yield made


async def test_an_event_that_fails_for_long_delays_none_after_it(server: SubscriberServer) -> None:
    """More events than the window holds. After a restart, the delivered ones are not delivered again."""

    async def refuse(got: Got) -> web.StreamResponse:
        return web.Response(status=500 if got.id == "0" else 202)

    server.behaviour = refuse
    settings = DispatchSettings(look_ahead=8, flush_ms=20, idle_flush_ms=20, drain_s=0.2)
    delivery = Delivery(retry=10, backoff_delay_ms=3_600_000)
    async with Rig(settings, partitions=1) as rig:
        await rig.serve(subscriber("u", server.url(), delivery=delivery))
        await rig.send(*(event(number) for number in range(200)))
        await until(lambda: rig.dispatcher.figures("u").get("delivered") == 199)
        dispatcher = rig.dispatcher.dispatcher_of("u")
        assert dispatcher is not None
        assert (dispatcher.partitions[0].window.open, dispatcher.figures.waiting) == (1, 1)
    assert rig.store.positions["u"] == {0: ""}
    async with Rig(settings, partitions=1, log=rig.memory, kept=rig.store) as again:
        await again.serve(subscriber("u", server.url(), delivery=delivery))
        await again.send(event(200))
        await until(lambda: again.dispatcher.figures("u").get("delivered") == 1)
    assert server.ids.count("0") == 2
    assert sorted(map(int, server.ids)) == [0, *range(201)]


async def test_an_idle_gateway_reports_a_store_that_fails() -> None:
    """Without a subscriber there is nothing to store. The store can be the reason why nothing is served."""
    async with Rig(DispatchSettings(flush_ms=20, idle_flush_ms=20), partitions=1) as rig:
        rig.store.failing = [UnavailableError("away")] * 1000
        await until(lambda: rig.dispatcher.stored_s_ago > 1.5)
        rig.store.failing.clear()
        await until(lambda: rig.dispatcher.stored_s_ago < 1)


async def test_a_recreated_log_is_delivered_from_its_first_event(rig: Rig, server: SubscriberServer) -> None:
    await rig.serve(subscriber("u", server.url()))
    await rig.send(*(event(f"old {number}") for number in range(3)))
    await until(lambda: rig.dispatcher.figures("u").get("delivered") == 3)
    with capture_logs() as lines:
        await rig.memory.delete(LOG)
        await rig.memory.ensure(LOG, partitions=1, retention_ms=None)
        await rig.send(*(event(f"new {number}") for number in range(3)))
        await until(lambda: rig.dispatcher.figures("u").get("delivered") == 6)
    assert server.ids[3:] == ["new 0", "new 1", "new 2"]
    assert [line["log"] for line in lines if line["event"] == "log_recreated"] == [LOG]
    await until(lambda: [failure.end for failure in rig.store.failures.get("u", ())] == ["log made again"])
    await until(lambda: rig.store.positions["u"] == {0: f"{2:016d}"})


async def test_a_redrive_of_a_recreated_log_delivers_no_event_that_was_not_given_up(
    rig: Rig, server: SubscriberServer
) -> None:
    """The history lists offsets of the former log, which other events have now."""
    server.answers = [400, 400]
    exact = [{"exact": {"type": "t"}}]
    await rig.serve(subscriber("u", server.url(), filters=exact))
    await rig.send(event("old 0"), event("old 1"))
    await until(lambda: rig.dispatcher.figures("u")["dropped"] == 2)
    await rig.memory.delete(LOG)
    await rig.memory.ensure(LOG, partitions=1, retention_ms=None)
    await rig.send(event("not for it", "other"), event("new"))
    await until(lambda: rig.dispatcher.figures("u").get("delivered") == 1)
    kept = [failure.event_id for failure in rig.store.failures["u"] if failure.end == "dropped"]
    assert kept == ["old 0", "old 1"], "what was given up before is not forgotten"
    assert await rig.dispatcher.redrive("u") == 2
    dispatcher = rig.dispatcher.dispatcher_of("u")
    assert dispatcher is not None
    await until(lambda: not dispatcher.redrives.is_waiting)
    await rig.send(event("last"))
    await until(lambda: rig.dispatcher.figures("u").get("delivered") == 2)
    assert server.ids[2:] == ["new", "last"]


async def test_positions_of_a_former_log_do_not_hide_events_of_the_new_one(server: SubscriberServer) -> None:
    """Another replica notices first that the log was recreated."""
    async with Rig(DispatchSettings(flush_ms=60_000, idle_flush_ms=60_000), partitions=1) as rig:
        await rig.serve(subscriber("u", server.url()))
        await rig.send(*(event(f"old {number}") for number in range(3)))
        await until(lambda: rig.dispatcher.figures("u").get("delivered") == 3)
        await rig.memory.delete(LOG)
        await rig.memory.ensure(LOG, partitions=1, retention_ms=None)
        await rig.store.restart("u", {0: ""}, (await rig.memory.extents(LOG)).incarnation)
    assert rig.store.positions["u"] == {0: ""}


async def test_a_subscriber_that_comes_meanwhile_does_not_hide_that_the_log_is_another(
    rig: Rig, server: SubscriberServer
) -> None:
    first = subscriber("first", server.url())
    await rig.serve(first)
    await rig.send(*(event(f"old {number}") for number in range(3)))
    await until(lambda: rig.dispatcher.figures("first")["delivered"] == 3)
    await rig.memory.delete(LOG)
    await rig.memory.ensure(LOG, partitions=1, retention_ms=None)
    await rig.send(event("new"))
    rig.version += 1
    wanted = route(first, subscriber("second", server.url("/second")))
    rig.dispatcher.use(Routes(rig.version, {wanted.path: wanted}))  # before any check
    await until(lambda: [got.path for got in server.got if got.id == "new"].count("/") == 1)
    await until(lambda: rig.store.positions["first"] == {0: f"{0:016d}"})


@asynccontextmanager
async def ten_events_behind(server: SubscriberServer) -> AsyncIterator[tuple[Rig, asyncio.Event]]:
    """Ten events wait in one partition for the subscriber `slow`, whose own reader has given up. `quick` has
    passed them. `slow` answers when the event is set.
    """
    gate = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await gate.wait()
        return web.Response(status=202)

    server.behaviour = slow
    settings = DispatchSettings(look_ahead=2, flush_ms=20, idle_flush_ms=20, drain_s=0.2, patience_s=0.01)
    async with Rig(settings, partitions=1) as rig:
        read, reading = rig.memory.read, 0

        async def counted(log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
            nonlocal reading
            reading += 1
            try:
                async for batch in read(log, after):
                    yield batch
            finally:
                reading -= 1

        rig.memory.read = counted  # type: ignore[method-assign]
        await rig.serve(
            subscriber("slow", server.url()),
            subscriber("quick", server.url("/quick"), filters=({"exact": {"type": "other"}},)),
        )
        await rig.send(*(event(number) for number in range(10)))
        dispatcher = rig.dispatcher.dispatcher_of("slow")
        assert dispatcher is not None
        [partition] = dispatcher.partitions.values()
        await until(lambda: not partition.cursor.is_shared and partition.window.full)
        await until(lambda: rig.dispatcher.lag("slow").events == 10)
        # Its own reader has given up, and begins again only when there is room.
        await until(lambda: reading == 1 and partition.window.full)
        yield rig, gate


async def test_events_that_retention_removes_before_delivery_are_counted_and_reported(
    server: SubscriberServer,
) -> None:
    async with ten_events_behind(server) as (rig, gate):
        rig.memory.removed[LOG, 0] = 6
        with capture_logs() as lines:
            gate.set()
            await until(lambda: rig.dispatcher.figures("slow")["delivered"] == 6)
        assert rig.dispatcher.figures("slow")["removed"] == 4
        assert rig.dispatcher.figures("quick")["removed"] == 0
        [line] = [line for line in lines if line["event"] == "events_removed_undelivered"]
        assert (line["name"], line["count"]) == ("slow", 4)
        assert line["last"] - line["after"] == 4
        await until(lambda: [failure.end for failure in rig.store.failures.get("slow", ())] == ["removed"])


async def test_events_that_retention_removed_before_they_were_read_are_not_in_the_lag(
    server: SubscriberServer,
) -> None:
    """No event follows, so no reader learns that events are gone."""
    async with ten_events_behind(server) as (rig, gate):
        rig.memory.removed[LOG, 0] = 10
        gate.set()
        await until(lambda: rig.dispatcher.lag("slow").events == 0)
        assert 0 < rig.dispatcher.figures("slow")["delivered"] < 10


async def test_events_that_are_given_up_are_in_the_log_with_their_number(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line at once, and one for all that follow in a while: not one for each."""
    monkeypatch.setattr(state, "REPORT_S", 1.0)
    with capture_logs() as lines:
        await rig.serve(subscriber("u", "http://169.254.169.254/"))
        await rig.send(*(event(number) for number in range(50)))
        await until(
            lambda: sum(line["dropped"] for line in lines if line["event"] == "events_not_delivered") == 50
        )
    told = [line for line in lines if line["event"] == "events_not_delivered"]
    assert len(told) == 2
    assert (told[0]["kind"], told[0]["name"], told[0]["dropped"]) == ("Trigger", "u", 1)
    assert "denied" in told[0]["reason"]


async def test_a_dead_letter_is_a_warning(rig: Rig, server: SubscriberServer) -> None:
    with capture_logs() as lines:
        await rig.serve(
            subscriber("u", "http://169.254.169.254/", delivery=Delivery(dead_letter_url=server.url()))
        )
        await rig.send(event(0))
        await until(lambda: rig.dispatcher.figures("u")["deadLettered"] == 1)
    assert [
        (line["log_level"], line["dead_lettered"])
        for line in lines
        if line["event"] == "events_not_delivered"
    ] == [("warning", 1)]


async def test_a_subscriber_without_a_reader_does_not_count_as_served(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscriber is retried, and the others are served in the meantime."""
    place, failing = PartitionReader.place, [ValueError("a fault of ours")]

    def faulty(reader: PartitionReader, partitions: Any) -> None:
        if failing:
            raise failing.pop()
        place(reader, partitions)

    monkeypatch.setattr(PartitionReader, "place", faulty)
    monkeypatch.setattr("knative_gateway.dispatcher.worker._RETRY_S", 0.02)
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(0))
    await server.wait(1)
    assert rig.dispatcher.failing == {}


async def test_a_stop_brings_nothing_of_other_keys_again(server: SubscriberServer) -> None:
    """The event that is not answered keeps the position; later events that were delivered are known."""
    stopped = asyncio.Event()

    async def slow(got: Got) -> web.StreamResponse:
        if got.id == "a0":
            await stopped.wait()
        return web.Response(status=202)

    server.behaviour = slow
    keyed = [event(name, partitionkey=name[0]) for name in ("a0", "a1", "b0", "c0", "b1", "a2", "c1")]
    settings = DispatchSettings(drain_s=0.1)
    async with Rig(settings, partitions=1) as rig:
        await rig.serve(subscriber("u", server.url(), order=Order.BY_KEY))
        await rig.send(*keyed)
        await until(lambda: rig.dispatcher.figures("u").get("delivered") == 4)
    stopped.set()
    async with Rig(settings, partitions=1, log=rig.memory, kept=rig.store) as again:
        await again.serve(subscriber("u", server.url(), order=Order.BY_KEY))
        await until(lambda: rig.store.positions["u"] == {0: f"{len(keyed) - 1:016d}"})
    assert sorted(server.ids) == ["a0", "a0", "a1", "a2", "b0", "b1", "c0", "c1"]


async def test_a_clock_that_is_wrong_by_years_does_not_spoil_the_figures(
    rig: Rig, server: SubscriberServer
) -> None:
    """The logs in memory count milliseconds from 1970 on."""
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(0))
    await until(lambda: rig.dispatcher.figures("u").get("delivered") == 1)
    dispatcher = rig.dispatcher.dispatcher_of("u")
    assert dispatcher is not None
    assert dispatcher.figures.end_to_end.total_ms == state.AGE_MAX_MS


async def test_only_the_selected_events_are_delivered_again(rig: Rig, server: SubscriberServer) -> None:
    """An event that the history does not list is not delivered, even if a request names it."""
    server.answers = [400, 400, 400]
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event("a"), event("b"), event("c"))
    await until(lambda: rig.dispatcher.figures("u")["dropped"] == 3)
    await rig.send(event("d"))
    await until(lambda: rig.dispatcher.figures("u").get("delivered") == 1)
    assert await rig.dispatcher.redrive("u", {(0, f"{1:016d}"), (0, f"{3:016d}"), (7, f"{0:016d}")}) == 1
    await until(lambda: rig.dispatcher.figures("u").get("delivered") == 2)
    assert server.ids[3:] == ["d", "b"]


async def test_the_lag_of_each_partition_is_known(rig: Rig, server: SubscriberServer) -> None:
    """Of a partition of another replica, from the stored position; retention shortens it."""
    await rig.serve(subscriber("u", server.url()))
    await rig.send(*(event(str(number)) for number in range(4)))
    await until(lambda: rig.dispatcher.figures("u").get("delivered") == 4)
    assert await rig.dispatcher.lags("u", {}) == {0: 0}
    rig.dispatcher.dispatcher_of("u").partitions.pop(0)  # type: ignore[union-attr]  # it is served
    assert await rig.dispatcher.lags("u", {0: f"{1:016d}"}) == {0: 2}
    assert await rig.dispatcher.lags("u", {}) == {0: 4}
    rig.memory.removed[LOG, 0] = 3
    assert await rig.dispatcher.lags("u", {0: f"{1:016d}"}) == {0: 1}
    with pytest.raises(KeyError):
        await rig.dispatcher.lags("other", {})
