"""The progress of a redrive is known, and what has not begun can be cancelled."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.subscribers.redriving import Progress
from tests.knative_gateway.dispatcher.rig import Rig, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer

NOWHERE = "http://169.254.169.254/"
"""An address that the gateway refuses, so that each event is dropped at once."""


@pytest.fixture
def answer() -> asyncio.Event:
    """Set: the subscriber answers."""
    return asyncio.Event()


@pytest.fixture
async def server(answer: asyncio.Event) -> AsyncIterator[SubscriberServer]:
    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=202)

    async with SubscriberServer(slow) as running:
        yield running


async def dropped(rig: Rig, server: SubscriberServer, count: int) -> None:
    """Drop events, and let the subscriber be there then, with one request at a time."""
    await rig.serve(subscriber("u", NOWHERE))
    await rig.send(*(event(number, data=b"x" * 2000) for number in range(count)))
    await until(lambda: rig.dispatcher.figures("u")["dropped"] == count)
    await rig.serve(subscriber("u", server.url(), generation=2, in_flight_max=1))


async def test_the_progress_counts_what_has_ended(server: SubscriberServer, answer: asyncio.Event) -> None:
    async with Rig(partitions=1) as rig:
        await dropped(rig, server, 8)
        assert rig.dispatcher.redrives("u") == Progress(0, 0, 0)
        assert await rig.dispatcher.redrive("u") == 8
        await server.wait(1)
        assert rig.dispatcher.redrives("u") == Progress(8, 8, 0)
        answer.set()
        await until(lambda: rig.dispatcher.redrives("u") == Progress(8, 0, 0))
        assert len(server.got) == 8


@pytest.mark.parametrize("held_bytes_max", [8 << 20, 7000])
async def test_a_cancelled_redrive_delivers_only_what_had_begun(
    server: SubscriberServer, answer: asyncio.Event, held_bytes_max: int
) -> None:
    """With much room all events are read at once; with little, most of them wait as offsets."""
    settings = DispatchSettings(flush_ms=20, idle_flush_ms=20, drain_s=0.2, held_bytes_max=held_bytes_max)
    async with Rig(settings, partitions=1) as rig:
        await dropped(rig, server, 8)
        assert await rig.dispatcher.redrive("u") == 8
        await server.wait(1)
        assert rig.dispatcher.cancel_redrive("u") == 7
        assert rig.dispatcher.redrives("u") == Progress(8, 1, 7)
        assert rig.dispatcher.cancel_redrive("u") == 0
        answer.set()
        await until(lambda: rig.dispatcher.redrives("u").left == 0)
        # They are still in the history, and nothing of the cancelled redrive is left.
        assert await rig.dispatcher.redrive("u") == 8
        await until(lambda: rig.dispatcher.redrives("u") == Progress(8, 0, 0))
        assert len(server.got) == 9
        dispatcher = rig.dispatcher.dispatcher_of("u")
        assert dispatcher is not None
        assert dispatcher.redrives.held.used == 0


async def test_a_subscriber_that_is_not_served_has_no_redrive() -> None:
    async with Rig(partitions=1) as rig:
        for ask in (rig.dispatcher.redrives, rig.dispatcher.cancel_redrive):
            with pytest.raises(KeyError):
                ask("other")
