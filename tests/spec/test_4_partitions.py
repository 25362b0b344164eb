"""Section 4.1 to 4.4 and 4.6: partitions, and the links that are bound to them or not."""

from zlib import crc32

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.policy import Redirect
from amqp_streams.streams.redirects import Redirects
from amqp_streams.testing_amqp import Arrived, EnginePair, InMemoryNode
from tests.amqp_streams.decoded import condition, condition_info
from tests.spec.reading import EARLIEST, bound, ends, message, partitions


def elsewhere(*partitions: int, container: str | None = None) -> Redirects:
    """A configuration by which these partitions are another container's."""
    return Redirects(
        [Redirect(log="temps", partitions=partitions, host="other.example", port=5672, container=container)]
    )


# -- 4


def test_a_log_may_be_split_into_partitions_under_one_address(node: InMemoryNode, client: EnginePair) -> None:
    """4: "An event log MAY be split into multiple parallel partitions that are reachable under the same
    network address".
    """
    client.send(client.sender("temps"), *(message(target=str(index)) for index in range(4)))
    assert ends(node) == [1, 1, 1, 1]


def test_links_may_be_bound_or_agnostic(client: EnginePair) -> None:
    """4: "Those links MAY be bound to one specific partition (partition-bound), or they MAY be
    partition-agnostic."
    """
    for attach in (client.sender, client.receiver):
        assert attach("temps", properties=bound(1)).link.remote_properties == bound(1)
        assert attach("temps").link.remote_properties is None


def test_on_agnostic_links_producers_may_hint_with_each_transfer(
    node: InMemoryNode, client: EnginePair
) -> None:
    """4: "On partition-agnostic links, producers MAY provide transfer-level hints for which partition the
    transfer ought to be routed to."
    """
    client.send(client.sender("temps"), message(target="3"), message(target="0"), message(target="3"))
    assert ends(node) == [1, 0, 0, 2]


def test_a_link_is_redirected_to_the_container_that_has_its_partition(client: EnginePair) -> None:
    """4: "With link-level redirects, the event log node MAY refuse to attach a link, but rather point to a
    different AMQP container where the requested or assigned partition is available." AMQP 2.8.18: hostname,
    network-host, port and address say where.
    """
    client.node.service.node.redirects = elsewhere(1, container="neighbour")
    for attach in (client.sender, client.receiver):
        link = attach("temps", properties=bound(1)).link
        assert condition(link).name == names.LINK_REDIRECT
        told = condition_info(link)
        assert (told["network-host"], int(told["port"]), told["address"]) == ("other.example", 5672, "temps")
        assert attach("temps", properties=bound(0)).refused is None


def test_all_transfers_of_a_bound_link_belong_to_its_partition(
    node: InMemoryNode, client: EnginePair
) -> None:
    """4: "Partition-bound links provide the consumer with the assurance that all transfers belong to the
    given partition".
    """
    for index in range(4):
        node.append("temps", b"%d" % index, partition=index)
    receiver = client.receiver("temps", credit=100, filters=EARLIEST, properties=bound(2))
    node.append("temps", b"2", partition=2)
    node.run()
    assert receiver.bodies == [b"2", b"2"]


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_a_request_for_a_partition_that_is_not_granted_rejects_the_link(
    client: EnginePair, kind: str
) -> None:
    """4: "If the event log node is not willing grant the request for binding to a specific partition, it MUST
    reject (attach and immediately detach) the link."
    """
    attach = client.sender if kind == "producer" else client.receiver
    link = attach("temps", properties=bound(4))
    assert link.refused == names.NOT_FOUND
    assert link.link.state & proton.Endpoint.REMOTE_CLOSED
    own = link.link.remote_target if kind == "producer" else link.link.remote_source
    assert own.type == proton.Terminus.UNSPECIFIED, "attached with a null terminus first"


def test_the_node_binds_no_link_that_did_not_ask_unless_it_is_in_a_group(client: EnginePair) -> None:
    """4: "The responding event log node MAY bind any link to a partition if no partition binding has been
    requested by the producer or consumer. Whether the event log node assigns partition-bound or
    partition-agnostic links MAY be a configurable implementation choice." It is the link's choice here: a
    member of a consumer group is bound, everybody else is not, also where a log has but one partition.
    """
    for log in ("temps", "single"):
        assert client.sender(log).link.remote_properties is None
        assert client.receiver(log).link.remote_properties is None
        told = client.receiver(log, properties={names.CONSUMER_GROUP: "g"}).link.remote_properties
        assert isinstance(told[names.PARTITION], proton.symbol)


