"""Section 4.5: consumer groups, ownership of partitions, and epochs."""

from collections.abc import Iterator
from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import Arrived, EnginePair, InMemoryNode, Receiving
from tests.homed_node import HomedNode
from tests.spec.reading import EARLIEST, bound
from tests.stores import on_directory

LOGS = {"temps": 4, "single": 1}
WAIT_MS = 30_000
PAUSE_MS = 3_000


@pytest.fixture(params=["memory", "directory", "homed"])
def node(request: pytest.FixtureRequest) -> Iterator[InMemoryNode]:
    """A node that decides about groups itself, or whose groups have homes, as on Kafka."""
    match request.param:
        case "memory":
            yield InMemoryNode(LOGS)
        case "homed":
            yield HomedNode(LOGS)
        case _:
            node = on_directory(LOGS)
            yield node
            node.store.close()


def member(group: str = "g", *, partition: int | None = None, epoch: int | None = None) -> dict[str, Any]:
    """Link properties of a member."""
    properties: dict[str, Any] = {names.CONSUMER_GROUP: group}
    if partition is not None:
        properties |= bound(partition)
    if epoch is not None:
        properties[names.EPOCH] = proton.ulong(epoch)
    return properties


def partition_of(receiving: Receiving) -> int | None:
    """Return the partition of a link; None before the answer to its attach, or for a partition-agnostic
    link.
    """
    told = (receiving.link.remote_properties or {}).get(names.PARTITION)
    return None if told is None else int(told)


def answered(receiving: Receiving) -> bool:
    return bool(receiving.link.state & (proton.Endpoint.REMOTE_ACTIVE | proton.Endpoint.REMOTE_CLOSED))


def settle_all(client: EnginePair, receiving: Receiving) -> list[Arrived]:
    taken = receiving.take()
    for each in taken:
        client.settle(each)
    client.node.run()
    return taken


def let_go(client: EnginePair, receiving: Receiving) -> None:
    """Close the link's own end, as a consumer does after the node closed the link."""
    receiving.link.close()
    client.node.run()


# -- 4.5


def test_a_link_may_be_bound_to_a_consumer_group(node: InMemoryNode, client: EnginePair) -> None:
    """4.5: "A consumer link MAY be bound to a consumer group by setting the event-streams-consumer-group link
    property to the name of the group during attach."
    """
    node.append("temps", b"a", partition=1)
    receiver = client.receiver("temps", credit=10, filters=EARLIEST, properties=member(partition=1))
    assert receiver.link.remote_properties == {
        names.CONSUMER_GROUP: "g",
        names.PARTITION: "1",
        names.EPOCH: 0,
    }
    assert receiver.bodies == [b"a"]


def test_a_group_is_created_by_the_first_attach(client: EnginePair) -> None:
    """4.5: "The consumer group MAY be dynamically created during link attach"."""
    for name in ("never heard of", "another", "Zürich"):
        assert client.receiver("temps", properties=member(name, partition=0)).refused is None


def test_a_group_may_have_to_be_configured() -> None:
    """4.5: "or the event log node MAY require for there to be a such named pre-configured entity, in which
    case attaching the link MAY fail if such an entity does not exist." 4.6.2: "and otherwise refuse to attach
    the link".
    """
    client = EnginePair(InMemoryNode({"temps": 4}, groups=GroupSettings(only=("billing", "team-*"))))
    assert client.receiver("temps", properties=member("other")).refused == names.NOT_FOUND
    for name in ("billing", "team-a"):
        assert client.receiver("temps", properties=member(name)).refused is None


@pytest.mark.parametrize("properties", [None, bound(1)])
def test_the_node_assigns_no_group_on_its_own(
    client: EnginePair, properties: dict[str, object] | None
) -> None:
    """4.5: "The event log node MUST NOT assign a consumer group on its own. Consumer group membership claims
    MUST be made by the consumer."
    """
    answer = client.receiver("temps", properties=properties).link.remote_properties or {}
    assert names.CONSUMER_GROUP not in answer
    assert names.EPOCH not in answer


