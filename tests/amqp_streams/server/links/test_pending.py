"""Attaches that wait for their answer attach and detach like other links."""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings, Limits
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.testing_amqp import (
    EnginePair,
    InMemoryNode,
    Receiving,
    ScriptedPeer,
    filter_of,
    frame_of,
    terminus,
)
from amqp_streams.wire.frames import Performative
from amqp_streams.wire.types import Described, Symbol, UInt, Value
from tests.amqp_streams.decoded import mapping

WAIT_MS = 30_000


def taken(partitions: int = 1) -> tuple[InMemoryNode, EnginePair, list[Receiving]]:
    """A log whose partitions all have an owner in group g."""
    node = InMemoryNode({"temps": partitions}, groups=GroupSettings(wait_ms=WAIT_MS))
    holder = EnginePair(node)
    return node, holder, [holder.receiver("temps", group="g") for _ in range(partitions)]


def links(node: InMemoryNode) -> int:
    return sum(len(connection.find_links(lambda _link: True)) for connection in node.service.connections)


def error_of(detach: Performative) -> list[Value]:
    error = detach.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return error.value


def waiting_script(node: InMemoryNode, **fields: Any) -> ScriptedPeer:
    """Return the script of a peer whose attach, handle 0, waits."""
    peer = ScriptedPeer(node)
    peer.open()
    assert peer.attach(0, source="temps", properties={Symbol(names.CONSUMER_GROUP): "g"}, **fields) == []
    return peer


# -- granted


def test_a_pending_attach_is_not_answered_until_a_partition_is_free() -> None:
    node, holder, (held,) = taken()
    waiting = EnginePair(node).receiver("temps", group="g", credit=10)
    assert waiting.pending
    node.append("temps", b"a")
    assert waiting.pending
    holder.detach(held)
    assert not waiting.pending
    assert waiting.answered == {names.PARTITION: "0", names.CONSUMER_GROUP: "g", names.EPOCH: 0}
    node.append("temps", b"b")
    node.run()
    assert waiting.bodies == [b"b"]


def test_credit_that_came_while_an_attach_was_pending_is_used() -> None:
    node, holder, (held,) = taken()
    node.append("temps", b"a", b"b")
    waiting = EnginePair(node).receiver("temps", group="g", credit=1, filters=filter_of("@earliest"))
    holder.detach(held)
    assert waiting.bodies == [b"a"]


def test_others_on_the_connection_of_a_pending_attach_are_served() -> None:
    node, _, _ = taken()
    pair = EnginePair(node)
    waiting = pair.receiver("temps", group="g", credit=10)
    reader, writer = pair.receiver("temps", credit=10), pair.sender("temps")
    assert pair.send(writer, b"\x00\x53\x75\xa0\x01a")[0].outcome == "accepted"
    pair.settle(reader.arrived[0])
    node.run()
    assert (waiting.pending, reader.bodies) == (True, [b"a"])


def test_a_connection_may_wait_for_what_it_holds_itself() -> None:
    _node, holder, (held,) = taken()
    waiting = holder.receiver("temps", group="g")
    assert waiting.pending
    holder.detach(held)
    assert waiting.answered[names.PARTITION] == "0"


# -- denied


def test_an_attach_that_has_waited_long_enough_is_refused_as_any_other() -> None:
    """AMQP 2.6.3: a null terminus and a closing detach."""
    node, _, _ = taken()
    peer = waiting_script(node)
    node.advance(WAIT_MS + 1000)
    (attach,), (detach,) = peer.take("attach"), peer.take("detach")
    assert attach.fields["source"] is None
    assert detach.fields["closed"] is True
    assert error_of(detach)[0] == names.LINK_DETACH_FORCED
    peer.send("detach", handle=UInt(0), closed=True)
    assert links(node) == 1
    assert peer.attach(0, source="temps")[0].fields["source"] is not None


def test_pending_attaches_count_as_links() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    EnginePair(node).receiver("temps", group="g")
    pair = EnginePair(node)
    waiting = [pair.receiver("temps", group="g") for _ in range(3)]
    assert all(each.pending for each in waiting)
    assert pair.receiver("temps").refused == names.RESOURCE_LIMIT_EXCEEDED


def test_a_deleted_log_lets_no_caller_wait() -> None:
    node, holder, (held,) = taken()
    waiting = EnginePair(node).receiver("temps", group="g")
    management, replies = holder.sender("$management"), holder.receiver("$management", credit=1)
    request = proton.Message(properties={"operation": "DELETE", "type": "event-log", "name": "temps"}, id=1)
    holder.send(management, request)
    assert mapping(replies.arrived[0].message.properties)["status-code"] == 204
    assert (held.refused, waiting.refused) == (names.RESOURCE_DELETED, names.RESOURCE_DELETED)


# -- gone meanwhile


@pytest.mark.parametrize("closed", [True, False])
def test_a_peer_may_take_its_pending_attach_back(closed: bool) -> None:
    """The handle is free only after both sides have attached and detached the link, so the node answers with
    an attach without a terminus.
    """
    node, holder, (held,) = taken()
    peer = waiting_script(node)
    peer.send("detach", handle=UInt(0), closed=closed)
    (attach,), (detach,) = peer.take("attach"), peer.take("detach")
    assert attach.fields["source"] is None
    assert (detach.fields["closed"], detach.fields["error"]) == (True, None)
    assert links(node) == 1
    holder.detach(held)
    assert peer.take("attach") == []
    assert EnginePair(node).receiver("temps", group="g").answered[names.PARTITION] == "0"


@pytest.mark.parametrize("closed", [True, False])
def test_a_pending_attach_that_is_withdrawn_and_repeated_in_one_block_waits_again(closed: bool) -> None:
    node, holder, (held,) = taken()
    peer = waiting_script(node)
    again: dict[str, Any] = {
        "name": "link-0",
        "handle": UInt(0),
        "role": True,
        "properties": {Symbol(names.CONSUMER_GROUP): "g"},
    }
    attach = frame_of("attach", **again, source=terminus(0x28, "temps"), target=terminus(0x29, None))
    peer.write(frame_of("detach", handle=UInt(0), closed=closed) + attach)
    assert not peer.lost
    assert [each.fields["source"] for each in peer.take("attach")] == [None]
    assert len(peer.take("detach")) == 1
    holder.detach(held)
    (granted,) = peer.take("attach")
    assert granted.fields["source"] is not None
    assert peer.take("detach") == []


def test_a_session_that_ends_takes_its_pending_attaches_with_it() -> None:
    node, holder, (held,) = taken()
    pair = EnginePair(node)
    waiting = pair.receiver("temps", group="g")
    pair.session.close()
    node.run()
    holder.detach(held)
    assert waiting.pending
    assert not pair.lost
    assert links(node) == 0


@pytest.mark.parametrize("politely", [True, False])
def test_a_connection_that_ends_takes_its_pending_attaches_with_it(politely: bool) -> None:
    node, holder, (held,) = taken()
    pair, patient = EnginePair(node), EnginePair(node)
    waiting = [pair.receiver("temps", group="g") for _ in range(3)]
    last = patient.receiver("temps", group="g")
    if politely:
        pair.connection.close()
        node.run()
    else:
        node.disconnect(pair)
    holder.detach(held)
    assert all(each.pending for each in waiting)
    assert last.answered[names.PARTITION] == "0"


@pytest.mark.parametrize("politely", [True, False])
def test_a_connection_that_holds_one_partition_and_waits_for_another_leaves_both_to_others(
    politely: bool,
) -> None:
    """The partition that it leaves must not be granted to its own waiting attaches."""
    node, holder, _ = taken(partitions=2)
    waiting = [holder.receiver("temps", group="g") for _ in range(2)]
    other = EnginePair(node)
    patient = [other.receiver("temps", group="g") for _ in range(2)]
    if politely:
        holder.connection.close()
        node.run()
    else:
        node.disconnect(holder)
        node.run()
    assert all(each.pending for each in waiting)
    assert sorted(each.answered[names.PARTITION] for each in patient) == ["0", "1"]


def test_a_node_that_stops_closes_the_connections_of_those_that_wait() -> None:
    node, _, _ = taken()
    peer = waiting_script(node)
    for connection in tuple(node.service.connections):
        connection.shut(PeerError(names.CONNECTION_FORCED, "stopping"))
    node.run()
    assert error_of(peer.take("close")[0])[0] == names.CONNECTION_FORCED
    assert peer.lost


# -- what is kept under a name


def test_a_receiver_without_a_source_learns_what_is_kept_under_its_name() -> None:
    node = InMemoryNode({"temps": 1})
    EnginePair(node, container="app").receiver("temps", durable=True, name="sub")
    pair = EnginePair(node, container="app")
    kept = pair.receiver(None, name="sub", credit=10)
    source = kept.link.remote_source
    assert (source.address, source.durability, source.expiry_policy) == (
        "temps",
        proton.Terminus.CONFIGURATION,
        proton.Terminus.EXPIRE_NEVER,
    )
    node.append("temps", b"a")
    assert kept.bodies == []
    kept.link.drain(0)
    node.run()
    assert kept.link.credit == 0


def ending(node: InMemoryNode) -> ScriptedPeer:
    """A peer that has closed its receiver without a source, handle 0, while the disk is busy."""
    holder = EnginePair(node, container="app")
    holder.detach(holder.receiver("temps", durable=True, name="sub"), closed=False)
    node.run()
    peer = ScriptedPeer(node)
    peer.open(container_id="app")
    peer.send("attach", name="sub", handle=UInt(0), role=True, target=terminus(0x29, None))
    assert len(peer.take("attach")) == 1
    node.store.states.held = True
    peer.send("detach", handle=UInt(0), closed=True)
    return peer


def test_the_end_of_a_subscription_is_answered_when_it_is_on_the_disk() -> None:
    """A client that has the answer must not find its cursor again after a crash. Other links do not wait."""
    node = InMemoryNode({"temps": 1})
    peer = ending(node)
    assert peer.take("detach") == []
    (other,) = peer.attach(1, name="other", source="temps")
    assert other.fields["source"] is not None
    node.store.states.complete()
    node.run()
    (detach,) = peer.take("detach")
    assert (detach.fields["closed"], detach.fields["error"]) == (True, None)
    assert node.store.states.durable == {}
    assert links(node) == 1


def test_the_end_of_a_subscription_that_the_disk_refuses_is_an_error() -> None:
    node = InMemoryNode({"temps": 1})
    peer = ending(node)
    node.store.states.fail(StorageError("the disk is gone"))
    node.store.states.complete()
    node.run()
    (detach,) = peer.take("detach")
    assert error_of(detach)[:2] == [names.INTERNAL_ERROR, "the disk is gone"]
    assert links(node) == 0


@pytest.mark.parametrize("way", ["session", "connection", "lost"])
def test_a_client_may_leave_before_the_end_of_its_subscription_is_on_the_disk(way: str) -> None:
    node = InMemoryNode({"temps": 1})
    peer = ending(node)
    if way == "session":
        peer.send("end")
    elif way == "connection":
        peer.send("close")
    else:
        node.disconnect(peer)
    node.run()
    assert links(node) == 0
    node.store.states.complete()
    node.run()
    assert peer.take("detach") == []
    assert node.store.states.durable == {}


def test_a_client_that_begins_again_in_the_block_that_ends_its_subscription_is_served() -> None:
    node = InMemoryNode({"temps": 1})
    peer = ending(node)
    again: dict[str, Any] = {"name": "sub", "handle": UInt(0), "role": True}
    peer.write(frame_of("attach", **again, source=terminus(0x28, "temps"), target=terminus(0x29, None)))
    node.store.states.complete()
    node.run()
    assert not peer.lost
    assert [each.fields["closed"] for each in peer.take("detach")] == [True]
    assert [each.fields["source"] is not None for each in peer.take("attach")] == [True]
