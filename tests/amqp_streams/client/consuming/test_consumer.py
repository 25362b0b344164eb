"""Consumers against a scripted node in memory."""

import asyncio
from typing import Any

import proton
import pytest

from amqp_streams.client import (
    EARLIEST,
    RELEASED,
    AfterOffset,
    ClosedError,
    ConnectionLostError,
    Event,
    LinkError,
    LinkRefusedError,
    ReceivedEvent,
    RetryPolicy,
    connect,
)
from amqp_streams.names import CAPABILITY_EVENT_STREAMS
from amqp_streams.wire.annotations import AnnotationWriter
from amqp_streams.wire.codec import Described, Symbol, decode
from tests.amqp_streams.client import peer as peers
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.producing.test_producer import settle_loop
from tests.amqp_streams.decoded import described, mapping

URL = "amqp://node"


def record(number: int, partition: int = 0) -> bytes:
    return AnnotationWriter(str(partition)).run(number, 1_700_000_000_000, 1)[0] + Event(number).encode()


def records(start: int, end: int, partition: int = 0) -> list[bytes]:
    return [record(number, partition) for number in range(start, end)]


def numbers(events: list[ReceivedEvent]) -> list[object]:
    return [event.body for event in events]


def asked(link: Any) -> object:
    """Return the start that an attach requested."""
    encoded = bytes(link.remote_source.filter.encode())
    if not encoded:
        return None
    filters, _ = decode(encoded)
    if not filters:
        return None
    start = described(mapping(filters)[Symbol("event-streams-start")])
    return next(iter(mapping(start.value).values()))


def info(node: MemoryNode, log: str, latest: dict[str, str | None], incarnation: str = "i") -> None:
    """Let `log/$info` return this answer to each request."""
    partitions = [
        {
            "partition": Symbol(name),
            "earliest-offset": None,
            "latest-offset": None if end is None else Symbol(end),
        }
        for name, end in latest.items()
    ]
    message = Event({"partitions": partitions, "log": log, "incarnation": incarnation}).encode()
    node.outgoing[f"{log}/$info"].clear()
    node.outgoing[f"{log}/$info"].extend([message] * 20)
    node.capabilities = [CAPABILITY_EVENT_STREAMS]


async def test_events_are_received_in_batches_and_one_by_one(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 10))
    async with connect(URL) as client, client.consumer("log") as consumer:
        assert numbers(await consumer.receive(4)) == [0, 1, 2, 3]
        one = await anext(aiter(consumer))
        assert (one.body, one.offset, one.partition) == (4, 4, "0")
        assert numbers(await consumer.receive(3)) == [5, 6, 7]
        assert numbers(await consumer.receive(500)) == [8, 9]
        assert await consumer.receive(500, timeout=0) == []
        assert await consumer.receive_raw(500, timeout=0.001) == []
        node.outgoing["log"].append(record(10))
        node.work()
        assert await consumer.receive_raw() == [record(10)]


async def test_receive_waits_for_the_first_event(node: MemoryNode) -> None:
    async with connect(URL) as client, client.consumer("log") as consumer:
        receiving = asyncio.create_task(consumer.receive())
        await settle_loop()
        assert not receiving.done()
        node.outgoing["log"].append(record(0))
        node.work()
        assert numbers(await receiving) == [0]


async def test_credit_comes_back_only_as_events_are_taken(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 100))
    async with connect(URL) as client, client.consumer("log", credit=20) as consumer:
        await settle_loop()
        assert len(node.outgoing["log"]) == 80
        await consumer.receive(4)
        await settle_loop()
        assert len(node.outgoing["log"]) == 80
        await consumer.receive(1)
        await settle_loop()
        assert len(node.outgoing["log"]) == 75


async def test_a_cancelled_receive_loses_nothing(node: MemoryNode) -> None:
    async with connect(URL) as client, client.consumer("log") as consumer:
        receiving = asyncio.create_task(consumer.receive())
        await settle_loop()
        node.outgoing["log"].extend(records(0, 3))
        receiving.cancel()
        node.work()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        assert numbers(await consumer.receive()) == [0, 1, 2]