def test_links_closed_by_the_node_can_be_established_again(node: InMemoryNode, client: EnginePair) -> None:
    """4: "the event log wants to renegotiate those assignments, it MAY gracefully close some or all attached
    links. The respective consumer(s) SHOULD then attempt to establish a new link." 4.5.1 has how groups do;
    here a partition moves to another container.
    """
    receiver, stays = (
        client.receiver("temps", properties=bound(1)),
        client.receiver("temps", properties=bound(2)),
    )
    node.service.node.redirects = elsewhere(1)
    node.service.reassociate()
    node.run()
    assert receiver.refused == names.LINK_REDIRECT
    assert stays.refused is None
    node.service.node.redirects = Redirects()
    node.service.reassociate()
    assert client.receiver("temps", properties=bound(1)).refused is None


def test_partition_identifiers_are_symbols_learnt_from_the_runtime_information(client: EnginePair) -> None:
    """4: "Partition identifiers are opaque to consumers and producers and of type symbol. Consumers and
    producers learn about an event log node's available partitions and their identifiers using a runtime
    information request."
    """
    (answer,) = client.receiver("temps/$info", credit=1).arrived
    identifiers = [entry["partition"] for entry in answer.body["partitions"]]
    assert all(isinstance(each, proton.symbol) for each in identifiers)
    for each in identifiers:
        assert client.receiver("temps", properties={names.PARTITION: each}).refused is None


# -- 4.1, producers


def test_a_producer_may_be_bound(node: InMemoryNode, client: EnginePair) -> None:
    """4.1: "A producer MAY request for the 'send' link to be bound to a specific partition using the
    event-streams-partition link property."
    """
    client.send(client.sender("temps", properties=bound(1)), *(message() for _ in range(5)))
    assert ends(node) == [0, 5, 0, 0]


@pytest.mark.parametrize("partition", ["4", "-1", "00", "none", ""])
def test_a_producer_of_an_unknown_partition_is_rejected(client: EnginePair, partition: str) -> None:
    """4.1: "If the requested partition does not exist or if the event log node denies the request, attaching
    the link MUST be rejected (attached and immediately detached) by the event log node."
    """
    assert client.sender("temps", properties=bound(partition)).refused == names.NOT_FOUND


def test_a_bound_producer_learns_its_partition(client: EnginePair) -> None:
    """4.1: "If the link becomes partition-bound, the event log node MUST set the event-streams-partition link
    property to the bound partition."
    """
    properties = client.sender("temps", properties=bound(3)).link.remote_properties
    assert properties == {names.PARTITION: "3"}
    assert isinstance(properties[names.PARTITION], proton.symbol)


# -- 4.2, hints in producer transfers


def test_hints_may_be_a_target_partition_or_a_group_key(node: InMemoryNode, client: EnginePair) -> None:
    """4.2: "If a send link is partition-agnostic, the sender MAY provide partition-related hints to the event
    log node with the event-streams-target-partition delivery annotation or the event-streams-group-key
    message annotation."
    """
    sent = client.send(
        client.sender("temps"), message(target="2"), message(key="day-1"), message(key="day-1")
    )
    assert {each.outcome for each in sent} == {"accepted"}
    assert ends(node)[2] >= 1
    assert sum(ends(node)) == 3


def test_a_target_partition_that_matches_the_binding_is_accepted(
    node: InMemoryNode, client: EnginePair
) -> None:
    """4.2: "If the event-streams-target-partition delivery annotation is added to a transfer on a
    partition-bound link, its value MUST match the event-streams-partition link property's value."
    """
    (sent,) = client.send(client.sender("temps", properties=bound(1)), message(target="1"))
    assert sent.outcome == "accepted"
    assert ends(node) == [0, 1, 0, 0]


def test_a_target_partition_that_differs_from_the_binding_is_rejected(
    node: InMemoryNode, client: EnginePair
) -> None:
    """4.2: "Otherwise, the transfer MUST be rejected." """
    (wrong, right) = client.send(client.sender("temps", properties=bound(1)), message(target="2"), message())
    assert (wrong.outcome, wrong.condition) == ("rejected", names.NOT_ALLOWED)
    assert right.outcome == "accepted"
    assert ends(node) == [0, 1, 0, 0]


# -- 4.3, consumers


