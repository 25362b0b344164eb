"""A member of a consumer group against a scripted node in memory."""

import asyncio

import proton
import pytest

from amqp_streams.client import (
    RELEASED,
    ClosedError,
    ConnectionLostError,
    LinkRefusedError,
    ReceivedEvent,
    RetryPolicy,
    connect,
)
from amqp_streams.client.consuming.group import GroupConsumer
from amqp_streams.client.consuming.pace import FIRST
from amqp_streams.proton import sessions
from tests.amqp_streams.client import peer as peers
from tests.amqp_streams.client.conftest import AT_ONCE, MemoryNode
from tests.amqp_streams.client.coordinator import FORCED, LOG, Coordinator
from tests.amqp_streams.client.producing.test_producer import settle_loop

URL = "amqp://node"


def positions(events: list[ReceivedEvent]) -> list[tuple[str | None, object]]:
    return [(event.partition, event.body) for event in events]


async def everything(consumer: GroupConsumer) -> list[tuple[str | None, object]]:
    """Return all events that are available now."""
    found: list[ReceivedEvent] = []
    while events := await consumer.receive(timeout=0):
        found += events
        await settle_loop()
    return positions(found)


async def test_attaches_wait_for_partitions_under_a_durable_source_up_to_their_number(
    node: MemoryNode,
) -> None:
    group = Coordinator(node, 6)
    async with connect(URL) as client, client.group_consumer(LOG, "g", candidates=4) as consumer:
        assert list(consumer.partitions) == []
        assert len(group.waiting) == 4
        for link in group.waiting:
            assert link.remote_properties == {"event-streams-consumer-group": "g"}
            assert link.remote_source.durability == proton.Terminus.DELIVERIES
            assert link.remote_source.expiry_policy == proton.Terminus.EXPIRE_NEVER
        await group.assign(0, 1, 2, 3)
        assert list(consumer.partitions) == ["0", "1", "2", "3"]
        assert len(group.waiting) == 2
        await group.assign(4, 5)
        assert len(group.waiting) == 0
        assert consumer.partitions == ("0", "1", "2", "3", "4", "5")


async def test_events_of_all_partitions_come_as_one_stream_each_in_its_order(node: MemoryNode) -> None:
    group = Coordinator(node, 2)
    async with connect(URL) as client, client.group_consumer(LOG, "g") as consumer:
        await group.assign(0, 1)
        await group.store(0, *range(20))
        await group.store(1, *range(20))
        found = await everything(consumer)
        for partition in ("0", "1"):
            assert [body for where, body in found if where == partition] == list(range(20))
        assert {where for where, _ in found[:10]} == {"0", "1"}


async def test_no_more_is_fetched_ahead_than_is_known_to_be_done_soon(node: MemoryNode) -> None:
    group = Coordinator(node, 1)
    async with connect(URL) as client, client.group_consumer(LOG, "g") as consumer:
        await group.assign(0)
        await group.store(0, *range(100))
        assert len(node.outgoing[f"{LOG}:0"]) == 100 - FIRST
        assert consumer.partitions == ("0",)


