"""Endpoints begin and end in any order, and the bytes of one peer never raise an exception, crash the node or
disturb another peer.
"""

import struct
from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import StorageError
from amqp_streams.server.dispatch import HANDLES_PER_LINK
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, filter_of, frame_of, terminus
from amqp_streams.wire.frames import Performative
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value

EVENT = b"\x00\x53\x75\xa0\x05event"


def condition(one: Performative) -> str:
    error = one.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(error.value[0])


def opened(node: InMemoryNode | None = None) -> ScriptedPeer:
    peer = ScriptedPeer(node or InMemoryNode({"temps": 2}))
    peer.open()
    return peer


def links(node: InMemoryNode) -> int:
    return sum(len(connection.find_links(lambda _link: True)) for connection in node.service.connections)


# -- coming and going


def test_a_detach_is_answered_with_a_closing_detach() -> None:
    """A detach that does not close gets the same answer, because some clients cannot handle the
    difference.
    """
    peer = opened()
    for handle, closed in ((0, True), (1, False)):
        peer.attach(handle, target="temps")
        peer.send("detach", handle=UInt(handle), closed=closed)
        (detach,) = peer.take("detach")
        assert (detach.fields["closed"], detach.fields["error"]) == (True, None)
    assert links(peer.node) == 0


def test_a_name_may_be_used_again_after_its_detach() -> None:
    peer = opened()
    for _ in range(3):
        (attach,) = peer.attach(0, target="temps")
        assert attach.fields["target"] is not None
        peer.send("detach", handle=UInt(0), closed=True)
        peer.take("detach")
    assert links(peer.node) == 0


def test_a_detach_and_an_attach_in_one_block_are_taken_in_order() -> None:
    peer = opened()
    peer.attach(0, target="temps")
    attach = frame_of(
        "attach",
        name="link-0",
        handle=UInt(0),
        role=False,
        source=terminus(0x28, None),
        target=terminus(0x29, "temps"),
        initial_delivery_count=UInt(0),
    )
    peer.write(frame_of("detach", handle=UInt(0), closed=True) + attach)
    assert len(peer.take("detach")) == len(peer.take("attach")) == 1
    assert links(peer.node) == 1
    peer.transfer(0, 0, EVENT)
    assert len(peer.take("disposition")) == 1


def test_open_begin_and_attach_may_come_at_once_and_attach_and_transfers_too() -> None:
    """Many clients do not wait for answers."""
    node = InMemoryNode({"temps": 1})
    attach: dict[str, Any] = {
        "source": terminus(0x28, None),
        "target": terminus(0x29, "temps"),
        "initial_delivery_count": UInt(0),
    }
    wire = [frame_of("open", container_id="fast")]
    wire += [frame_of("begin", next_outgoing_id=UInt(0), incoming_window=UInt(99), outgoing_window=UInt(99))]
    peer = ScriptedPeer(node)
    peer.write(b"".join([*wire, frame_of("attach", name="l9", handle=UInt(9), role=False, **attach)]))
    assert len(peer.take("attach")) == 1
    wire = []
    for handle in range(3):
        wire += [frame_of("attach", name=f"l{handle}", handle=UInt(handle), role=False, **attach)]
        wire += [
            frame_of(
                "transfer", EVENT, handle=UInt(handle), delivery_id=UInt(handle), delivery_tag=b"%d" % handle
            )
        ]
    peer.write(b"".join(wire))
    assert node.store.logs["temps"].partitions[0].end == 3


def test_the_end_of_a_session_ends_its_links_only() -> None:
    node = InMemoryNode({"temps": 2})
    peer = opened(node)
    peer.send(
        "begin", channel=1, next_outgoing_id=UInt(0), incoming_window=UInt(99), outgoing_window=UInt(99)
    )
    peer.attach(0, target="temps")
    peer.attach(0, target="temps", channel=1, name="other")
    peer.attach(1, target="nowhere")
    peer.send("end")
    assert len(peer.take("end")) == 1
    assert links(node) == 1
    peer.transfer(0, 0, EVENT, channel=1)
    assert len(peer.take("disposition")) == 1
    assert len(node.service.node.links_of("temps")) == 1


def test_a_link_name_attached_twice_does_no_harm() -> None:
    peer = opened()
    peer.attach(0, target="temps")
    peer.attach(1, target="temps", name="link-0")
    peer.transfer(0, 0, EVENT)
    peer.node.run()
    neighbour = EnginePair(peer.node)
    (sent,) = neighbour.send(neighbour.sender("temps"), EVENT)
    assert sent.outcome == "accepted"


def test_the_same_name_may_be_a_senders_and_a_receivers() -> None:
    """Names are unique for a direction only (AMQP 2.6.1)."""
    peer = opened()
    peer.attach(0, target="temps", name="both")
    peer.attach(1, source="temps", name="both")
    assert links(peer.node) == 2