def test_a_consumer_may_be_bound(node: InMemoryNode, client: EnginePair) -> None:
    """4.3: "A consumer MAY request for the 'receive' link to be bound to a specific partition using the
    event-streams-partition link property."
    """
    node.append("temps", b"other", partition=0)
    node.append("temps", b"mine", partition=1)
    assert client.receiver("temps", credit=10, filters=EARLIEST, properties=bound(1)).bodies == [b"mine"]


@pytest.mark.parametrize("partition", ["4", "-1", "00", "none", ""])
def test_a_consumer_of_an_unknown_partition_is_rejected(client: EnginePair, partition: str) -> None:
    """4.3: "If the requested partition does not exist or if the event log node denies the request, attaching
    the link MUST be rejected by the event log node."
    """
    assert client.receiver("temps", properties=bound(partition)).refused == names.NOT_FOUND


def test_a_bound_consumer_learns_its_partition(client: EnginePair) -> None:
    """4.3: "If the link becomes partition-bound, the event log node MUST set the event-streams-partition link
    property to the bound partition."
    """
    properties = client.receiver("temps", properties=bound(3)).link.remote_properties
    assert properties == {names.PARTITION: "3"}
    assert isinstance(properties[names.PARTITION], proton.symbol)


# -- 4.4, annotations in consumer transfers


def test_transfers_on_agnostic_links_say_their_partition(node: InMemoryNode, client: EnginePair) -> None:
    """4.4: "The event-streams-source-partition delivery annotation MUST be added to all transfers to
    consumers made over partition-agnostic links."
    """
    for index in range(4):
        node.append("temps", b"%d" % index, partition=index)
    receiver = client.receiver("temps", credit=10, filters=EARLIEST)
    assert partitions(receiver) == [body.decode() for body in receiver.bodies]


def test_on_bound_links_the_partition_said_is_the_links(node: InMemoryNode, client: EnginePair) -> None:
    """4.4: "The annotation is OPTIONAL for transfers over partition-bound links, and if present, its value
    MUST be equal to the event-streams-partition link property value."
    """
    node.append("temps", b"a", b"b", partition=2)
    assert partitions(client.receiver("temps", credit=10, filters=EARLIEST, properties=bound(2))) == [
        "2",
        "2",
    ]


# -- 4.6, definitions


def test_a_property_set_by_the_node_is_the_effective_association(client: EnginePair) -> None:
    """4.6.1: "When set by the event log node, the value reflects the effective association. When not set on
    the negotiated link, the link is partition-agnostic."
    """
    assert client.sender("temps", properties=bound(0)).link.remote_properties == bound(0)
    assert client.sender("temps", properties={"unrelated": 1}).link.remote_properties is None


def test_every_delivery_of_a_partitioned_log_says_its_partition(
    node: InMemoryNode, client: EnginePair
) -> None:
    """4.6.4: "If the event log is partitioned, the delivery annotation MUST be added by the event log node
    before delivery to consumers." It is added always, as a symbol.
    """
    for log in ("temps", "single"):
        node.append(log, b"a")
        (arrived,) = client.receiver(log, credit=1, filters=EARLIEST).arrived
        assert isinstance(arrived.annotations[names.SOURCE_PARTITION], proton.symbol)


def test_a_forwarded_source_partition_is_replaced(node: InMemoryNode, client: EnginePair) -> None:
    """4.6.4: "A consumer MUST strip the annotation if it forwards the message onwards." The node removes
    received delivery annotations, so a consumer that does not strip it has no effect.
    """
    forwarded = message()
    forwarded.instructions = {
        proton.symbol(names.SOURCE_PARTITION): proton.symbol("77"),
        proton.symbol(names.OFFSET): proton.symbol("77"),
        proton.symbol("x-other"): "x",
    }
    client.send(client.sender("single"), forwarded)
    (arrived,) = client.receiver("single", credit=1, filters=EARLIEST).arrived
    assert arrived.annotations[names.SOURCE_PARTITION] == "0"
    assert arrived.annotations[names.OFFSET] == "0000000000000000"
    assert "x-other" not in arrived.annotations


def _told(arrived: Arrived) -> list[str] | None:
    """The partitions of the annotation, if it is there, under the name of the section's heading."""
    found = arrived.annotations.get("event-streams-associated-partitions-changed")
    if found is None:
        return None
    assert all(isinstance(each, proton.symbol) for each in found.elements)
    return list(found.elements)


