"""If this machine lacks a resource, the subscriber is not the cause."""

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web

from knative_gateway.dispatcher.posting import opening, resolving
from knative_gateway.dispatcher.posting.connecting import Connections
from knative_gateway.dispatcher.posting.connection import connect
from knative_gateway.dispatcher.posting.target import Target
from knative_gateway.security.destinations import Destinations
from tests.knative_gateway.dispatcher.posting.test_connecting import FIELDS, never
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer, accept


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


LIMIT_S = 1.0
"""The time of a request, and of its connection. A busy machine takes less for a request to itself."""

LOCAL_ERRORS = 3


def made(resolve: resolving.Resolve | None = None, **more: Any) -> Connections:
    return Connections(Destinations.parse(), ssl.create_default_context(), LIMIT_S, resolve, **more)


async def status(connections: Connections, url: str, owner: str = "", timeout_s: float = LIMIT_S) -> int:
    answer = await connections.post(
        Target.of(url), FIELDS, b"", timeout_s=timeout_s, limit_of=lambda _status, _headers: 1, owner=owner
    )
    return answer.status


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL])
async def test_an_error_of_this_machine_is_waited_out(
    number: int, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error lasts longer than the request may take. That time does not count for the subscriber."""
    failing = [OSError(number, "out of something")] * LOCAL_ERRORS

    async def out_of_something(*place: Any) -> Any:
        if failing:
            raise failing.pop()
        return await connect(*place)

    monkeypatch.setattr(opening, "connect", out_of_something)
    monkeypatch.setattr(opening, "_LOCAL_WAIT_S", 1.2 * LIMIT_S / LOCAL_ERRORS)
    connections = made()
    assert await status(connections, server.url()) == 202
    assert connections.opener.local_errors == LOCAL_ERRORS
    assert len(server.got) == 1
    connections.close()


async def test_an_address_that_this_machine_cannot_have_is_an_error_of_the_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example `::1` on a system without IPv6."""

    async def unavailable(*_: Any) -> Any:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(opening, "connect", unavailable)
    connections = made()
    with pytest.raises(OSError, match="Cannot assign"):
        await status(connections, "http://[::1]:9/")
    connections.close()


async def test_the_time_for_which_a_lookup_waits_for_its_turn_does_not_count(
    server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving, "QUICK_MAX", 1)
    monkeypatch.setattr(resolving, "SLOW_MAX", 0)
    go_on = asyncio.Event()

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host == "slow.test":
            await go_on.wait()
        return ["127.0.0.1"]

    connections = made(resolve)
    port = Target.of(server.url()).port
    with pytest.raises(TimeoutError):
        await status(connections, f"http://slow.test:{port}/")
    waiting = asyncio.create_task(status(connections, f"http://quick.test:{port}/"))
    await asyncio.sleep(1.2 * LIMIT_S)  # longer than a request may take
    assert not waiting.done()
    go_on.set()
    assert await waiting == 202
    connections.close()


async def test_a_subscriber_that_hangs_leaves_connections_to_others(server: SubscriberServer) -> None:
    async with SubscriberServer(never) as hanging:
        connections = made(connections_max=8)
        hung = [asyncio.create_task(status(connections, hanging.url(), "hanging", 60.0)) for _ in range(20)]
        await hanging.wait(4)
        assert await status(connections, server.url(), "healthy") == 202
        assert (len(hanging.got), connections.slots.used) == (4, 4)
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        await asyncio.sleep(0)
        assert (connections.slots.used, connections.slots.waiting) == (0, 0)
        connections.close()


async def test_idle_connections_make_room_for_new_ones(server: SubscriberServer) -> None:
    connections = made(connections_max=2)
    async with SubscriberServer() as second, SubscriberServer() as third:
        for other in (server, second, third):
            assert await status(connections, other.url()) == 202
            assert connections.idle + connections.slots.used <= 2
    connections.close()


async def test_an_endpoint_whose_connections_are_all_in_use_does_not_keep_others_from_making_room() -> None:
    """The queue of its idle connections still exists, and is empty."""
    hangs = asyncio.Event()

    async def accept_once(got: Got) -> web.StreamResponse:
        return await (never(got) if hangs.is_set() else accept(got))

    connections = made(connections_max=2)
    async with (
        SubscriberServer(accept_once) as first,
        SubscriberServer() as second,
        SubscriberServer() as third,
    ):
        for other in (first, second):
            assert await status(connections, other.url()) == 202
        hangs.set()
        hung = asyncio.create_task(status(connections, first.url(), "hanging", 60.0))
        await first.wait(2)
        assert await status(connections, third.url(), "healthy") == 202
        hung.cancel()
        await asyncio.gather(hung, return_exceptions=True)
    connections.close()