@pytest.mark.parametrize("partition", [None, 2])
def test_a_link_in_a_group_is_bound_to_a_partition(client: EnginePair, partition: int | None) -> None:
    """4.5: "Links that are bound to consumer groups MUST also be bound to a partition; they cannot be
    partition-agnostic." 4.6.2: "A negotiated link carrying this property MUST be partition-bound."
    """
    told = client.receiver("temps", properties=member(partition=partition)).link.remote_properties
    assert told[names.CONSUMER_GROUP] == "g"
    assert isinstance(told[names.PARTITION], proton.symbol)
    assert partition is None or told[names.PARTITION] == str(partition)


def test_a_partition_in_a_group_has_at_most_one_active_link(node: InMemoryNode, client: EnginePair) -> None:
    """4.5: "the event log node MUST allow at most one active 'receive' link for each combination of partition
    and consumer group." Other groups, other partitions and links without a group are no such combination.
    """
    other = EnginePair(node, container="other")
    first = client.receiver("temps", properties=member(partition=1))
    assert other.receiver("temps", properties=member(partition=1)).refused == names.RESOURCE_LOCKED
    assert first.refused is None
    for properties in (member(partition=2), member("h", partition=1), bound(1)):
        assert other.receiver("temps", properties=properties).refused is None


# -- 4.5.1


def test_the_node_binds_a_member_that_asks_for_no_partition(client: EnginePair) -> None:
    """4.5.1: "If the consumer attaches a link scoped to a consumer group without specifying a partition, the
    event log node MAY bind a partition to the link". Each member gets another one.
    """
    members = [client.receiver("temps", properties=member()) for _ in range(4)]
    assert sorted(partition_of(each) or 0 for each in members) == [0, 1, 2, 3]


def test_when_no_partition_is_left_the_next_member_is_refused() -> None:
    """4.5.1: of two scenarios that may apply the first: consumers "MAY see their attach requests immediately
    rejected with a detach-forced error since there are no partitions left to assign". It is chosen by
    configuration: a wait of 0.
    """
    client = EnginePair(InMemoryNode({"temps": 4}, groups=GroupSettings(wait_ms=0)))
    for _ in range(4):
        assert client.receiver("temps", properties=member()).refused is None
    assert client.receiver("temps", properties=member()).refused == names.LINK_DETACH_FORCED


def test_or_the_next_member_waits_until_one_is_free(node: InMemoryNode, client: EnginePair) -> None:
    """4.5.1: of two scenarios that may apply the second: "keep further incoming attach requests pending and
    complete those only once a partition becomes again available for assignment".
    """
    members = [client.receiver("temps", properties=member()) for _ in range(4)]
    waiting = client.receiver("temps", properties=member())
    node.advance(1_000)
    assert not answered(waiting)
    let_go(client, members[2])
    assert partition_of(waiting) == 2


def test_the_limit_of_waiting_is_configured() -> None:
    """4.5.1: "Attach requests might therefore remain pending for a substantial time span, whose limits MAY be
    configurable".
    """
    node = InMemoryNode({"single": 1}, groups=GroupSettings(wait_ms=5_000, pause_ms=60_000))
    client = EnginePair(node)
    client.receiver("single", properties=member())
    waiting = client.receiver("single", properties=member())
    node.advance(4_000)
    assert not answered(waiting)
    node.advance(2_000)
    assert waiting.refused == names.LINK_DETACH_FORCED


