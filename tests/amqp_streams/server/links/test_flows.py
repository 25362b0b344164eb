"""Flows that the engine does not send by itself: every echo and every drain is answered, with exact numbers.

Spec: AMQP 2.6.7, 2.7.4.
"""

import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, filter_of, frame_of, terminus
from amqp_streams.wire.frames import Performative
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value

EARLIEST: Value = {
    Symbol("f"): Described(
        ULong(names.FILTER_DELIVERY_ANNOTATIONS_CODE), {Symbol(names.OFFSET): Symbol("@earliest")}
    ),
}

_SESSION = {
    "next_incoming_id": UInt(0),
    "incoming_window": UInt(1 << 20),
    "next_outgoing_id": UInt(0),
    "outgoing_window": UInt(1 << 20),
}


def peer_of(node: InMemoryNode) -> ScriptedPeer:
    peer = ScriptedPeer(node)
    peer.open()
    return peer


def numbers(flow: Performative) -> tuple[object, object, object]:
    return flow.fields["delivery-count"], flow.fields["link-credit"], flow.fields["drain"]


def of_link(flows: list[Performative], handle: int = 0) -> list[Performative]:
    return [flow for flow in flows if flow.fields["handle"] == handle]


@pytest.mark.parametrize("events", [0, 5])
def test_a_drain_without_credit_is_answered(events: int) -> None:
    """DrainCredit of go-amqp sends link-credit 0 and waits for a flow with drain."""
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"x"] * max(1, events))
    peer = peer_of(node)
    peer.attach(0, source="temps", filters=EARLIEST)
    if events:
        peer.flow(0, 3)
        assert len(peer.take("transfer")) == 3
    received = 3 if events else 0
    peer.take("flow")
    peer.flow(0, 0, drain=True, delivery_count=UInt(received))
    (flow,) = of_link(peer.take("flow"))
    assert numbers(flow) == (received, 0, True)
    assert flow.fields["next-outgoing-id"] == received


def test_a_drain_that_takes_back_credit_which_was_used_meanwhile_is_answered_with_what_was_sent() -> None:
    """The peer has not yet seen the events in flight."""
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"x"] * 5)
    peer = peer_of(node)
    peer.attach(0, source="temps", filters=EARLIEST)
    peer.flow(0, 5)
    peer.take("flow")
    peer.flow(0, 0, drain=True, delivery_count=UInt(2))
    (flow,) = of_link(peer.take("flow"))
    assert numbers(flow) == (5, 0, True)
    peer.flow(0, 2, delivery_count=UInt(5))
    node.append("temps", b"y", b"z")
    node.run()
    assert len(peer.take("transfer")) == 7, "credit goes on from there"


def test_a_drain_with_credit_is_answered_once() -> None:
    node = InMemoryNode({"temps": 1})
    peer = peer_of(node)
    peer.attach(0, source="temps")
    peer.flow(0, 7, drain=True)
    (flow,) = of_link(peer.take("flow"))
    assert numbers(flow) == (7, 0, True)
    peer.flow(0, 0, drain=True, delivery_count=UInt(7))
    (flow,) = of_link(peer.take("flow"))
    assert numbers(flow) == (7, 0, True)


@pytest.mark.parametrize("source", ["temps", "temps/$info", "$management"])
def test_an_echo_is_answered_on_whatever_this_node_sends_on(source: str) -> None:
    node = InMemoryNode({"temps": 1})
    peer = peer_of(node)
    peer.attach(0, source=source)
    peer.flow(0, 0, echo=True)
    (flow,) = of_link(peer.take("flow"))
    assert numbers(flow)[:2] == (0, 0)
    peer.flow(0, 0)
    assert of_link(peer.take("flow")) == []


def test_an_echo_says_the_credit_that_is_left() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"x")
    peer = peer_of(node)
    peer.attach(0, source="temps", filters=EARLIEST)
    peer.flow(0, 9, echo=True)
    (flow,) = of_link(peer.take("flow"))
    assert numbers(flow)[:2] == (1, 8)


@pytest.mark.parametrize("frame_bytes", [512, 4096, None])
@pytest.mark.parametrize("size", [10, 200])
def test_an_attach_is_answered_while_much_is_on_its_way_to_the_peer(
    size: int, frame_bytes: int | None
) -> None:
    """The engine's output then ends within a frame, or is larger than one read."""
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"x" * size] * 1000)
    peer = ScriptedPeer(node)
    peer.open(**({} if frame_bytes is None else {"max_frame_size": UInt(frame_bytes)}))
    peer.attach(0, source="temps", filters=EARLIEST)
    more = [
        frame_of(
            "attach",
            name=f"more-{handle}",
            handle=UInt(handle),
            role=True,
            source=terminus(0x28, "temps/$info"),
            target=terminus(0x29, None),
        )
        for handle in (5, 6)
    ]
    drains = [
        frame_of(
            "flow", **_SESSION, handle=UInt(handle), delivery_count=UInt(0), link_credit=UInt(0), drain=True
        )
        for handle in (5, 6)
    ]
    credit = frame_of("flow", **_SESSION, handle=UInt(0), delivery_count=UInt(0), link_credit=UInt(1000))
    peer.write(credit + b"".join(more) + b"".join(drains))
    assert [attach.fields["handle"] for attach in peer.take("attach")] == [1, 2]
    assert len(of_link(peer.take("transfer"))) >= 1000
    assert {1, 2} <= {flow.fields["handle"] for flow in peer.take("flow")}