async def test_automatic_settling_accepts_what_was_taken_when_the_next_is_taken(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 6))
    async with connect(URL) as client:
        async with client.consumer("log") as consumer:
            await consumer.receive(4)
            await settle_loop()
            assert node.outcomes == []
            await consumer.receive(1)
            await settle_loop()
            assert node.outcomes == [(int(peers.ACCEPTED), True)] * 4
        await settle_loop()
        assert len(node.outcomes) == 5


async def test_manual_settling_settles_as_requested_and_bounds_unsettled_events(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 30))
    async with connect(URL) as client, client.consumer("log", credit=8, settle="manual") as consumer:
        events = await consumer.receive(8)
        await settle_loop()
        assert await consumer.receive(8, timeout=0) == []
        consumer.settle(events[0])
        consumer.settle(events[1:4], RELEASED)
        consumer.settle(events[:4])
        await settle_loop()
        assert sorted(node.outcomes) == sorted(
            [(int(peers.ACCEPTED), True)] + [(int(peers.RELEASED), True)] * 3
        )
        assert numbers(await consumer.receive(8)) == [8, 9, 10, 11]
        with pytest.raises(ValueError, match="receive"):
            await consumer.receive_raw()


async def test_events_kept_unsettled_do_not_starve_the_others(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 60))
    async with connect(URL) as client, client.consumer("log", credit=20, settle="manual") as consumer:
        kept = await consumer.receive(18)
        seen = len(kept)
        while seen < 60:
            events = await consumer.receive(1)
            consumer.settle(events)
            seen += len(events)
        assert len(kept) == 18


async def test_much_more_credit_than_the_window_allows_is_not_a_deadlock(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 5000))
    async with connect(URL) as client, client.consumer("log", credit=100_000) as consumer:
        seen = 0
        while seen < 5000:
            seen += len(await consumer.receive(700))


async def test_without_settling_the_node_settles_as_it_sends(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 3))
    async with connect(URL) as client, client.consumer("log", settle="none") as consumer:
        assert numbers(await consumer.receive()) == [0, 1, 2]
    assert node.attaches[0].remote_snd_settle_mode == proton.Link.SND_SETTLED
    assert node.outcomes == []


async def test_after_a_loss_a_consumer_continues_after_the_last_event_taken(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 10))
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.consumer("log", partition=0, start=EARLIEST) as consumer,
    ):
        assert numbers(await consumer.receive(4)) == [0, 1, 2, 3]
        node.outgoing["log"].extend(records(4, 10))
        node.unreachable = 2
        node.lose()
        assert numbers(await consumer.receive()) == [4, 5, 6, 7, 8, 9]
        assert consumer.positions == {"0": 9}
    assert [asked(link) for link in node.attaches] == ["@earliest", "0000000000000003"]


async def test_several_partitions_continue_together_without_repeating_an_event(node: MemoryNode) -> None:
    info(node, "log", {"0": "0000000000000005", "1": "0000000000000002"})
    node.outgoing["log"].extend([*records(0, 4, 0), *records(0, 2, 1)])
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log", start=EARLIEST) as consumer:
        assert len(await consumer.receive()) == 6
        node.outgoing["log"].extend([record(2, 0), record(3, 0), record(2, 1), record(4, 0)])
        node.lose()
        assert [(event.partition, event.body) for event in await consumer.receive()] == [("1", 2), ("0", 4)]
    starts = [asked(link) for link in node.attaches if link.remote_source.address == "log"]
    assert starts == ["@earliest", "0000000000000001"]


async def test_new_events_only_means_none_is_missed_after_the_attach(node: MemoryNode) -> None:
    info(node, "log", {"0": "0000000000000005", "1": "0000000000000007"})
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log") as consumer:
        node.outgoing["log"].extend([record(6, 0), record(7, 1), record(8, 1)])
        node.lose()
        assert [(event.partition, event.body) for event in await consumer.receive()] == [("0", 6), ("1", 8)]
    starts = [asked(link) for link in node.attaches if link.remote_source.address == "log"]
    assert starts == [None, "0000000000000005"]


