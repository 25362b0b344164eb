"""First attempts without a task: they have the same effects as deliveries with a plan."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from event_formats.http_binding import to_binary
from knative_gateway.delivery import Answer
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.subscribers.delivering import SubscriberDispatcher
from knative_gateway.ports import Delivery
from tests.knative_gateway.dispatcher.rig import Rig, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer


@asynccontextmanager
async def warm(
    server: SubscriberServer, delivery: Delivery | None = None, **settings: float
) -> AsyncIterator[tuple[Rig, SubscriberDispatcher]]:
    """A subscriber with an open connection: the next event is sent without a task."""
    async with Rig(replace(DispatchSettings(flush_ms=20, drain_s=0.05), **settings), partitions=1) as rig:  # type: ignore[arg-type]
        await rig.serve(subscriber("u", server.url(), delivery=delivery or Delivery()))
        await rig.send(event(0))
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 1)
        dispatcher = rig.dispatcher.dispatcher_of("u")
        assert dispatcher is not None
        yield rig, dispatcher


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


def held(server: SubscriberServer) -> asyncio.Event:
    """Answers wait for the returned event."""
    answer = asyncio.Event()

    async def slow(_: Got) -> web.StreamResponse:
        await answer.wait()
        return web.Response(status=202)

    server.behaviour = slow
    return answer


async def test_an_event_is_sent_without_a_task_over_an_open_connection(server: SubscriberServer) -> None:
    async with warm(server) as (rig, dispatcher):
        answer = held(server)
        await rig.send(event(1, data=b"x", datacontenttype="text/plain", knativebrokerttl=3))
        await server.wait(2)
        assert (len(dispatcher._first_attempts), len(dispatcher._tasks), dispatcher.figures.in_flight) == (
            1,
            0,
            1,
        )
        answer.set()
        await until(lambda: dispatcher.figures.delivered == 2)
        assert (len(dispatcher._first_attempts), dispatcher.figures.in_flight) == (0, 0)
        got = server.got[1]
        assert got.event == event(1, data=b"x", datacontenttype="text/plain")
        assert (got.headers["prefer"], got.headers["kn-namespace"]) == ("reply", "default")


async def test_the_request_is_a_child_in_the_trace_of_the_event(server: SubscriberServer) -> None:
    async with warm(server) as (rig, dispatcher):
        answer = held(server)
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await rig.send(event(1, traceparent=parent))
        got = (await server.wait(2))[1]
        assert dispatcher._first_attempts
        assert got.headers["traceparent"].startswith(parent[:36])
        assert got.headers["traceparent"] != parent
        answer.set()


async def test_after_a_failed_first_attempt_the_delivery_continues_with_a_plan(
    server: SubscriberServer,
) -> None:
    """The answer counts as the first attempt: it is recorded, and a retry follows after a wait."""
    async with warm(server, Delivery(retry=2)) as (rig, dispatcher):
        server.answers = [503, 429]
        await rig.send(event(1))
        await until(lambda: dispatcher.figures.delivered == 2)
        assert server.ids == ["0", "1", "1", "1"]
        assert (
            dispatcher.figures.failed_attempts,
            dispatcher.figures.retried,
            dispatcher.figures.in_flight,
        ) == (2, 2, 0)
        await until(lambda: [failure.attempt for failure in rig.store.failures.get("u", ())] == [1, 2])


async def test_after_a_reply_the_delivery_continues_with_a_plan(server: SubscriberServer) -> None:
    async with warm(server) as (rig, dispatcher):
        headers, body = to_binary(event("reply"))
        server.answers = [web.Response(body=body, headers=dict(headers))]
        await rig.send(event(1))
        await until(lambda: "reply" in server.ids)
        assert dispatcher.figures.replied == 1


async def test_an_event_that_met_a_closed_connection_is_sent_over_a_new_one() -> None:
    """The server closed the connection just when it was used again; that is not an attempt."""
    heads: list[bytes] = []
    close, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        await close.wait()
        writer.transport.abort()
        closed.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening, Rig(partitions=1) as rig:
        await rig.serve(subscriber("u", f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"))
        await rig.send(event(0))
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 1)
        [[connection]] = rig.dispatcher.connections._idle.values()
        connection._transport.pause_reading()  # the end is not seen before the next request
        close.set()
        await closed.wait()
        await rig.send(event(1))
        await until(lambda: rig.dispatcher.figures("u")["inFlight"] == 1)
        connection._transport.resume_reading()
        await until(lambda: rig.dispatcher.figures("u")["delivered"] == 2)
        assert rig.dispatcher.figures("u")["failedAttempts"] == 0
        assert rig.dispatcher.connections.resent == 1
    assert [b"ce-id: 1" in head for head in heads] == [False, True]


async def test_an_attempt_without_an_answer_in_time_fails(server: SubscriberServer) -> None:
    async with warm(server) as (rig, dispatcher):
        await rig.serve(subscriber("u", server.url(), delivery=Delivery(timeout_ms=50)))
        held(server)
        await rig.send(event(1))
        await until(lambda: dispatcher.figures.dropped == 1)
        await until(
            lambda: (
                [failure.reason for failure in rig.store.failures.get("u", ())][-1:]
                == ["no answer within 50 ms"]
            )
        )


async def test_a_stop_waits_for_events_in_flight(server: SubscriberServer) -> None:
    async with warm(server, drain_s=10) as (rig, dispatcher):
        answer = held(server)
        await rig.send(event(1))
        await server.wait(2)
        stopping = asyncio.create_task(rig.dispatcher.close())
        await until(lambda: dispatcher.scheduler.stopped)
        assert dispatcher._first_attempts
        assert not stopping.done()
        answer.set()
        await stopping
        assert rig.store.positions["u"] == {0: f"{1:016d}"}


async def test_a_stop_waits_for_a_limited_time(server: SubscriberServer) -> None:
    """The event is delivered again after the next start, also if the subscriber answers in the meantime."""
    async with warm(server) as (rig, dispatcher):
        answer = held(server)
        await rig.send(event(1))
        await server.wait(2)
        [attempt] = dispatcher._first_attempts
        await rig.dispatcher.close()
        attempt.accepted(1)
        attempt.answered(Answer(500, 1))
        attempt.not_received()
        answer.set()
        await until(lambda: not server.in_flight)
        assert (dispatcher.figures.in_flight, dispatcher.figures.delivered) == (0, 1)
        assert rig.store.positions["u"] == {0: f"{0:016d}"}


async def test_retries_go_to_the_new_url_of_a_subscriber(server: SubscriberServer) -> None:
    """An answer from the former URL is evaluated with the options of that attempt."""
    async with warm(server, Delivery(retry=3)) as (rig, dispatcher), SubscriberServer() as other:
        answer = asyncio.Event()

        async def refuse(_: Got) -> web.StreamResponse:
            await answer.wait()
            return web.Response(status=500)

        server.behaviour = refuse
        await rig.send(event(1))
        await server.wait(2)
        await rig.serve(subscriber("u", other.url(), delivery=Delivery(retry=3)))
        answer.set()
        await other.wait(1)
        assert (server.ids, other.ids) == (["0", "1"], ["1"])
        assert dispatcher.figures.failed_attempts == 1
