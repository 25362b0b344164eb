"""Connections of a real node: listed in pages, described with their links, and closed."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from amqp_streams import names
from amqp_streams.client import (
    NO_RETRY,
    AttachedLink,
    ConnectionInfo,
    ConnectionLostError,
    Event,
    Held,
    Management,
    ManagementError,
    Producer,
    Traffic,
    blocking,
    connect,
)
from amqp_streams.client.management.connections import connection_info, connection_page, query_body
from amqp_streams.wire.codec import Symbol, ULong
from tests.amqp_streams.client.running import RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--log=temps:2").start()
    yield running
    running.stop()


async def test_a_connection_is_found_described_and_closed(node: RunningNode) -> None:
    async with connect(node.url, container_id="operator") as client:
        name = await _until_closed(node, client.management)
        with pytest.raises(ManagementError) as missing:
            await client.management.describe_connection(name)
        assert missing.value.status == 404


async def _until_closed(node: RunningNode, management: Management) -> str:
    other = await connect(node.url, container_id="meter-7", retry=NO_RETRY).__aenter__()
    producer = await other.producer("temps").__aenter__()
    for _ in range(3):
        await producer.send(Event("x"))
    (found,) = await management.list_connections(search="METER-7")
    assert (found.container, found.producers, found.total.events_in) == ("meter-7", 1, 3)
    one = await management.describe_connection(found.name)
    assert [(link.role, link.log, link.events) for link in one.attached] == [("producer", "temps", 3)]
    assert replace(one, attached=(), rate=found.rate) == found
    await management.close_connection(found.name, reason="a test")
    with pytest.raises(ConnectionLostError, match="closed by an anonymous user: a test"):
        await _sending(producer)
    return found.name


async def _sending(producer: Producer) -> None:
    while True:
        await producer.send(Event("y"))


async def test_pages_have_all_connections_once(node: RunningNode) -> None:
    async with connect(node.url, container_id="operator") as client:
        others = [connect(node.url, container_id=f"page-{number}") for number in range(5)]
        await asyncio.gather(*(each.__aenter__() for each in others))
        pages, offset = [], 0
        while True:
            page = await client.management.connection_page(
                offset=offset, count=2, search="page-", sort="container"
            )
            pages.append([each.container for each in page.connections])
            assert page.total == 5
            if page.next is None:
                break
            offset = page.next
        assert pages == [["page-0", "page-1"], ["page-2", "page-3"], ["page-4"]]
        own = [each for each in await client.management.list_connections() if each.own]
        assert [each.container for each in own] == ["operator"]
        with pytest.raises(ManagementError) as refused:
            await client.management.close_connection(own[0].name)
        assert refused.value.status == 409
        await asyncio.gather(*(each.close() for each in others))


def test_the_blocking_client_has_the_same_calls(node: RunningNode) -> None:
    with blocking.connect(node.url, container_id="blocking") as client:
        (one,) = client.management.list_connections(search="blocking")
        assert client.management.connection_page(search="blocking").total == 1
        assert client.management.describe_connection(one.name).own
        with pytest.raises(ManagementError):
            client.management.close_connection("none")


# -- answers

ENTRY: dict[str, object] = {
    "name": "7f3a-1", "user": "alice", "mechanism": "PLAIN", "peer": "10.0.0.1:2", "container": "c",
    "protocol": "websocket", "tls": True, "state": "open", "since-ms": 5, "own": True, "links": 1,
    "producers": 0, "consumers": 1, "credit": 7, "unsettled": 3, "unread-bytes": 9, "events-in": 1,
    "bytes-in": 2, "events-out": 3, "bytes-out": 4, "events-in-per-second": 0.5,
    "bytes-in-per-second": 1.5, "events-out-per-second": 2.5, "bytes-out-per-second": 3.5,
    "held": [{"reason": "credit", "detail": "words", "links": 1}],
    "attached": [
        {
            "name": "l", "role": "consumer", "address": "temps", "log": "temps",
            "partitions": [Symbol("0")], "partition-count": 2, "group": "g", "epoch": ULong(3), "lag": 8,
            "credit": 7, "unsettled": 3, "events": 3, "bytes": 4,
            "held": {"reason": "credit", "detail": "words"},
        },
        {"name": "m", "role": "requests", "held": None},
    ],
}  # fmt: skip
READ = ConnectionInfo(
    "7f3a-1", "alice", "PLAIN", "10.0.0.1:2", "c", "websocket", True, "open", 5, True, 1, 0, 1, 7, 3, 9,
    Traffic(1, 2, 3, 4), Traffic(0.5, 1.5, 2.5, 3.5), (Held("credit", "words", 1),),
    (
        AttachedLink(
            "l", "consumer", "temps", "temps", ("0",), 2, "g", 3, 8, 7, 3, 3, 4, Held("credit", "words")
        ),
        AttachedLink("m", "requests"),
    ),
)  # fmt: skip


def test_entries_are_read_and_what_is_unknown_is_kept() -> None:
    assert connection_info(ENTRY) == READ
    assert connection_info(ENTRY | {"more": 1}).details["more"] == 1
    assert connection_info({"name": "x"}) == ConnectionInfo("x")


def test_values_of_other_types_become_nothing_and_never_an_error() -> None:
    broken: dict[str, object] = {key: [7] for key in ENTRY} | {"held": {}, "attached": "x", "name": "n"}
    assert connection_info(broken) == ConnectionInfo("n")


def test_a_page_without_entries_is_the_last_one() -> None:
    page = connection_page({"connections": [], "total": 9, "next": 3})
    assert (page.total, page.next) == (9, None)
    assert connection_page({}).total == 0
    assert connection_page({"connections": [ENTRY], "total": 9, "next": 1}).next == 1


def test_a_request_has_only_what_is_asked_for() -> None:
    assert query_body(None, None) == query_body("", "") == {}
    assert query_body("x", "user") == {names.CONNECTION_SEARCH: "x", names.CONNECTION_SORT: "user"}
