"""Consumers that own a partition, whose cursor the node keeps, or that start at the end of the log, against a
scripted node in memory.
"""

import asyncio

import proton
import pytest

from amqp_streams import names
from amqp_streams.client import (
    EARLIEST,
    AfterOffset,
    LinkRefusedError,
    OwnershipLostError,
    TimedOutError,
    connect,
)
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.wire.annotations import section
from amqp_streams.wire.codec import Array, Symbol
from tests.amqp_streams.client import peer as peers
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.consuming.test_consumer import URL, asked, info, numbers, record, records
from tests.amqp_streams.client.producing.test_producer import settle_loop

ASSIGNED = {"event-streams-partition": proton.symbol("3"), "event-streams-epoch": proton.ulong(7)}
STOLEN = proton.Condition("amqp:link:stolen", "a greater epoch")


def with_partitions(message: bytes, *partitions: str) -> bytes:
    """The message with one more annotation: the partitions that its link is associated with from now on."""
    event = ReceivedEvent(message)
    annotations = dict(event.delivery_annotations) | {
        names.ASSOCIATED_PARTITIONS: Array(Symbol, tuple(map(Symbol, partitions)))
    }
    return section(annotations) + event.encode()


async def end(node: MemoryNode, condition: proton.Condition) -> None:
    """The node closes the latest link."""
    link = node.attaches[-1]
    node.peer.senders.remove(link)
    link.condition = condition
    link.close()
    node.work()
    await settle_loop()


async def test_group_and_epoch_are_requested_and_the_granted_ones_reported(node: MemoryNode) -> None:
    node.link_properties = ASSIGNED
    async with connect(URL) as client, client.consumer("log", group="g", partition=3, epoch=7) as consumer:
        assert (consumer.partitions, consumer.epoch) == (("3",), 7)
    [link] = node.attaches
    assert link.remote_properties == {
        "event-streams-consumer-group": "g",
        "event-streams-partition": "3",
        "event-streams-epoch": 7,
    }
    assert isinstance(link.remote_properties["event-streams-partition"], proton.symbol)
    assert isinstance(link.remote_properties["event-streams-epoch"], proton.ulong)


async def test_an_owner_comes_back_under_its_name_and_epoch_after_the_last_event_taken(
    node: MemoryNode,
) -> None:
    node.link_properties = ASSIGNED
    node.outgoing["log"].extend(records(0, 4, 3))
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.consumer("log", group="g", partition=3, epoch=7, start=EARLIEST) as consumer,
    ):
        assert numbers(await consumer.receive()) == [0, 1, 2, 3]
        node.outgoing["log"].append(record(4, 3))
        node.lose()
        assert numbers(await consumer.receive()) == [4]
    first, second = node.attaches
    assert first.name == second.name
    assert first.remote_properties == second.remote_properties
    assert asked(second) == "0000000000000003"


async def test_a_replaced_owner_is_notified_and_does_not_compete(node: MemoryNode) -> None:
    node.link_properties = ASSIGNED
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.consumer("log", group="g", partition=3) as consumer,
    ):
        receiving = asyncio.create_task(consumer.receive())
        await settle_loop()
        await end(node, STOLEN)
        with pytest.raises(OwnershipLostError, match="a greater epoch"):
            await receiving
        with pytest.raises(OwnershipLostError):
            await consumer.receive(timeout=0)
    assert len(node.attaches) == 1


async def test_an_owner_that_was_replaced_while_it_was_away_learns_the_epoch(node: MemoryNode) -> None:
    node.link_properties = ASSIGNED
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.consumer("log", group="g", partition=3, epoch=7) as consumer,
    ):
        node.refused["log"] = proton.Condition(
            "amqp:resource-locked", "taken", {proton.symbol("event-streams-epoch"): "8"}
        )
        node.lose()
        with pytest.raises(OwnershipLostError, match="taken") as lost:
            await consumer.receive()
        assert lost.value.info == {"event-streams-epoch": "8"}


async def test_a_partition_that_another_has_is_a_refusal_at_first(node: MemoryNode) -> None:
    node.refused["log"] = proton.Condition("amqp:resource-locked", "taken")
    async with connect(URL, retry=AT_ONCE) as client:
        with pytest.raises(LinkRefusedError, match="taken"):
            async with client.consumer("log", group="g", partition=3):
                pass


async def test_a_partition_that_the_node_assigned_and_took_is_asked_for_again(node: MemoryNode) -> None:
    info(node, "log", {"0": "0000000000000005", "3": "0000000000000005"})
    node.link_properties = ASSIGNED
    node.outgoing["log"].extend(records(0, 6, 3))
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.consumer("log", group="g", start=EARLIEST) as consumer,
    ):
        assert len(await consumer.receive()) == 6
        node.link_properties = {"event-streams-partition": proton.symbol("0")}
        node.outgoing["log"].extend(records(0, 2, 0))
        await end(node, proton.Condition("amqp:link:detach-forced", "rebalance"))
        assert numbers(await consumer.receive()) == [
            0,
            1,
        ]  # nothing is taken for read because of what was read of the other
        assert consumer.partitions == ("0",)


async def test_an_attach_without_a_partition_may_be_kept_waiting(node: MemoryNode) -> None:
    waiting = []
    # Append returns None.
    node.holds = lambda peer, link: not waiting.append(link)  # type: ignore[func-returns-value]
    async with connect(URL) as client:
        consumer = client.consumer("log", group="g")
        opening = asyncio.create_task(consumer.open())
        await settle_loop()
        assert consumer.attach_s_max is None
        assert not opening.done()
        node.peer.take(waiting[0], ASSIGNED)
        node.work()
        await opening
        assert consumer.partitions == ("3",)
        await consumer.close()
        with pytest.raises(TimedOutError):
            await client.consumer("log", group="g").open(timeout=0.001)


async def test_a_node_without_groups_or_cursors_is_not_read_as_if_it_had_them(node: MemoryNode) -> None:
    async with connect(URL, container_id="me") as client:
        with pytest.raises(LinkRefusedError, match="does not support consumer groups"):
            async with client.consumer("log", group="g", partition=3):
                pass
        node.on_attach = lambda peer, link: None
        node.keeps_places = False
        with pytest.raises(LinkRefusedError, match="does not keep cursors"):
            async with client.consumer("log", durable="sub"):
                pass


async def test_a_durable_consumer_attaches_under_its_name_and_leaves_its_cursor_to_the_node(
    node: MemoryNode,
) -> None:
    info(node, "log", {"0": "0000000000000009"})
    node.outgoing["log"].extend(records(0, 3))
    async with (
        connect(URL, retry=AT_ONCE, container_id="me") as client,
        client.consumer("log", durable="sub", start=AfterOffset(0), settle="manual") as consumer,
    ):
        old = await consumer.receive()
        consumer.settle(old[0])
        await settle_loop()
        node.outgoing["log"].extend(records(1, 3))
        node.lose()
        assert numbers(await consumer.receive()) == [1, 2]  # what was not settled comes again
        assert [event.revoked for event in old] == [False, True, True]
        assert (await consumer.receive(timeout=0)) == []
    links = [link for link in node.attaches if link.remote_source.address == "log"]
    assert [link.name for link in links] == ["sub", "sub"]
    assert [link.remote_source.durability for link in links] == [proton.Terminus.DELIVERIES] * 2
    assert [link.remote_source.expiry_policy for link in links] == [proton.Terminus.EXPIRE_NEVER] * 2
    assert [asked(link) for link in links] == ["0000000000000000"] * 2
    assert node.outcomes == [(int(peers.ACCEPTED), True)]


async def test_a_durable_consumer_of_new_events_asks_for_nothing_else(node: MemoryNode) -> None:
    info(node, "log", {"0": "0000000000000009"})
    async with (
        connect(URL, retry=AT_ONCE, container_id="me") as client,
        client.consumer("log", durable="sub") as consumer,
    ):
        node.outgoing["log"].append(record(10))
        assert numbers(await consumer.receive()) == [10]
        node.outgoing["log"].append(record(11))
        node.lose()
        assert numbers(await consumer.receive()) == [11]
    assert [asked(link) for link in node.attaches if link.remote_source.address == "log"] == [None, None]


async def test_a_durable_consumer_needs_a_container_id_that_comes_back(node: MemoryNode) -> None:
    async with connect(URL) as client:
        with pytest.raises(ValueError, match=r"durable needs connect\(…, container_id=…\)"):
            client.consumer("log", durable="sub")
        client.consumer("log", durable="sub", group="g")  # the cursor is the group's


async def test_partitions_are_those_of_the_log_until_the_node_reports_others(node: MemoryNode) -> None:
    info(node, "log", {"0": None, "1": None})
    node.outgoing["log"].extend([record(0), with_partitions(record(1), "0", "2"), record(2, 2)])
    async with connect(URL) as client:
        consumer = client.consumer("log", start=EARLIEST)
        assert list(consumer.partitions) == []
        async with consumer:
            assert consumer.partitions == ("0", "1")
            events = await consumer.receive()
            assert [event.associated_partitions for event in events] == [None, ("0", "2"), None]
            assert consumer.partitions == ("0", "2")


async def test_an_event_that_cannot_be_decoded_is_returned_all_the_same(node: MemoryNode) -> None:
    broken = with_partitions(record(0), "5")[:-1] + b"\x00"
    node.outgoing["log"].extend([record(0), broken, record(1)])
    async with connect(URL) as client, client.consumer("log", start=EARLIEST) as consumer:
        assert len(await consumer.receive_raw()) == 3
        assert consumer.partitions == ("5",)


async def test_all_that_is_retained_has_been_looked_at_when_the_node_gives_credit_back(
    node: MemoryNode,
) -> None:
    node.drains = True
    node.outgoing["log"].extend(records(0, 25))
    async with connect(URL) as client, client.consumer("log", credit=10) as consumer:
        seen: list[object] = []
        while events := await consumer.receive_retained(4):
            seen += numbers(events)
        assert seen == list(range(25))
        node.outgoing["log"].extend(records(25, 40))
        node.work()
        assert len(await consumer.receive()) > 0  # and it continues as before
        while await consumer.receive_retained():
            pass
        assert consumer.positions == {"0": 39}


async def test_the_end_is_asked_for_again_after_a_loss_and_a_node_that_never_answers_is_a_timeout(
    node: MemoryNode,
) -> None:
    async with connect(URL, retry=AT_ONCE) as client, client.consumer("log", start=EARLIEST) as consumer:
        with pytest.raises(TimedOutError, match="did not reach the end"):
            await consumer.receive_retained(timeout=0.001)
        node.drains = True
        node.lose()
        assert await consumer.receive_retained() == []