async def test_a_member_knows_why_an_attach_was_refused_until_one_is_not(
    node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqp_streams.client.consuming.group.AT_ONCE_S", 0.0)
    group = Coordinator(node, 1)
    async with connect(URL, retry=AT_ONCE) as client, client.group_consumer(LOG, "g") as consumer:
        assert consumer.refusal is None
        node.peer.refuse(group.waiting.pop(), FORCED)
        await group.move()
        assert consumer.refusal is not None
        assert consumer.refusal.description == "rebalance"
        while not group.waiting:
            await group.move()
        await group.assign(0)
        assert consumer.refusal is None
        assert consumer.partitions == ("0",)


async def test_credit_bounds_what_is_unsettled(node: MemoryNode) -> None:
    group = Coordinator(node, 1)
    async with connect(URL) as client, client.group_consumer(LOG, "g", settle="manual", credit=5) as consumer:
        await group.assign(0)
        await group.store(0, *range(100))
        kept: list[ReceivedEvent] = []
        while events := await consumer.receive(timeout=0):
            kept += events
            await group.move()
        assert len(kept) == 5
        assert await consumer.receive(timeout=0) == []
        consumer.settle(kept[:2])
        await group.move()
        assert [event.body for event in await consumer.receive(timeout=0)] == [5, 6]


async def test_automatic_settling_accepts_when_more_is_asked_for(node: MemoryNode) -> None:
    group = Coordinator(node, 2)
    async with connect(URL) as client:
        async with client.group_consumer(LOG, "g") as consumer:
            await group.assign(0, 1)
            await group.store(0, 0, 1)
            await group.store(1, 0)
            assert len(await consumer.receive()) == 3
            await group.move()
            assert node.outcomes == []
            await consumer.receive(timeout=0)
            await group.move()
            assert node.outcomes == [(int(peers.ACCEPTED), True)] * 3
            await group.store(1, 1)
            await anext(aiter(consumer))
        await group.move()
        assert node.outcomes == [(int(peers.ACCEPTED), True)] * 4
        assert sorted(group.left) == ["0", "1"]


async def test_leaving_by_an_exception_settles_nothing(node: MemoryNode) -> None:
    group = Coordinator(node, 1)
    async with connect(URL) as client:
        consumer = client.group_consumer(LOG, "g")
        await consumer.__aenter__()
        await group.assign(0)
        await group.store(0, 0, 1)
        await consumer.receive(1)
        await consumer.__aexit__(RuntimeError, RuntimeError("mine"), None)
        await group.move()
        assert node.outcomes == []
        assert group.left == ["0"]


async def test_each_event_is_settled_as_requested(node: MemoryNode) -> None:
    group = Coordinator(node, 2)
    async with connect(URL) as client, client.group_consumer(LOG, "g", settle="manual") as consumer:
        await group.assign(0, 1)
        await group.store(0, 0, 1)
        await group.store(1, 0)
        events = await consumer.receive()
        consumer.settle(events[:2], RELEASED)
        consumer.settle(events)
        await group.move()
        assert sorted(node.outcomes) == sorted(
            [(int(peers.RELEASED), True)] * 2 + [(int(peers.ACCEPTED), True)]
        )


async def test_a_partition_that_moves_away_is_reported_and_its_events_are_not_returned(
    node: MemoryNode,
) -> None:
    group, told = Coordinator(node, 2), list[str]()
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.group_consumer(
            LOG,
            "g",
            settle="manual",
            on_assigned=lambda name: told.append(f"+{name}"),
            on_revoked=lambda name: told.append(f"-{name}"),
        ) as consumer,
    ):
        await group.assign(0, 1)
        await group.store(0, 0, 1)
        [event] = await consumer.receive(1)
        assert not event.revoked
        await group.close(0)
        assert event.revoked
        assert consumer.partitions == ("1",)
        assert told == ["+0", "+1", "-0"]
        assert await consumer.receive(timeout=0) == []
        consumer.settle(event)
        await group.move()
        assert node.outcomes == []
        await group.assign(0)
        await group.store(0, 3)
        assert positions(await consumer.receive()) == [("0", 3)]
        assert told == ["+0", "+1", "-0", "+0"]


async def test_events_put_back_come_again_unless_their_partition_moved(node: MemoryNode) -> None:
    group = Coordinator(node, 2)
    async with connect(URL) as client, client.group_consumer(LOG, "g") as consumer:
        await group.assign(0, 1)
        await group.store(0, 0, 1)
        await group.store(1, 0)
        events = await consumer.receive()
        consumer.put_back([event for event in events if event.body != 1])
        await group.close(1)
        assert positions(await consumer.receive(timeout=0)) == [("0", 0)]
        await consumer.receive(timeout=0)
        await group.move()
        assert node.outcomes == [(int(peers.ACCEPTED), True)] * 2


async def test_a_node_that_refuses_is_asked_again_until_a_partition_is_free(node: MemoryNode) -> None:
    group = Coordinator(node, 2)
    group.refusing = True
    async with connect(URL, retry=AT_ONCE) as client, client.group_consumer(LOG, "g") as consumer:
        assert list(consumer.partitions) == []
        asked = len(node.attaches)
        for _ in range(5):
            await group.move()
        assert len(node.attaches) > asked
        group.refusing = False
        await group.move()
        assert len(group.waiting) == 1
        await group.assign(0)
        await group.assign(1)
        assert consumer.partitions == ("0", "1")


async def test_after_a_loss_the_links_come_back_under_their_names(node: MemoryNode) -> None:
    group, revoked = Coordinator(node, 2), list[str]()
    async with (
        connect(URL, retry=AT_ONCE) as client,
        client.group_consumer(LOG, "g", on_revoked=revoked.append) as consumer,
    ):
        await group.assign(0, 1)
        names_before = {link.name for link in group.holders.values()}
        await group.store(0, 0, 1)
        [event] = await consumer.receive(1)
        group.holders.clear()
        node.lose()
        await settle_loop()
        assert revoked == ["0", "1"]
        assert event.revoked
        assert {link.name for link in group.waiting} == names_before
        await group.assign(0)
        await group.store(0, 0, 1)
        assert positions(await consumer.receive()) == [("0", 0), ("0", 1)]


