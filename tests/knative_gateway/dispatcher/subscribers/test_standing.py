"""Each state of an event at a subscriber is told apart, with real deliveries."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from knative_gateway.delivery import End
from knative_gateway.dispatcher.subscribers.standing import Kept, State, ahead, standing
from knative_gateway.ports import Delivery, Failure, Order
from tests.knative_gateway.dispatcher.rig import completed, event, subscriber
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer
from tests.knative_gateway.paths.rig import PathsRig


@pytest.fixture
async def rig() -> AsyncIterator[PathsRig]:
    async with PathsRig(partitions=1) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


async def test_an_event_is_in_flight_then_delivered_and_the_one_behind_it_waits(
    rig: PathsRig, server: SubscriberServer
) -> None:
    gate = asyncio.Event()

    async def slow(_: Got) -> web.Response:
        await gate.wait()
        return web.Response(status=202)

    server.behaviour = slow
    await rig.serve(subscriber("u", server.url(), order=Order.ORDERED))
    await rig.send(event(0), event(1))
    await rig.reaches(State.IN_FLIGHT, 0)
    await rig.reaches(State.WAITING, 1)
    gate.set()
    done = await rig.reaches(State.DELIVERED, 1)
    assert done["delivered"]["took_ms"] >= 0
    assert done["position"] == 1
    assert done["attempts"] == []


async def test_each_failed_attempt_is_listed_while_the_event_is_retried(
    rig: PathsRig, server: SubscriberServer
) -> None:
    server.answers = [web.Response(status=503, text="down"), web.Response(status=500)]
    delivery = Delivery(retry=5, backoff_delay_ms=300)
    await rig.serve(subscriber("u", server.url(), delivery=delivery))
    await rig.send(event(0))
    retrying = await rig.reaches(State.RETRYING)
    assert (retrying["attempts"][-1]["code"], retrying["attempts"][-1]["body"]) == (503, "down")
    done = await rig.reaches(State.DELIVERED)
    assert [(each["attempt"], each["code"]) for each in done["attempts"]] == [(2, 500), (1, 503)]
    # With steps in between, no time of a single request is noted.
    assert done["delivered"]["took_ms"] is None


async def test_a_dropped_event_is_dropped_until_a_redrive_delivers_it(
    rig: PathsRig, server: SubscriberServer
) -> None:
    server.answers = [400]
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(0))
    dropped = await rig.reaches(State.DROPPED)
    assert dropped["attempts"][0]["end"] == End.DROPPED
    gate = asyncio.Event()

    async def slow(_: Got) -> web.Response:
        await gate.wait()
        return web.Response(status=202)

    server.behaviour = slow
    # The clock of the records has milliseconds.
    await asyncio.sleep(0.003)
    assert await rig.dispatcher.redrive("u") == 1
    await rig.reaches(State.REDRIVING)
    gate.set()
    assert (await rig.reaches(State.DELIVERED))["attempts"][0]["end"] == End.DROPPED


async def test_a_paused_subscriber_has_not_reached_the_event_or_holds_it(
    rig: PathsRig, server: SubscriberServer
) -> None:
    await rig.serve(subscriber("u", server.url(), paused=True))
    await rig.send(event(0), event(1), event(2))
    row = await rig.state(2)
    assert row["paused"] is True
    assert row["state"] in {State.NOT_REACHED, State.WAITING}
    assert server.got == []


async def test_what_is_behind_the_position_without_a_record_is_said_to_be_not_known(
    rig: PathsRig, server: SubscriberServer
) -> None:
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(0))
    await completed(rig, "u", 1)
    dispatcher = rig.dispatcher.dispatcher_of("u")
    assert dispatcher is not None
    kept = Kept("0000000000000000", (), ())
    other = standing(dispatcher, kept, 0, "0000000000000000", "0")
    assert other.state is State.DELIVERED
    # A partition of another process: only what is stored is known.
    for offset, state in (("0000000000000000", State.COMPLETED), ("0000000000000001", State.NOT_COMPLETED)):
        elsewhere = standing(dispatcher, kept, 5, offset, "0")
        assert (elsewhere.state, elsewhere.is_ours) == (state, False)
    failed = Failure(1, "0", "/s", 5, "0000000000000001", 1, 503, "status 503", "")
    retried = standing(dispatcher, Kept("0000000000000000", (), [failed]), 5, "0000000000000001", "0")
    assert retried.state is State.RETRYING
    above = Kept("", (("0000000000000003", "0000000000000005"),), ())
    assert standing(dispatcher, above, 5, "0000000000000005", "0").state is State.COMPLETED
    assert standing(dispatcher, above, 5, "0000000000000003", "0").state is State.NOT_COMPLETED


async def test_a_failure_of_another_event_at_this_offset_is_not_shown(
    rig: PathsRig, server: SubscriberServer
) -> None:
    server.answers = [400]
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event("old"))
    await rig.reaches(State.DROPPED)
    dispatcher = rig.dispatcher.dispatcher_of("u")
    assert standing(dispatcher, Kept("", (), ()), 0, "0000000000000000", "new").attempts == []


def test_a_subscriber_that_is_not_served_has_only_what_is_stored() -> None:
    assert standing(None, Kept("", (), ()), 0, "0000000000000000", "1").state is State.NOT_SERVED


@pytest.mark.parametrize(("position", "events"), [("", 5), ("0000000000000004", 0), ("0000000000000001", 3)])
def test_the_events_before_it_are_counted(position: str, events: int) -> None:
    assert ahead(position, "0000000000000005") == events