def test_an_echo_names_the_link_by_the_handle_of_this_node() -> None:
    """The handle is not that of the peer: each side numbers the links in the order of its attaches."""
    node = InMemoryNode({"temps": 1})
    peer = peer_of(node)
    peer.attach(40, target="temps")
    peer.attach(7, source="temps")
    (attach,) = peer.attach(3, source="temps/$info")
    peer.take("flow")
    peer.flow(3, 0, echo=True)
    assert attach.fields["handle"] == 2
    assert {flow.fields["handle"] for flow in peer.take("flow")} == {None, 0, 1, 2}


def test_an_echo_of_the_session_is_answered() -> None:
    node = InMemoryNode({"temps": 1})
    peer = peer_of(node)
    peer.flow(None, echo=True)
    (flow,) = peer.take("flow")
    assert flow.fields["handle"] is None
    assert flow.fields["next-outgoing-id"] == 0


def test_many_echoes_to_a_producer_give_it_no_credit() -> None:
    node = InMemoryNode({"temps": 1})
    peer = peer_of(node)
    peer.attach(0, target="temps")
    (granted,) = peer.take("flow")
    for _ in range(50):
        peer.flow(0, 2000, echo=True)
    flows = of_link(peer.take("flow"))
    assert len(flows) == 50
    assert {numbers(flow)[1] for flow in flows} == {granted.fields["link-credit"]}


def test_every_producer_of_a_connection_answers_an_echo() -> None:
    node = InMemoryNode({"temps": 1})
    peer = peer_of(node)
    for handle in range(3):
        peer.attach(handle, target="temps")
    peer.take("flow")
    peer.flow(1, 2000, echo=True)
    assert {flow.fields["handle"] for flow in peer.take("flow")} >= {0, 1, 2}


@pytest.mark.parametrize("credit", [1 << 31, (1 << 32) - 1])
def test_more_credit_than_the_engine_counts_closes_the_link_and_says_so(credit: int) -> None:
    """The link would deliver nothing, without an error."""
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"x")
    peer = peer_of(node)
    peer.attach(0, source="temps", filters=EARLIEST)
    peer.attach(1, source="temps")
    peer.flow(0, credit)
    (detach,) = peer.take("detach")
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert error.value == [
        names.NOT_IMPLEMENTED,
        "a link-credit above 2147483647 is not supported: grant less credit at once",
    ]
    assert (detach.fields["handle"], detach.fields["closed"]) == (0, True)


def test_the_most_credit_that_the_engine_counts_is_used() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"x")
    peer = peer_of(node)
    peer.attach(0, source="temps", filters=EARLIEST)
    peer.flow(0, (1 << 31) - 1)
    assert len(peer.take("transfer")) == 1
    assert peer.take("detach") == []


def test_a_peer_that_takes_nothing_is_owed_its_flow_until_it_does() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[bytes(100)] * 5)
    peer = ScriptedPeer(node)
    peer.open_with_window(2)
    peer.attach(0, source="temps", filters=EARLIEST)
    session = {"next_incoming_id": UInt(0), "next_outgoing_id": UInt(0), "outgoing_window": UInt(9)}
    link = {"handle": UInt(0), "delivery_count": UInt(0)}
    peer.send("flow", **session, **link, incoming_window=UInt(2), link_credit=UInt(5))
    assert len(peer.take("transfer")) == 2
    peer.take("flow")
    session["next_incoming_id"] = UInt(2)
    peer.send("flow", **session, **link, incoming_window=UInt(0), link_credit=UInt(5), echo=True)
    assert of_link(peer.take("flow")) == []
    peer.send("flow", **session, incoming_window=UInt(9))
    assert len(peer.take("transfer")) == 3
    (flow,) = of_link(peer.take("flow"))
    assert numbers(flow)[:2] == (5, 0)


def test_drain_is_answered_when_too_much_is_unsettled_to_send_more() -> None:
    """A client that receives all events before it settles any would wait without end."""
    node = InMemoryNode({"temps": 1}, limits=Limits(unsettled=5))
    node.append("temps", *[b"%d" % number for number in range(20)])
    pair = EnginePair(node)
    receiver = pair.receiver("temps", filters=filter_of("@earliest"), credit=9)
    assert receiver.bodies == [b"0", b"1", b"2", b"3", b"4"]
    receiver.link.drain(0)
    node.run()
    assert (receiver.link.draining(), receiver.link.credit) == (False, 0)
    for each in receiver.take():
        pair.settle(each)
    pair.flow(receiver, 3)
    assert receiver.bodies == [b"5", b"6", b"7"]
