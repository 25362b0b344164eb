"""Links are spread over connections: when a connection is full, when the peer refuses one, and when it stops
answering.
"""

import asyncio
import logging

import proton
import pytest

from amqp_streams import names
from amqp_streams.client import (
    EARLIEST,
    AfterOffset,
    ConnectError,
    Event,
    LinkError,
    LinkRefusedError,
    connect,
)
from amqp_streams.client.aio import Client
from amqp_streams.client.connection import protocol as protocols
from amqp_streams.errors import WireError
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.peer import Peer
from tests.amqp_streams.client.producing.test_producer import settle_loop

URL = "amqp://node"
TOO_MANY = proton.Condition(names.RESOURCE_LIMIT_EXCEEDED, "a connection has at most 3 links")


@pytest.fixture
def small(node: MemoryNode, monkeypatch: pytest.MonkeyPatch) -> MemoryNode:
    """A node that has room for 6 links on a connection, besides those of questions."""
    node.channel_max = 1
    monkeypatch.setattr(protocols, "SESSION_LINKS_MAX", 4)
    return node


async def test_links_without_room_go_to_another_connection(small: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client:
        consumers = [client.consumer(f"log-{number}") for number in range(20)]
        await asyncio.gather(*(consumer.open() for consumer in consumers))
        assert len(small.streams) == client._pool.connections == 4
        for number in range(20):
            small.outgoing[f"log-{number}"].append(Event(number).encode())
        for stream in small.streams:
            stream.peer.work()
            stream.pump()
        assert [[event.body for event in await consumer.receive()] for consumer in consumers] == [
            [number] for number in range(20)
        ]


async def test_a_lost_connection_concerns_its_own_links_and_all_find_room_again(small: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client:
        producers = [client.producer(f"log-{number}") for number in range(12)]
        await asyncio.gather(*(producer.open() for producer in producers))
        small.streams[0].cut()
        assert [producer.attached for producer in producers].count(True) >= 6
        await asyncio.gather(*(producer.send(Event(1)) for producer in producers))
        assert client._pool.connections == 2
        assert all(len(small.stored[f"log-{number}"]) == 1 for number in range(12))


async def test_connections_without_links_are_closed_but_for_one_in_reserve(small: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client:
        consumers = [client.consumer("log") for number in range(20)]
        await asyncio.gather(*(consumer.open() for consumer in consumers))
        assert client._pool.connections == 4
        for consumer in consumers:
            await consumer.close()
        await settle_loop()
        async with client.consumer("log"):
            await settle_loop()
            assert client._pool.connections == 1
        assert [stream.open for stream in small.streams] == [True, False, False, False]


async def test_a_link_that_is_refused_for_the_number_of_links_goes_to_another_connection(
    node: MemoryNode, caplog: pytest.LogCaptureFixture
) -> None:
    def full(peer: Peer, link: object) -> bool:
        if len(peer.senders) < 3:
            return False
        peer.refuse(link, TOO_MANY)
        return True

    node.holds = full
    async with connect(URL, retry=AT_ONCE) as client:
        consumers = [client.consumer("log", start=EARLIEST) for _ in range(10)]
        with caplog.at_level(logging.WARNING, "amqp_streams.client"):
            await asyncio.gather(*(consumer.open() for consumer in consumers))
        assert all(consumer.attached for consumer in consumers)
        assert [len(stream.peer.senders) for stream in node.streams] == [3, 3, 3, 1]
        assert (
            "link_refused log=log reason=amqp:resource-limit-exceeded: a connection has at most 3 links"
            in caplog.text
        )


async def test_a_refusal_that_every_connection_gives_is_raised(node: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.producer("other"):
        node.refused["log"] = proton.Condition(names.RESOURCE_LIMIT_EXCEEDED, "quota 'links' is used up")
        with pytest.raises(LinkRefusedError, match="quota 'links' is used up"):
            await client.consumer("log").open()
        assert len(node.streams) == 2


async def test_a_refusal_of_what_was_asked_for_is_raised_at_once(node: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.producer("other"):
        node.refused["log"] = proton.Condition(
            names.RESOURCE_LIMIT_EXCEEDED, "filters are too long", {"field": "filter"}
        )
        with pytest.raises(LinkRefusedError, match="too long"):
            await client.consumer("log").open()
        assert len(node.streams) == 1


async def test_questions_find_room_on_a_connection_full_of_links(small: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client:
        consumers = [client.consumer("log") for _ in range(6)]
        await asyncio.gather(*(consumer.open() for consumer in consumers))
        small.outgoing["log/$info"].extend([Event({"partitions": []}).encode()] * 30)
        answers = await asyncio.gather(*(client.info("log") for _ in range(30)))
        assert len(answers) == 30
        assert len(small.streams) == 1


async def test_a_thousand_links_of_a_log_ask_for_its_figures_once_or_twice(node: MemoryNode) -> None:
    node.capabilities = [names.CAPABILITY_EVENT_STREAMS]
    asked: list[object] = []
    node.on_attach = lambda peer, link: (
        asked.append(link) if str(link.remote_source.address).endswith("$info") else None
    )
    node.outgoing["log/$info"].extend([Event({"partitions": []}).encode()] * 9)
    async with connect(URL, retry=AT_ONCE) as client:
        consumers = [client.consumer("log", partition=number, start=AfterOffset(3)) for number in range(100)]
        await asyncio.gather(*(consumer.open() for consumer in consumers))
        assert len(asked) <= 2


async def test_an_engine_that_stops_processing_is_a_lost_connection(node: MemoryNode) -> None:
    node.channel_max = 1
    async with connect(URL, retry=AT_ONCE) as client:
        await attach_beyond(client)
        async with client.producer("log") as producer:
            await producer.send(Event(1))
        assert len(node.streams) == 2


async def attach_beyond(client: Client) -> None:
    """Attach a link as if the client had ignored the peer's channel-max."""
    wire = await client._pool.wire()
    wire._protocol._sessions.sessions_max = 9
    attachments = [wire.attach_receiver("log", lambda: None) for _ in range(3)]
    for attachment in attachments:
        assert "process error" in str(await attachment.ended)


async def test_a_node_that_closes_each_link_and_then_the_connection_is_come_back_to(node: MemoryNode) -> None:
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.producer("log") as producer,
        client.consumer("other") as consumer,
    ):
        stopping = proton.Condition(names.CONNECTION_FORCED, "the server is shutting down")
        for link in [link for link in node.attaches if not link.state & proton.Endpoint.REMOTE_CLOSED]:
            link.condition = stopping
            link.close()
        node.refused = {"log": stopping, "other": stopping}
        node.peer.senders.clear()
        node.work()
        await settle_loop()
        node.refused = {}
        node.peer.connection.condition = stopping
        node.peer.connection.close()
        node.work()
        await producer.send(Event("a"))
        node.outgoing["other"].append(Event("b").encode())
        node.work()
        assert [event.body for event in await consumer.receive()] == ["b"]


async def test_a_fault_in_what_a_link_does_with_its_news_ends_that_link_only(node: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log") as consumer:
        wire = await client._pool.wire()

        def fault() -> None:
            raise ZeroDivisionError

        broken = wire.attach_receiver("other", fault)
        await broken.wait()
        broken.link.grant(1)
        node.outgoing["other"].append(Event(1).encode())
        node.outgoing["log"].append(Event(2).encode())
        wire.flush()
        assert "ZeroDivisionError" in str(await broken.ended)
        node.work()
        assert [event.body for event in await consumer.receive()] == [2]
        assert len(node.streams) == 1


async def test_a_fault_of_ours_ends_a_consumer_with_an_error_and_not_in_silence(
    node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log") as consumer:
        monkeypatch.setattr(consumer, "_attach", lambda _wire: 1 / 0)
        node.lose()
        with pytest.raises(LinkError, match="internal error of the client: ZeroDivisionError"):
            await consumer.receive()


async def test_a_host_that_cannot_be_one_is_an_address_that_does_not_answer() -> None:
    async def no_host() -> None:
        async with connect(f"amqp://{'a' * 300}"):
            pass

    with pytest.raises(ConnectError, match="aaa:5672"):
        await no_host()


async def test_a_message_that_cannot_be_read_costs_nothing_but_itself(node: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log") as consumer:
        node.outgoing["log"].extend([Event(1).encode(), b"rubbish", Event(2).encode()])
        node.work()
        one, rubbish, two = await consumer.receive()
        assert (one.body, two.body) == (1, 2)
        with pytest.raises(WireError):
            assert rubbish.body