def test_partitions_are_renegotiated_by_closing_links_gracefully(
    node: InMemoryNode, client: EnginePair
) -> None:
    """4.5.1: "If the event log node wants to force renegotiation of partition bindings amongst a consumer
    group, it SHOULD gracefully close all partition-bound links and the respective consumers SHOULD attempt to
    establish a new link". The node closes as many links as an even distribution requires and not all of them
    (docs/decisions), so the others are not disturbed. The consumer settles its events first.
    """
    richer = [client.receiver("temps", credit=10, filters=EARLIEST, properties=member()) for _ in range(4)]
    node.append("temps", b"a", partition=0)
    node.run()
    other = EnginePair(node, container="other")
    late = [other.receiver("temps", credit=10, filters=EARLIEST, properties=member()) for _ in range(2)]
    handed = 0
    for _ in range(8):
        node.advance(PAUSE_MS)
        for each in richer:
            settle_all(client, each)
            if each.refused is not None and each.link.state & proton.Endpoint.LOCAL_ACTIVE:
                assert each.refused == names.LINK_DETACH_FORCED
                let_go(client, each)
                handed += 1
    assert handed == 2
    held = [partition_of(each) for each in richer if each.refused is None] + [
        partition_of(each) for each in late
    ]
    assert sorted(each for each in held if each is not None) == [0, 1, 2, 3]


def test_a_disconnected_member_comes_back_without_a_partition(node: InMemoryNode, client: EnginePair) -> None:
    """4.5.1: "and the respective consumers SHOULD attempt to establish a new link, again with the consumer
    group, but without specifying a partition." Such an attach is served like any other.
    """
    members = [client.receiver("temps", properties=member()) for _ in range(4)]
    other = EnginePair(node, container="other")
    late = other.receiver("temps", properties=member())
    for _ in range(4):
        node.advance(PAUSE_MS)
        for each in members:
            if each.refused is not None and each.link.state & proton.Endpoint.LOCAL_ACTIVE:
                let_go(client, each)
    assert partition_of(late) is not None
    again = client.receiver("temps", properties=member())
    assert not answered(again), "all have an owner: it waits for its turn"
    let_go(other, late)
    assert partition_of(again) is not None


def test_links_in_a_group_are_never_left_agnostic(node: InMemoryNode, client: EnginePair) -> None:
    """4.5.1: "The event log node MAY also attach consumer group links while leaving them
    partition-agnostics". 4.5 forbids it, and the node does not do it. So no such link needs to learn "the new
    association" (SHOULD).
    """
    for index in range(4):
        node.append("temps", b"%d" % index, partition=index)
    receiver = client.receiver("temps", credit=10, filters=EARLIEST, properties=member())
    assert len(receiver.bodies) == 1
    assert names.ASSOCIATED_PARTITIONS not in receiver.arrived[0].annotations


# -- 4.5.2


def test_an_epoch_is_seeded_with_zero_and_answered_to_every_member(client: EnginePair) -> None:
    """4.5.2: "the event log node maintains a ulong-valued epoch counter, which is seeded with the value zero
    and is returned in the event-streams-epoch link property to the receiver during a successful attempt to
    attach." 4.6.3: "while at least one link is attached".
    """
    for partition in (1, None):
        epoch = client.receiver("temps", properties=member(partition=partition)).link.remote_properties[
            names.EPOCH
        ]
        assert epoch == 0
        assert isinstance(epoch, proton.ulong)


@pytest.mark.parametrize("kind", [proton.ulong, int, proton.int32, proton.ubyte])
def test_an_epoch_is_taken_as_any_integer_and_answered_as_a_ulong(client: EnginePair, kind: Any) -> None:
    """4.6.3: "a long integer value", where 4.5.2 has a ulong: both are taken."""
    told = client.receiver(
        "temps", properties=member(partition=1) | {names.EPOCH: kind(7)}
    ).link.remote_properties
    assert told[names.EPOCH] == 7
    assert isinstance(told[names.EPOCH], proton.ulong)


