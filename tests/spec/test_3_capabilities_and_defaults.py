"""Section 3: the connection capability, and the service for a peer without extensions."""

from typing import Any

import proton

from amqp_streams import names
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, filter_of, symbols
from amqp_streams.wire.types import Array, Symbol
from tests.amqp_streams.decoded import mapping
from tests.spec.reading import EARLIEST, ends, message


def offered(client: EnginePair) -> list[str]:
    found: Any = client.connection.remote_offered_capabilities
    return [str(each) for each in (found.elements if hasattr(found, "elements") else list(found))]


def test_the_node_offers_the_connection_capability(client: EnginePair) -> None:
    """3.1: "the event log node MUST indicate its support of this specification through the exchange of a
    connection capability".
    """
    assert "AMQP_EVENT_STREAMS_V1_0" in offered(client)


def test_a_peer_that_desires_the_capability_finds_it_offered_and_stays(node: InMemoryNode) -> None:
    """3.1: "If present in the desired-capabilities field of the open frame, the sender of the open MUST use
    the event streams extensions if the receiver if the open offers this capability, and it MAY shut down the
    connection if the capability is not offered."
    """
    peer = ScriptedPeer(node)
    answer = peer.open(desired_capabilities=Array(Symbol, (Symbol(names.CAPABILITY_EVENT_STREAMS),)))
    assert names.CAPABILITY_EVENT_STREAMS in symbols(answer.fields["offered-capabilities"])
    (attach,) = peer.attach(0, source="temps", properties={Symbol(names.PARTITION): Symbol("2")})
    assert attach.fields["properties"] == {names.PARTITION: "2"}


def test_a_producer_and_a_consumer_interact_as_with_any_regular_node(client: EnginePair) -> None:
    """3.2: "a producer or consumer MUST be able to successfully interact with a conforming event log
    implementation just as with any regular AMQP node".
    """
    receiver = client.receiver("temps", credit=10)
    (sent,) = client.send(
        client.sender("temps"), proton.Message(body="hello", subject="s", properties={"a": 1})
    )
    assert sent.outcome == "accepted"
    (arrived,) = receiver.arrived
    assert (arrived.message.body, arrived.message.subject) == ("hello", "s")
    assert mapping(arrived.message.properties) == {"a": 1}
    client.settle(arrived)
    client.node.run()


def test_no_rule_of_the_core_is_overridden(client: EnginePair) -> None:
    """3.2: "This specification does not modify or override any rules of the core AMQP 1.0 specification." No
    transfer without credit, no settled transfer if unsettled ones were requested, and a detach is answered.
    """
    receiver = client.receiver("temps")
    client.send(client.sender("temps"), message())
    assert receiver.arrived == []
    client.flow(receiver, 1)
    assert [each.settled for each in receiver.arrived] == [False]
    receiver.link.close()
    client.node.run()
    assert receiver.link.state & proton.Endpoint.REMOTE_CLOSED


def test_a_consumer_that_chooses_no_partition_gets_an_agnostic_link(client: EnginePair) -> None:
    """3.2 (editors' list): without a chosen partition, the node assigns one, or the link is
    partition-agnostic. This node leaves it agnostic.
    """
    assert client.receiver("temps").link.remote_properties is None


def test_a_producer_needs_no_hints(node: InMemoryNode, client: EnginePair) -> None:
    """3.2 (editors' list): producers need no hints, the node chooses the partition. This node distributes
    events round-robin.
    """
    sent = client.send(client.sender("temps"), *(message() for _ in range(8)))
    assert {each.outcome for each in sent} == {"accepted"}
    assert ends(node) == [2, 2, 2, 2]


def test_no_filter_is_the_same_as_latest(node: InMemoryNode, client: EnginePair) -> None:
    """3.2 (editors' list): without a filter only events accepted after the attach are delivered, the same as
    '@latest'.
    """
    node.append("single", b"before")
    without, latest = (
        client.receiver("single", credit=10),
        client.receiver("single", credit=10, filters=filter_of("@latest")),
    )
    node.append("single", b"after")
    node.run()
    assert without.bodies == latest.bodies == [b"after"]


def test_delivery_state_is_the_source_termini_s_business(node: InMemoryNode, client: EnginePair) -> None:
    """3.2 (editors' list): all AMQP delivery-state tracking by the source terminus applies: a released event
    is delivered again.
    """
    node.append("single", b"a")
    receiver = client.receiver("single", credit=10, filters=EARLIEST)
    (first,) = receiver.take()
    client.settle(first, proton.Delivery.RELEASED)
    node.run()
    assert receiver.bodies == [b"a"]


def test_a_durable_terminus_keeps_its_cursor_and_says_so(client: EnginePair) -> None:
    """3.2 (editors' list): "if the source offers link durability the last offset is preserved across
    disconnects". The node offers it to clients that request it, and the answered source describes what is
    kept: its existence and configuration, without limit of time.
    """

    def durable(link: Any) -> None:
        link.source.durability = proton.Terminus.DELIVERIES
        link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER

    source = client.receiver("temps", prepare=durable).link.remote_source
    assert (source.durability, source.expiry_policy) == (
        proton.Terminus.CONFIGURATION,
        proton.Terminus.EXPIRE_NEVER,
    )
    source = client.receiver("temps").link.remote_source
    assert (source.durability, source.expiry_policy) == (
        proton.Terminus.NONDURABLE,
        proton.Terminus.EXPIRE_WITH_LINK,
    )