async def test_a_node_that_cannot_answer_after_a_loss_is_asked_again(node: MemoryNode) -> None:
    group = Coordinator(node, 1)
    async with connect(URL, retry=AT_ONCE) as client, client.group_consumer(LOG, "g") as consumer:
        await group.assign(0)
        group.holders.clear()
        node.refused[f"{LOG}/$info"] = proton.Condition("amqp:internal-error", "not now")
        node.lose()
        for _ in range(3):
            await group.move()
        assert group.waiting == []
        node.refused.clear()
        for _ in range(3):
            await group.move()
        await group.assign(0)
        assert consumer.partitions == ("0",)


async def test_when_no_connection_comes_back_receive_raises(node: MemoryNode) -> None:
    group, revoked = Coordinator(node, 1), list[str]()
    policy = RetryPolicy(attempts_max=2, first_ms=0)
    async with (
        connect(URL, retry=policy) as client,
        client.group_consumer(LOG, "g", on_revoked=revoked.append) as consumer,
    ):
        await group.assign(0)
        node.unreachable = 100
        node.lose()
        with pytest.raises(ConnectionLostError):
            await consumer.receive()
        assert revoked == ["0"]
        assert list(consumer.partitions) == []


async def test_a_permanent_refusal_is_raised_when_joining_and_later_by_receive(node: MemoryNode) -> None:
    group = Coordinator(node, 1)
    node.holds = lambda peer, link: False
    node.refused[LOG] = proton.Condition("amqp:unauthorized-access", "not yours")
    async with connect(URL) as client:
        with pytest.raises(LinkRefusedError, match="not yours"):
            async with client.group_consumer(LOG, "g"):
                pass
        node.refused.clear()
        node.holds = group._hold
        async with client.group_consumer(LOG, "g") as consumer:
            await group.assign(0)
            receiving = asyncio.create_task(consumer.receive())
            await settle_loop()
            await group.close(0, proton.Condition("amqp:resource-deleted", "the log was deleted"))
            with pytest.raises(Exception, match="the log was deleted"):
                await receiving
            with pytest.raises(Exception, match="the log was deleted"):
                await consumer.receive(timeout=0)


async def test_a_node_without_groups_is_not_read_as_if_it_had_them(node: MemoryNode) -> None:
    Coordinator(node, 1)
    node.holds = lambda peer, link: False
    async with connect(URL) as client:
        with pytest.raises(LinkRefusedError, match="does not support consumer groups"):
            async with client.group_consumer(LOG, "g"):
                pass


async def test_a_log_that_does_not_exist_is_refused(node: MemoryNode) -> None:
    Coordinator(node, 1)
    node.refused[f"{LOG}/$info"] = proton.Condition("amqp:not-found", "no such log")
    async with connect(URL) as client:
        with pytest.raises(LinkRefusedError, match="no such log"):
            async with client.group_consumer(LOG, "g"):
                pass


async def test_closing_abandons_what_waits_and_wakes_the_receiving_caller(node: MemoryNode) -> None:
    group = Coordinator(node, 3)
    async with connect(URL) as client:
        consumer = client.group_consumer(LOG, "g")
        with pytest.raises(ClosedError):
            await consumer.receive(timeout=0)
        await consumer.open()
        await group.assign(0)
        receiving = asyncio.create_task(consumer.receive())
        await settle_loop()
        await consumer.close()
        with pytest.raises(ClosedError):
            await receiving
        await group.move()
        assert group.waiting == []
        assert group.left == ["0"]
        with pytest.raises(ClosedError):
            await consumer.open()


async def test_unread_events_of_a_lost_partition_do_not_use_up_the_window(node: MemoryNode) -> None:
    """The links share a session: events that are dropped with one link must not delay the others."""
    group = Coordinator(node, 2)
    async with connect(URL, retry=AT_ONCE) as client, client.group_consumer(LOG, "g") as consumer:
        await group.assign(0, 1)
        for _ in range(30):
            node.outgoing[f"{LOG}:0"].clear()
            await group.store(0, *range(50))
            await group.close(0, FORCED)
            await group.assign(0)
        await group.store(1, *range(10))
        found = [body for partition, body in await everything(consumer) if partition == "1"]
        assert found == list(range(10))
        link = next(iter(consumer._shares))
        assert sessions.incoming_bytes(link.session.pointer) == 0
