"""The addresses to which connections are opened, and the targets of URLs."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import uvloop
from aiohttp import web

from knative_gateway.dispatcher.posting.connecting import Connections
from knative_gateway.dispatcher.posting.connection import Response
from knative_gateway.dispatcher.posting.opening import DeniedError
from knative_gateway.dispatcher.posting.target import Target
from knative_gateway.security.destinations import Destinations
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer, accept

FIELDS = b"ce-specversion: 1.0\r\nce-id: 1\r\nce-source: /s\r\nce-type: t\r\n"


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


def made(*addresses: str, timeout_s: float = 2.0) -> Connections:
    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    return Connections(Destinations.parse(), ssl.create_default_context(), timeout_s, resolve)


async def post(connections: Connections, url: str) -> Response:
    return await connections.post(
        Target.of(url), FIELDS, b"", timeout_s=5.0, limit_of=lambda _status, _headers: 10
    )


async def test_the_next_address_is_tried(server: SubscriberServer) -> None:
    """Denied addresses are left out, and addresses without a listener are skipped."""
    port = Target.of(server.url()).port
    connections = made("169.254.169.254", "127.0.0.2", "127.0.0.1")
    assert (await post(connections, f"http://x.example:{port}/")).status == 202
    connections.close()


async def test_without_an_allowed_address_nothing_is_connected_to() -> None:
    connections = made("169.254.169.254", "fe80::1")
    with pytest.raises(DeniedError):
        await post(connections, "http://x.example/")
    connections.close()


async def test_a_name_without_addresses_is_an_error() -> None:
    connections = made()
    with pytest.raises(OSError, match="no address"):
        await post(connections, "http://x.example/")
    connections.close()


async def test_a_connection_takes_its_time_only() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    connections = Connections(Destinations.parse(), ssl.create_default_context(), 0.02, never)
    with pytest.raises(TimeoutError, match="no connection within 20 ms"):
        await post(connections, "http://x.example/")
    connections.close()


async def test_each_request_has_its_own_time() -> None:
    """One timer serves all connections. A request that ends earlier than those before it is not forgotten,
    and neither are those after it.
    """

    async def never(_: Got) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with SubscriberServer(never) as server:
        connections, loop = made("127.0.0.1"), asyncio.get_running_loop()
        began = loop.time()

        async def ended(timeout_s: float) -> float:
            with pytest.raises(TimeoutError):
                await connections.post(
                    Target.of(server.url()),
                    FIELDS,
                    b"",
                    timeout_s=timeout_s,
                    limit_of=lambda _status, _headers: 1,
                )
            return loop.time() - began

        longest = asyncio.create_task(ended(3600.0))
        await server.wait(1)
        times = [0.2, 0.05, 0.1, 0.05]
        for wanted, took in zip(times, await asyncio.gather(*map(ended, times)), strict=True):
            assert wanted <= took
        assert not longest.done()
        longest.cancel()
        await asyncio.wait([longest])
        await asyncio.sleep(0)
        assert not connections._in_use
        connections.close()


async def test_a_request_that_stops_waiting_leaves_no_connection_behind() -> None:
    """Otherwise its answer would be read as the answer to another request."""

    async def never(_: Got) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with SubscriberServer(never) as server:
        connections = made("127.0.0.1")
        waiting = asyncio.create_task(post(connections, f"http://x.example:{Target.of(server.url()).port}/"))
        await server.wait(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)
        assert not connections._in_use
        assert not connections._idle
        connections.close()


async def test_idle_connections_are_closed_in_time(
    server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knative_gateway.dispatcher.posting.connecting.KEEP_ALIVE_S", 0.02)
    connections = made("127.0.0.1")
    await post(connections, f"http://x.example:{Target.of(server.url()).port}/")
    assert connections._idle
    async with asyncio.timeout(60):
        while connections._idle:  # noqa: ASYNC110  no event reports it
            await asyncio.sleep(0.005)
    connections.close()


async def test_at_the_end_everything_is_closed(server: SubscriberServer) -> None:
    connections = made("127.0.0.1")
    await post(connections, f"http://x.example:{Target.of(server.url()).port}/")
    [[connection]] = connections._idle.values()
    connections.close()
    assert not connection.usable


def test_a_request_whose_time_is_up_leaves_those_of_others_alone() -> None:
    """On uvloop, as in production: its timers that are due at once have no `when`."""

    async def run() -> None:
        async with SubscriberServer() as healthy, SubscriberServer(never) as hanging:
            connections = made("127.0.0.1")
            for server in (healthy, hanging):
                target = Target.of(server.url())
                server.behaviour = accept
                await connections.post(
                    target, FIELDS, b"", timeout_s=5.0, limit_of=lambda _status, _headers: 1
                )
            hanging.behaviour = never
            ended: list[Response | OSError] = []
            begun = connections.begin(
                Target.of(hanging.url()),
                FIELDS,
                b"",
                timeout_s=0.0,
                limit_of=lambda _status, _headers: 1,
                ended=lambda _, end: ended.append(end),
            )
            assert begun is not None
            assert (await post(connections, healthy.url())).status == 202
            while not ended:  # noqa: ASYNC110  a request without time to live ends in a turn of the loop
                await asyncio.sleep(0)
            assert isinstance(ended[0], TimeoutError)
            with pytest.raises(TimeoutError):
                await connections.post(
                    Target.of(healthy.url()), FIELDS, b"", timeout_s=0.0, limit_of=lambda _status, _headers: 1
                )
            assert not connections._in_use
            assert len(healthy.got) == 2
            connections.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_a_request_that_cannot_begin_is_not_in_use(server: SubscriberServer) -> None:
    """Otherwise the answer would be kept without limit, and no caller waits for it."""
    connections = made("127.0.0.1")
    await post(connections, server.url())
    [[connection]] = connections._idle.values()
    connection._ended = lambda _, __: None  # what `begin` refuses
    with pytest.raises(AssertionError):
        await post(connections, server.url())
    assert not connections._in_use
    connections.close()


async def never(_: Got) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError
