"""Ending a durable subscription over AMQP, on a node whose cursors have homes. Spec: AMQP 2.6.3."""

from collections.abc import Iterator
from typing import Any

import proton

from amqp_streams import names
from amqp_streams.errors import StorageError
from amqp_streams.homes.changing.asking import WITHIN_MS
from amqp_streams.node.writes import Wait
from amqp_streams.testing_amqp import EnginePair, Receiving, ScriptedPeer, terminus
from amqp_streams.wire.types import UInt
from tests.amqp_streams.server.links.test_pending import error_of
from tests.homed_node import HomedNode

LEASE_MS = 3000


def homed() -> HomedNode:
    node = HomedNode({"temps": 2, "other": 1})
    node.append("temps", b"0", b"1")
    return node


def subscribe(node: HomedNode, container: str = "app", **given: Any) -> tuple[EnginePair, Receiving]:
    pair = EnginePair(node, container=container)
    receiver = pair.receiver("temps", durable=True, name="sub", **given)
    assert not receiver.pending
    return pair, receiver


def end(node: HomedNode, container: str = "app") -> tuple[EnginePair, Receiving]:
    def without_source(link: Any) -> None:
        link.source.type = proton.Terminus.UNSPECIFIED

    pair = EnginePair(node, container=container)
    return pair, pair.receiver(None, name="sub", prepare=without_source)


def states(node: HomedNode) -> list[str]:
    return [key for values in node.topic.values for key in values if key != "home"]


def test_a_client_learns_what_is_kept_and_closing_it_ends_the_subscription() -> None:
    node = homed()
    node.disconnect(subscribe(node)[0])
    pair, kept = end(node)
    assert kept.link.remote_source.address == "temps"
    node.disconnect(pair)
    assert len(states(node)) == 2, "a connection that was lost ends nothing"
    pair, kept = end(node)
    pair.detach(kept)
    node.advance(200)
    assert states(node) == [], "the cursor and its owner"
    assert end(node)[1].refused == names.NOT_FOUND


def test_the_end_is_answered_when_it_is_in_the_topic() -> None:
    node = homed()
    node.disconnect(subscribe(node)[0])
    peer = ScriptedPeer(node)
    peer.open(container_id="app")
    peer.send("attach", name="sub", handle=UInt(0), role=True, target=terminus(0x29, None))
    node.advance(100)
    assert len(peer.take("attach")) == 1
    node.topic.away = True
    peer.send("detach", handle=UInt(0), closed=True)
    node.advance(500)
    assert peer.take("detach") == []
    node.topic.away = False
    node.advance(200)
    (detach,) = peer.take("detach")
    assert (detach.fields["closed"], detach.fields["error"]) == (True, None)
    assert states(node) == []


def test_the_end_without_kafka_is_an_error_in_bounded_time() -> None:
    node = homed()
    node.disconnect(subscribe(node)[0])
    peer = ScriptedPeer(node)
    peer.open(container_id="app")
    peer.send("attach", name="sub", handle=UInt(0), role=True, target=terminus(0x29, None))
    node.advance(100)
    node.topic.away = True
    peer.take("attach")
    peer.send("detach", handle=UInt(0), closed=True)
    node.advance(WITHIN_MS + 1000)
    (detach,) = peer.take("detach")
    condition, description = error_of(detach)[:2]
    assert condition == names.LINK_DETACH_FORCED
    assert "the subscription may not have ended: Kafka has not confirmed the change" in str(description)


def test_a_link_that_is_still_attached_is_closed() -> None:
    node = homed()
    _, receiver = subscribe(node, credit=0)
    # A connection of the same container at another node is a connection without this node's links.
    node.service.node._links.remove(receiver_grant(node))
    pair, kept = end(node)
    pair.detach(kept)
    node.advance(LEASE_MS + 500)
    assert receiver.refused == names.LINK_STOLEN
    assert states(node) == []


def receiver_grant(node: HomedNode) -> Any:
    (consumer,) = node.service.node.consumers()
    return consumer


def test_what_another_user_or_container_has_is_not_found() -> None:
    node = homed()
    node.disconnect(subscribe(node)[0])
    assert end(node, "stranger")[1].refused == names.NOT_FOUND
    assert len(states(node)) == 2


def test_a_subscription_that_this_node_has_not_read_is_looked_up_and_a_failure_is_not_absence() -> None:
    node = homed()

    def failing() -> Iterator[Wait]:
        wait = Wait()
        node.loop.call_later(0.01, lambda: wait.ended(StorageError("Kafka is away"), 0))
        yield wait
        raise StorageError("Kafka is away")

    subscriptions: Any = node.service.node.subscriptions.elsewhere
    subscriptions._refreshed = failing
    assert end(node)[1].refused == names.INTERNAL_ERROR


def test_a_name_that_cannot_have_a_cursor_is_refused() -> None:
    assert end(homed(), "")[1].refused == names.INVALID_FIELD