@pytest.mark.parametrize("epoch", [None, 0, 4, 5])
def test_a_second_link_is_rejected_unless_its_epoch_is_greater(
    node: InMemoryNode, client: EnginePair, epoch: int | None
) -> None:
    """4.5.2: "Any subsequent attempt to attach a link to the same combination of partition and consumer group
    of an already active link MUST be rejected UNLESS the newly attaching receiver provides an epoch counter
    greater than the current epoch counter value".
    """
    first = client.receiver("temps", properties=member(partition=1, epoch=5))
    second = EnginePair(node, container="other").receiver(
        "temps", properties=member(partition=1, epoch=epoch)
    )
    assert second.refused == names.RESOURCE_LOCKED
    assert first.refused is None


def test_a_greater_epoch_takes_the_partition_over(node: InMemoryNode, client: EnginePair) -> None:
    """4.5.2: "If the epoch counter is provided and greater than the current epoch value, any existing link
    for the given partition and consumer group is closed by the node, the new link is attached, and the new
    epoch counter value is recorded."
    """
    first = client.receiver("temps", credit=10, properties=member(partition=1, epoch=5))
    other = EnginePair(node, container="other")
    second = other.receiver("temps", credit=10, properties=member(partition=1, epoch=6))
    assert first.refused == names.LINK_STOLEN
    assert second.link.remote_properties[names.EPOCH] == 6
    node.append("temps", b"a", partition=1)
    node.run()
    assert (first.bodies, second.bodies) == ([], [b"a"])


def test_settlements_of_an_evicted_link_change_nothing(node: InMemoryNode, client: EnginePair) -> None:
    """4.5.2: "promptly take ownership of the partition, without asking for the previous owner's explicit
    cooperation": after that, settlements of the previous owner have no effect, also on the cursor of the
    group.
    """

    def durable(link: Any) -> None:
        link.source.durability = proton.Terminus.DELIVERIES
        link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER

    node.append("temps", b"a", b"b", b"c", partition=1)
    first = client.receiver(
        "temps", credit=10, filters=EARLIEST, properties=member(partition=1, epoch=1), prepare=durable
    )
    client.settle(first.arrived[0])
    node.run()
    other = EnginePair(node, container="other")
    second = other.receiver("temps", credit=10, properties=member(partition=1, epoch=2), prepare=durable)
    for each in first.arrived[1:]:
        client.settle(each)
    node.run()
    assert second.bodies == [b"b", b"c"]
    other.connection.close()
    node.run()
    node.disconnect(other)
    third = EnginePair(node, container="third").receiver(
        "temps", credit=10, properties=member(partition=1, epoch=3), prepare=durable
    )
    assert third.bodies == [b"b", b"c"], "the second one settled nothing"


def test_the_epoch_is_not_reset_when_its_link_ends(node: InMemoryNode, client: EnginePair) -> None:
    """4.5.2: "Whenever the link for a partition within a group is closed by the receiver and no links remain,
    the respective epoch counter MAY be reset to zero." 4.6.3 repeats it. The node keeps the epoch: otherwise
    a former owner could not be distinguished from its successor.
    """
    let_go(client, client.receiver("temps", properties=member(partition=1, epoch=5)))
    assert client.receiver("temps", properties=member(partition=1, epoch=4)).refused == names.RESOURCE_LOCKED
    again = client.receiver("temps", properties=member(partition=1))
    assert again.link.remote_properties[names.EPOCH] == 5


def test_the_epoch_survives_a_restart_of_the_node() -> None:
    """4.5.2: "the new epoch counter value is recorded": also for the next process."""
    store = MemoryStore()
    EnginePair(InMemoryNode({"temps": 4}, store=store)).receiver(
        "temps", properties=member(partition=1, epoch=5)
    )
    client = EnginePair(InMemoryNode(store=store))
    assert client.receiver("temps", properties=member(partition=1, epoch=4)).refused == names.RESOURCE_LOCKED
    assert (
        client.receiver("temps", properties=member(partition=1, epoch=5)).link.remote_properties[names.EPOCH]
        == 5
    )
