"""Section 1: the event log as consumers see it."""

from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of
from tests.spec.reading import EARLIEST, message, offsets


def test_delivery_state_is_tracked_for_each_link(node: InMemoryNode, client: EnginePair) -> None:
    """Section 1: "they do not track message delivery state across competing receivers. The message delivery
    state is instead tracked for each link at its terminus."
    """
    node.append("single", b"a", b"b")
    first, second = (client.receiver("single", credit=10, filters=EARLIEST) for _ in range(2))
    for each in first.arrived:
        client.settle(each)
    node.run()
    assert first.bodies == second.bodies == [b"a", b"b"]


def test_a_receiver_may_indicate_an_initial_offset_and_continues_in_log_order(
    node: InMemoryNode, client: EnginePair
) -> None:
    """Section 1: "the receiver MAY indicate an initial offset into the retained event log. The delivery of
    events then progresses in log order from that initial offset to more recently added events."
    """
    node.append("single", *(b"%d" % number for number in range(10)))
    receiver = client.receiver("single", credit=100, filters=filter_of("0000000000000006"))
    node.append("single", b"10")
    node.run()
    assert receiver.bodies == [b"7", b"8", b"9", b"10"]


def test_omitting_the_offset_delivers_what_is_added_after_attaching(
    node: InMemoryNode, client: EnginePair
) -> None:
    """Section 1: "Omitting the offset results in delivery of events added after attaching the link." """
    node.append("single", b"before")
    receiver = client.receiver("single", credit=10)
    assert receiver.arrived == []
    client.send(client.sender("single"), message("after"))
    assert receiver.bodies == ["after"]


def test_default_behaviours_hold_when_no_capability_is_used(node: InMemoryNode) -> None:
    """Section 1: "they MUST implement the default behaviors defined here when those capabilities are not
    explicitly used."
    """
    plain = EnginePair(node, desired=None)
    receiver = plain.receiver("temps", credit=10)
    sent = plain.send(plain.sender("temps"), *(message(f"{number}") for number in range(8)))
    assert [each.outcome for each in sent] == ["accepted"] * 8
    assert sorted(receiver.bodies) == [f"{number}" for number in range(8)]


def test_the_terminus_keeps_the_cursor_while_the_link_is_active(
    node: InMemoryNode, client: EnginePair
) -> None:
    """Section 1: "the event log node's AMQP link terminus will keep track of the consumer offsets and
    delivery state while the link is active."
    """
    node.append("single", b"a", b"b", b"c")
    receiver = client.receiver("single", filters=EARLIEST)
    for wanted in (b"a", b"b", b"c"):
        client.flow(receiver, 1)
        assert receiver.bodies[-1] == wanted


def test_an_offset_that_was_delivered_is_where_a_new_link_resumes(
    node: InMemoryNode, client: EnginePair
) -> None:
    """Section 1: "Each message delivered to a consumer carries a delivery annotation (event-streams-offset)
    that the consumer can hold on to and use as the initial offset for a new link when it wants to resume
    suspended processing."
    """
    node.append("single", *(b"%d" % number for number in range(5)))
    first = client.receiver("single", credit=2, filters=EARLIEST)
    held = offsets(first)[-1]
    first.link.close()
    node.run()
    assert client.receiver("single", credit=10, filters=filter_of(held)).bodies == [b"2", b"3", b"4"]