def test_an_agnostic_consumer_is_notified_when_its_association_changes(
    node: InMemoryNode, client: EnginePair
) -> None:
    """4.6.5: "For all partition-agnostic consumer links, the event log node SHOULD add this annotation to the
    next transfer to the consumer every time the association of partitions with the link changes." It does
    when the link is attached, and when configuration moves partitions to another container and back.
    """
    node.append("temps", b"a", b"b")
    receiver = client.receiver("temps", credit=10, filters=EARLIEST)
    assert [_told(each) for each in receiver.take()] == [["0", "1", "2", "3"], None]
    for redirects, partitions_left in ((elsewhere(1, 2), ["0", "3"]), (Redirects(), ["0", "1", "2", "3"])):
        node.service.node.redirects = redirects
        node.service.reassociate()
        node.append("temps", b"c", b"d")
        node.run()
        assert [_told(each) for each in receiver.take()] == [partitions_left, None]


def test_a_target_partition_routes_the_transfer(node: InMemoryNode, client: EnginePair) -> None:
    """4.6.6: the annotation "describes the partition to which the transfer MUST be routed"."""
    client.send(client.sender("temps"), *(message(target="2") for _ in range(5)))
    assert ends(node) == [0, 0, 5, 0]


def test_on_a_link_bound_elsewhere_the_transfer_is_rejected(node: InMemoryNode, client: EnginePair) -> None:
    """4.6.6: "If the link is not partition-agnostic and if the link is not bound to the exact same partition,
    the transfer MUST be rejected."
    """
    (sent,) = client.send(client.sender("temps", properties=bound(0)), message(target="1"))
    assert sent.outcome == "rejected"
    assert sum(ends(node)) == 0


@pytest.mark.parametrize("properties", [None, bound(0)])
@pytest.mark.parametrize("target", ["4", "00", "none"])
def test_a_target_partition_that_does_not_exist_is_rejected(
    node: InMemoryNode, client: EnginePair, properties: dict[str, object] | None, target: str
) -> None:
    """4.6.6: "If the partition does not exist, the transfer MUST be rejected." """
    (sent,) = client.send(client.sender("temps", properties=properties), message(target=target))
    assert (sent.outcome, sent.condition) == ("rejected", names.NOT_FOUND)
    assert sum(ends(node)) == 0


def test_a_target_partition_is_stripped(client: EnginePair) -> None:
    """4.6.6: "The event log MUST strip the annotation once it has evaluated it." """
    client.send(client.sender("temps"), message(target="2"))
    (arrived,) = client.receiver("temps", credit=1, filters=EARLIEST).arrived
    assert names.TARGET_PARTITION not in arrived.annotations
    assert names.TARGET_PARTITION.encode() not in arrived.raw


def test_events_with_one_key_go_to_one_partition(node: InMemoryNode, client: EnginePair) -> None:
    """4.6.7: the key "identifies events that are related and SHOULD therefore be treated as a group for
    partitioning purposes".
    """
    client.send(client.sender("temps"), *(message(key="day-1") for _ in range(5)))
    client.send(client.sender("temps"), *(message(key="day-1") for _ in range(5)))
    assert sorted(ends(node)) == [0, 0, 0, 10]


def test_a_key_stays_with_its_partition_until_their_number_changes() -> None:
    """4.6.7: "the event log SHOULD bind transfers with the key to the same partition at all times and until
    the number of partitions changes." The same on another node, after a restart, by any program: CRC-32 of
    the key modulo the number of partitions.
    """
    for count in (1, 4, 7):
        node = InMemoryNode({"temps": count})
        client = EnginePair(node)
        for key in ("day-1", "day-2", "sensor", "Zürich", ""):
            before = ends(node)
            client.send(client.sender("temps"), message(key=key))
            (index,) = [index for index, end in enumerate(ends(node)) if end > before[index]]
            assert index == crc32(key.encode()) % count


def test_the_key_is_kept_with_the_event(client: EnginePair) -> None:
    """4.6.7: it is a message annotation, "allowing overrides as messages get routed through multiple
    partitioned intermediaries".
    """
    client.send(client.sender("temps"), message(key="day-1"))
    (arrived,) = client.receiver("temps", credit=1, filters=EARLIEST).arrived
    assert arrived.message.annotations == {names.GROUP_KEY: "day-1"}


def test_the_number_of_partitions_is_fixed(node: InMemoryNode) -> None:
    """4.6.7: "until the number of partitions changes": it never does."""
    with pytest.raises(ValueError, match="partitions"):
        node.store.update("temps", LogSettings(partitions=5))
