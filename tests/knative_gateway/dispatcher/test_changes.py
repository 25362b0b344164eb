"""Routes that change during deliveries, pauses, replays, and all kinds of ends."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from knative_gateway.dispatcher import worker
from knative_gateway.dispatcher.ownership import AWAIT_S
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Delivery, Order, Route
from tests.knative_gateway.dispatcher.rig import Rig, event, route, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(partitions=1) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


def place(number: int) -> dict[int, str]:
    return {0: f"{number:016d}"}


async def test_a_paused_subscriber_gets_nothing_until_it_is_resumed(
    rig: Rig, server: SubscriberServer
) -> None:
    paused = subscriber("u", server.url(), paused=True)
    async with SubscriberServer() as other:
        await rig.serve(paused, subscriber("neighbour", other.url()))
        await rig.send(*(event(number) for number in range(10)))
        await other.wait(10)
        assert not server.got
        await rig.serve(replace(paused, paused=False), subscriber("neighbour", other.url()))
        await server.wait(10)


async def test_pausing_cuts_nothing_off_and_begins_nothing(rig: Rig, server: SubscriberServer) -> None:
    answer = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=500)

    server.behaviour = slow
    spec = subscriber("u", server.url(), delivery=Delivery(retry=5))
    await rig.serve(spec)
    await rig.send(event(1))
    await server.wait(1)
    await rig.serve(replace(spec, paused=True))
    answer.set()
    await until(lambda: rig.dispatcher.figures("u")["failedAttempts"] == 1)
    await rig.send(event(2))
    await until(lambda: rig.dispatcher.figures("u")["matched"] == 2)
    assert server.ids == ["1"]
    server.answers = [202, 202]
    await rig.serve(spec)
    await until(lambda: rig.dispatcher.figures("u")["delivered"] == 2)
    assert sorted(server.ids) == ["1", "1", "2"]


async def test_waiting_retries_go_to_the_current_destination(rig: Rig, server: SubscriberServer) -> None:
    """The URL of a subscriber was wrong and is corrected: no event is lost, and none waits an hour for its
    next attempt.
    """
    async with SubscriberServer(answers=[500]) as wrong:
        spec = subscriber("u", wrong.url(), delivery=Delivery(retry=1, backoff_delay_ms=3_600_000))
        await rig.serve(spec)
        await rig.send(event(1))
        await until(lambda: rig.dispatcher.figures("u")["waiting"] == 1)
        await rig.serve(replace(spec, subscriber_url=server.url()))
        await server.wait(1)
    await until(lambda: rig.store.positions["u"] == place(0))


async def test_other_filters_are_in_force_from_then_on(rig: Rig, server: SubscriberServer) -> None:
    spec = subscriber("u", server.url(), filters=({"exact": {"type": "a"}},))
    await rig.serve(spec)
    await rig.send(event(1, "a"), event(2, "b"))
    await server.wait(1)
    await until(lambda: rig.store.positions["u"] == place(1))
    await rig.serve(replace(spec, filters=({"exact": {"type": "b"}},)))
    await rig.send(event(3, "a"), event(4, "b"))
    await server.wait(2)
    await until(lambda: rig.store.positions["u"] == place(3))
    assert server.ids == ["1", "4"]


async def test_another_order_is_kept_from_then_on(rig: Rig, server: SubscriberServer) -> None:
    spec = subscriber("u", server.url())
    await rig.serve(spec)
    await rig.send(event(1))
    await server.wait(1)
    await rig.serve(replace(spec, order=Order.ORDERED))
    await rig.send(*(event(number) for number in range(2, 12)))
    await server.wait(11)
    assert list(map(int, server.ids)) == list(range(1, 12))


async def test_a_removed_subscriber_gets_nothing_more_and_keeps_its_cursor(
    rig: Rig, server: SubscriberServer
) -> None:
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1))
    await server.wait(1)
    await until(lambda: rig.store.positions["u"] == place(0))
    await rig.serve()
    await rig.send(event(2))
    assert rig.dispatcher.figures("u") == {}
    assert rig.store.positions["u"] == place(0)
    await rig.serve(subscriber("u", server.url()))
    await server.wait(2)


async def test_a_recreated_subscriber_is_another(rig: Rig, server: SubscriberServer) -> None:
    await rig.serve(subscriber("old", server.url("/old"), name="same"))
    await rig.send(event(1))
    await server.wait(1)
    await rig.serve(subscriber("new", server.url("/new"), name="same"))
    await rig.send(event(2))
    await server.wait(2)
    assert [got.path for got in server.got] == ["/old", "/new"]


async def test_forgotten_deliveries_stay_forgotten(rig: Rig, server: SubscriberServer) -> None:
    """After a deletion, nothing is kept once the cursor is removed, not even by a delivery that ends
    later.
    """
    answer = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=202)

    server.behaviour = slow
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1))
    await server.wait(1)
    await rig.serve()
    await rig.store.forget("u")
    answer.set()
    await until(lambda: not server.in_flight)
    await rig.dispatcher.flush()
    assert "u" not in rig.store.positions


async def test_several_routes_are_served_side_by_side(rig: Rig, server: SubscriberServer) -> None:
    other = "channel.default.c"
    await rig.log.ensure(other, partitions=1, retention_ms=None)
    channel = Route(
        "uid-c",
        "Channel",
        "default",
        "c",
        "/channel/default/c",
        other,
        (subscriber("s", server.url("/s"), reply_log=None),),
    )
    await rig.use(route(subscriber("t", server.url("/t"))), channel)
    await rig.send(event(1))
    await server.wait(1)
    await rig.use(channel)
    assert rig.dispatcher.figures("t") == {}
    assert rig.dispatcher.figures("s")["matched"] == 0
    assert [got.path for got in server.got] == ["/t"]


@pytest.mark.parametrize(("await_s", "level"), [(AWAIT_S, "info"), (0.0, "warning")])
async def test_a_log_that_does_not_exist_yet_is_retried(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch, await_s: float, level: str
) -> None:
    """A worker that does not lead knows the route earlier than the leader creates the log: no warning."""
    monkeypatch.setattr(worker, "AWAIT_S", await_s)
    early = route(subscriber("u", server.url()), log="broker.default.later")
    with capture_logs() as lines:
        await rig.use(early)
    assert "u" in rig.dispatcher.failing
    assert {each["log_level"] for each in lines if each["event"] == "subscriber_not_served"} == {level}
    await rig.log.ensure("broker.default.later", partitions=1, retention_ms=None)
    await until(lambda: not rig.dispatcher.failing)
    assert rig.store.positions["u"] == {0: ""}


async def test_a_store_that_is_away_for_a_while_costs_nothing(rig: Rig, server: SubscriberServer) -> None:
    await rig.serve(subscriber("u", server.url()))
    rig.store.failing = [UnavailableError("away")] * 3
    server.answers = [400]
    await rig.send(event(1), event(2))
    await until(lambda: rig.store.positions["u"] == place(1))
    await until(lambda: len(rig.store.failures.get("u", ())) == 2)


async def test_a_stop_waits_for_answers_and_keeps_them(server: SubscriberServer) -> None:
    answer = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=202)

    server.behaviour = slow
    settings = DispatchSettings(flush_ms=60_000, drain_s=10)
    async with Rig(settings, partitions=1) as rig:
        await rig.serve(subscriber("u", server.url()))
        await rig.send(event(1))
        await server.wait(1)
        dispatcher = rig.dispatcher.dispatcher_of("u")
        assert dispatcher is not None
        closing = asyncio.create_task(rig.dispatcher.close())
        await until(lambda: dispatcher.scheduler.stopped)
        assert not closing.done()
        answer.set()
        await closing
    assert rig.store.positions["u"] == place(0)
    assert server.ids == ["1"]


async def test_an_event_without_an_answer_in_time_is_delivered_again(server: SubscriberServer) -> None:
    async def never(got: Got) -> web.StreamResponse:
        if got.id == "2" and len(server.got) < 4:
            await asyncio.sleep(30)
        return web.Response(status=202)

    server.behaviour = never
    async with Rig(partitions=1) as rig:
        await rig.serve(subscriber("u", server.url()))
        await rig.send(event(1), event(2), event(3))
        await until(lambda: rig.dispatcher.figures("u").get("delivered") == 2)
    assert rig.store.positions["u"] == place(0)
    async with Rig(partitions=1, log=rig.memory, kept=rig.store) as again:
        await again.serve(subscriber("u", server.url()))
        await until(lambda: again.store is not None and rig.store.positions["u"] == place(2))
    assert sorted(server.ids) == ["1", "2", "2", "3"], "what was completed behind it is known"


async def test_a_replay_brings_everything_from_there(rig: Rig, server: SubscriberServer) -> None:
    await rig.serve(subscriber("u", server.url()))
    await rig.send(*(event(number) for number in range(5)))
    await server.wait(5)
    await rig.dispatcher.replay_from_offsets("u", "0=@earliest")
    await server.wait(10)
    await rig.dispatcher.replay_from_offsets("u", f"0={2:016d}")
    await server.wait(12)
    assert server.ids[10:] == ["3", "4"]
    await rig.dispatcher.replay_from_time("u", 5)
    await server.wait(13)
    assert server.ids[12:] == ["4"]


async def test_a_replay_may_leave_something_out(rig: Rig, server: SubscriberServer) -> None:
    server.answers = [500] * 3
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=9, backoff_delay_ms=3_600_000)))
    await rig.send(*(event(number) for number in range(3)))
    await server.wait(3)
    await rig.dispatcher.replay_from_offsets("u", "0=@latest")
    await rig.send(event(3))
    await server.wait(4)
    await until(lambda: rig.store.positions["u"] == place(3))


async def test_only_a_served_subscriber_can_be_replayed(rig: Rig) -> None:
    await rig.serve()
    with pytest.raises(KeyError):
        await rig.dispatcher.replay_from_offsets("nobody", "0=@earliest")


async def test_dead_letters_are_delivered_again_by_request(rig: Rig, server: SubscriberServer) -> None:
    async with SubscriberServer() as sink:
        server.answers = [202, 400, 202, 400]
        await rig.serve(
            subscriber("u", server.url(), order=Order.ORDERED, delivery=Delivery(dead_letter_url=sink.url()))
        )
        await rig.send(*(event(number) for number in range(5)))
        await server.wait(5)
        await until(lambda: len(rig.store.failures.get("u", ())) == 4)
        assert await rig.dispatcher.redrive("u") == 2
        await server.wait(7)
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 5)
        assert sorted(server.ids[5:]) == ["1", "3"]
        assert sink.ids == ["1", "3"]
    await until(lambda: rig.store.positions["u"] == place(4))


async def test_the_memory_of_a_redrive_is_bounded_for_any_number_of_requests() -> None:
    """A subscriber that does not answer: each redrive would hold a hundred events of any size more."""
    answer = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=202)

    settings = DispatchSettings(flush_ms=20, idle_flush_ms=20, drain_s=0.2, held_bytes_max=10_000)
    async with Rig(settings, partitions=1) as rig, SubscriberServer(slow) as server:
        await rig.serve(subscriber("u", "http://169.254.169.254/"))
        await rig.send(*(event(number, data=b"x" * 2000) for number in range(20)))
        await until(lambda: rig.dispatcher.figures("u")["dropped"] == 20)
        await rig.serve(subscriber("u", server.url(), generation=2))
        for _ in range(5):
            assert await rig.dispatcher.redrive("u") == 20
        await until(lambda: len(server.got) > 0)
        dispatcher = rig.dispatcher.dispatcher_of("u")
        assert dispatcher is not None
        assert 0 < dispatcher.redrives.held.used <= 10_000
        answer.set()
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 20)
        assert sorted(map(int, server.ids)) == list(range(20))
        assert dispatcher.redrives.held.used == 0


async def test_an_internal_error_holds_up_no_other_event(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knative_gateway.dispatcher.subscribers.delivering._RETRY_S", 0.001)
    monkeypatch.setattr("knative_gateway.dispatcher.subscribers.steps.secrets", None)
    await rig.serve(subscriber("u", server.url()))

    def dropped() -> list[str]:
        return [each.event_id for each in rig.store.failures.get("u", ()) if each.end == "dropped"]

    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    await rig.send(event(0, "t", None, **traced), event(1))
    await until(lambda: rig.store.positions["u"] == place(1))
    await rig.send(event(2, "t", None, **traced), event(3))  # over a connection that is there
    await until(lambda: rig.store.positions["u"] == place(3))
    assert server.ids == ["1", "3"]
    # Failures are stored apart from positions, and may come later.
    await until(lambda: dropped() == ["0", "2"])


async def test_a_replay_without_a_store_loses_no_failure(
    server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store answers the request for the replay, and then fails for a while."""
    async with Rig(DispatchSettings(flush_ms=60_000, idle_flush_ms=60_000), partitions=1) as rig:
        await rig.serve(subscriber("u", server.url()))
        server.answers = [400]
        await rig.send(event(1))
        await until(lambda: rig.dispatcher.figures("u")["dropped"] == 1)

        async def fail(*_: object) -> None:
            raise UnavailableError("away")

        with monkeypatch.context() as patches:
            patches.setattr(rig.store, "save", fail)
            await rig.dispatcher.replay_from_offsets("u", "0=@latest")
        assert not rig.store.failures
        await rig.dispatcher.store_histories()
        assert [failure.end for failure in rig.store.failures["u"]] == ["", "dropped"]


async def test_a_stop_does_not_spin_while_less_than_the_resolution_of_the_clock_is_left(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer has expired, and by the clock its time has not come."""
    over = asyncio.Event()

    async def wait(_: Got) -> web.StreamResponse:
        await over.wait()
        return web.Response(status=202)

    server.behaviour = wait
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1))
    await server.wait(1)
    dispatcher = rig.dispatcher.dispatcher_of("u")
    assert dispatcher is not None
    monkeypatch.setattr(dispatcher, "_loop", SimpleNamespace(time=lambda: 0.0))
    async with asyncio.timeout(60):
        await dispatcher.stop(0.01)
    over.set()