async def test_a_log_recreated_meanwhile_is_read_from_its_beginning(node: MemoryNode) -> None:
    info(node, "log", {"0": "0000000000000005"})
    node.outgoing["log"].extend(records(6, 8))
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.consumer("log", start=AfterOffset(5)) as consumer,
    ):
        assert numbers(await consumer.receive()) == [6, 7]
        info(node, "log", {"0": "0000000000000001"}, incarnation="another")
        node.outgoing["log"].extend(records(0, 2))
        node.lose()
        assert numbers(await consumer.receive()) == [0, 1]
    assert asked(node.attaches[-1]) == "@earliest"


async def test_events_of_a_lost_link_are_not_settled_on_the_next(node: MemoryNode) -> None:
    node.outgoing["log"].extend(records(0, 4))
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log", settle="manual") as consumer:
        old = await consumer.receive(2)
        node.outgoing["log"].append(record(2))
        node.lose()
        new = await consumer.receive()
        consumer.settle([*old, *new])
        await settle_loop()
    assert node.outcomes == [(int(peers.ACCEPTED), True)]


async def test_a_stolen_link_ends_the_consumer_with_the_nodes_words(node: MemoryNode) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log") as consumer:
        receiving = asyncio.create_task(consumer.receive())
        await settle_loop()
        link = node.attaches[0]
        link.condition = proton.Condition("amqp:link:stolen", "a greater epoch")
        link.close()
        node.work()
        with pytest.raises(LinkError, match="a greater epoch"):
            await receiving
        with pytest.raises(LinkError):
            await consumer.receive()


async def test_a_refused_attach_is_raised_at_once(node: MemoryNode) -> None:
    node.refused["log"] = proton.Condition("amqp:invalid-field", "bad filter")
    async with connect(URL) as client:
        with pytest.raises(LinkRefusedError, match="bad filter"):
            async with client.consumer("log"):
                pass


async def test_when_no_connection_comes_back_receive_raises(node: MemoryNode) -> None:
    async with (
        connect(URL, retry=RetryPolicy(attempts_max=2, first_ms=0)) as client,
        client.consumer("log") as consumer,
    ):
        node.unreachable = 100
        node.lose()
        with pytest.raises(ConnectionLostError):
            await consumer.receive()


async def test_a_closed_consumer_notifies_the_waiting_caller(node: MemoryNode) -> None:
    async with connect(URL) as client:
        consumer = client.consumer("log")
        await consumer.open()
        receiving = asyncio.create_task(consumer.receive())
        await settle_loop()
        await consumer.close()
        with pytest.raises(ClosedError):
            await receiving


async def test_the_nodes_link_properties_and_ones_own_are_passed(node: MemoryNode) -> None:
    node.link_properties = {"event-streams-partition": proton.symbol("2")}
    properties = {"event-streams-consumer-group": Symbol("g")}
    extra = {"sql": Described(Symbol("amqp:event-streams-sql-filter"), "TRUE")}
    async with (
        connect(URL) as client,
        client.consumer("log", properties=properties, filters=extra, partition=2) as consumer,
    ):
        assert consumer.link_properties == {"event-streams-partition": "2"}
    [link] = node.attaches
    assert link.remote_properties == {"event-streams-consumer-group": "g", "event-streams-partition": "2"}
    assert decode(bytes(link.remote_source.filter.encode()))[0] == {Symbol("sql"): extra["sql"]}


async def test_a_node_that_leaves_a_filter_out_is_not_read_unfiltered(node: MemoryNode) -> None:
    node.keeps_filters = False
    node.outgoing["log"].append(record(0))
    async with connect(URL, retry=AT_ONCE) as client:
        with pytest.raises(LinkRefusedError, match="does not support the filter event-streams-start"):
            async with client.consumer("log", start=EARLIEST):
                pass
        await settle_loop()
        assert node.peer.senders == []
        async with client.consumer("log") as consumer:
            assert numbers(await consumer.receive()) == [0]
