"""The wrapper of Proton's client shows the frames that it received."""

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import GroupSettings
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, filter_of


def test_a_delivery_shows_its_bytes_its_message_and_its_annotations() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"body")
    pair = EnginePair(node)
    (arrived,) = pair.receiver("temps", credit=1, filters=filter_of("@earliest")).take()
    assert arrived.raw.endswith(b"\x00\x53\x75\xa0\x04body")
    assert arrived.body == b"body"
    assert arrived.annotations["event-streams-offset"] == "0000000000000000"
    assert arrived.message is arrived.message
    assert not arrived.settled


def test_messages_and_bytes_are_sent_alike() -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node)
    sender = pair.sender("temps")
    assert sender.refused is None
    sent = pair.send(sender, proton.Message(body="a"), b"\x00\x53\x77\xa1\x01b", b"garbage")
    assert [(each.outcome, each.condition) for each in sent] == [
        ("accepted", None),
        ("accepted", None),
        ("rejected", "amqp:decode-error"),
    ]
    receiver = pair.receiver("temps", credit=10, filters=filter_of("@earliest"))
    assert receiver.bodies == ["a", "b"]
    assert len(receiver.take()) == 2
    assert receiver.take() == []


def test_a_connection_may_be_left_unopened_and_given_limits() -> None:
    node = InMemoryNode()
    pair = EnginePair(node, opened=False, max_frame=1024, idle_timeout_s=30, desired=["X"])
    node.run()
    assert pair.connection.state & proton.Endpoint.REMOTE_UNINIT
    pair.connection.open()
    node.run()
    assert pair.connection.remote_container == "amqp-streams"
    assert pair.transport.remote_idle_timeout == 30
    assert not pair.lost
    node.disconnect(pair)
    assert pair.lost


def test_a_link_shows_what_it_was_answered_and_why_it_was_refused() -> None:
    node = InMemoryNode({"temps": 1}, groups=GroupSettings(wait_ms=1000))
    pair = EnginePair(node)
    granted = pair.receiver("temps", group="g")
    assert (granted.pending, granted.refused, granted.info) == (False, None, {})
    assert granted.answered == {names.PARTITION: "0", names.CONSUMER_GROUP: "g", names.EPOCH: 0}
    waiting = pair.receiver("temps", group="g")
    assert (waiting.pending, waiting.answered) == (True, {})
    node.advance(2000)
    assert (waiting.pending, waiting.refused) == (False, names.LINK_DETACH_FORCED)
    wrong = pair.receiver("temps", partition=7, epoch=1)
    assert wrong.refused == names.NOT_FOUND
    assert pair.receiver("temps", properties={names.PARTITION: 7}).info == {"field": "properties"}


@pytest.mark.parametrize("closed", [True, False])
def test_a_link_that_was_detached_may_be_attached_again_under_its_name(closed: bool) -> None:
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node, container="app")
    for expected in ([], [b"a"]):
        receiver = pair.receiver("temps", name="sub", durable=True, credit=10)
        assert (receiver.refused, receiver.bodies) == (None, expected)
        pair.detach(receiver, closed=closed)
        if not expected:
            node.append("temps", b"a")