# -- limits


def test_links_beyond_the_limit_are_refused_and_the_others_live_on() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for handle in range(3):
        assert len(peer.attach(handle, target="temps")) == 1
    _, detach = peer.attach(3, target="temps")
    assert condition(detach) == names.RESOURCE_LIMIT_EXCEEDED
    peer.transfer(0, 0, EVENT)
    assert len(peer.take("disposition")) == 1
    peer.send("detach", handle=UInt(0), closed=True)
    peer.take("detach")
    assert len(peer.attach(4, target="temps")) == 1, "there is room again"


def test_refused_links_that_are_never_detached_are_bounded_too() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for handle in range(3 * HANDLES_PER_LINK):
        peer.attach(handle, target="nowhere")
    assert not peer.lost
    peer.attach(99, target="nowhere")
    (close,) = peer.take("close")
    assert condition(close) == names.RESOURCE_LIMIT_EXCEEDED


def test_refused_links_that_are_detached_cost_nothing() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for _ in range(100):
        peer.attach(0, target="nowhere")
        peer.send("detach", handle=UInt(0), closed=True)
    assert len(peer.attach(0, target="temps")) == 1


def test_refused_links_of_a_session_end_with_it() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for _ in range(30):
        peer.send(
            "begin", channel=1, next_outgoing_id=UInt(0), incoming_window=UInt(99), outgoing_window=UInt(99)
        )
        peer.attach(0, target="nowhere", channel=1)
        peer.send("end", channel=1)
    assert not peer.lost


# -- disk


def test_a_disk_that_fails_while_a_log_is_made_refuses_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    node = InMemoryNode(auto_create_partitions=2)

    def broken(*_args: object, **_options: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(node.store, "create", broken)
        pair = EnginePair(node)
        assert pair.sender("made").refused == names.INTERNAL_ERROR
    assert pair.sender("made").refused is None
    assert len(node.store.logs["made"].partitions) == 2


# -- dispositions and flows on links of every kind


def test_dispositions_and_flows_of_every_kind_of_link_are_borne() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"a")
    peer = opened(node)
    earliest: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
    kinds: list[dict[str, Value]] = [
        {"source": "temps", "filters": earliest},
        {"source": "temps/$info"},
        {"source": "$management"},
        {"target": "temps"},
        {"target": "$management"},
        {"target": "nowhere"},
        {"source": "nowhere"},
    ]
    for handle, fields in enumerate(kinds):
        peer.attach(handle, **fields)  # type: ignore[arg-type]  # fields of any kind
        peer.flow(handle, 5, drain=True, echo=True)
        peer.flow(handle, 0, echo=True)
    for state in (0x23, 0x24, 0x25, 0x26, 0x27):
        for role in (True, False):
            peer.send(
                "disposition",
                role=role,
                first=UInt(0),
                last=UInt(20),
                settled=False,
                state=Described(ULong(state), []),
            )
    peer.send("disposition", role=True, first=UInt(0), last=UInt(20), settled=True)
    assert not peer.lost


@pytest.mark.parametrize(
    ("source", "beside"), [("temps", False), ("temps", True), ("temps/$info", True), ("nowhere", False)]
)
@pytest.mark.parametrize("settled", [None, True])
@pytest.mark.parametrize("tag", [b"x", struct.pack(">BBHQ", 0, 0, 60_000, 1 << 62)])
def test_a_transfer_against_the_direction_of_its_link_closes_the_connection(
    source: str, beside: bool, settled: bool | None, tag: bytes
) -> None:
    """AMQP 2.6: only the sender transfers. The engine would treat the transfer as a delivery of the node,
    with a tag that the peer chose.
    """
    peer = opened()
    if beside:
        peer.attach(1, target="temps")
    peer.attach(0, source=source)
    peer.flow(0, credit=10)
    peer.transfer(0, 0, b"\x00\x53\x77\x40", delivery_tag=tag, settled=settled)
    (closed,) = peer.take("close")
    assert condition(closed) == names.ILLEGAL_STATE


def test_a_consumer_among_other_links_gets_returned_events_back() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"a")
    pair = EnginePair(node)
    pair.sender("temps")
    receiver = pair.receiver("temps", credit=5, filters=filter_of("@earliest"))
    (each,) = receiver.take()
    pair.settle(each, proton.Delivery.RELEASED)
    node.run()
    assert receiver.bodies == [b"a"]
    pair.settle(receiver.take()[0])
    node.run()
    assert receiver.arrived == []


def test_many_producers_on_a_connection_are_all_served() -> None:
    node = InMemoryNode({"temps": 3})
    pair = EnginePair(node)
    senders = [pair.sender("temps") for _ in range(9)]
    sent = [sender.send(EVENT) for sender in senders for _ in range(5)]
    node.run()
    assert {each.outcome for each in sent} == {"accepted"}
