"""Batches whose events take long to read: the node takes them in steps and serves others in between."""

from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.policy import Quota
from amqp_streams.server.identity.guard import Login
from amqp_streams.server.links import turns
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.streams.steps import EVENTS_A_STEP
from amqp_streams.testing_amqp import InMemoryNode, ScriptedPeer, frame_of
from amqp_streams.wire.codec import encode
from amqp_streams.wire.sequences import with_sequence
from amqp_streams.wire.types import Symbol, UInt
from tests.amqp_streams.server.iterations import let_connections_take
from tests.amqp_streams.server.sent_batches import (
    ACCEPTED,
    BATCH,
    azure,
    body,
    producing,
    states,
    stored,
)

STEPS = 5
COUNT = EVENTS_A_STEP * STEPS
NOTES = encode({Symbol("note"): None, Symbol(names.GROUP_KEY): "k"})
EXPENSIVE = b"\x00\x53\x72" + NOTES + body("x")
"""The key is not the first annotation, so the node walks through the annotations."""


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which each step takes all the time of its iteration."""
    let_connections_take(-1.0, monkeypatch)
    monkeypatch.setattr(turns, "BUDGET_S", 1e-9)


def transfer(message: bytes, number: int = 0) -> bytes:
    """The frame with a batch."""
    return frame_of(
        "transfer",
        message,
        handle=UInt(0),
        delivery_id=UInt(number),
        delivery_tag=b"%d" % number,
        message_format=BATCH,
    )


LARGE = transfer(azure(*[EXPENSIVE] * COUNT))
DETACH = frame_of("detach", handle=UInt(0), closed=True)


def count(node: InMemoryNode) -> int:
    """How many events of large batches are stored."""
    return sum(stored(node, index).count(EXPENSIVE) for index in range(2))


def opened(count: int = 1) -> tuple[InMemoryNode, list[ScriptedPeer]]:
    """A node and producers."""
    node = InMemoryNode({"temps": 2}, block_bytes=1 << 18)
    return node, [producing(node, name=str(number)) for number in range(count)]


def test_others_are_served_between_the_steps_of_a_batch() -> None:
    node, (peer, other) = opened(2)
    peer._out += LARGE
    node.turn()
    other._out += transfer(azure(body("small")))
    rounds = 0
    while node.turn():
        rounds += 1
        assert count(node) in {0, COUNT}, "all events of a batch are stored together"
    assert states(peer) == states(other) == {0: ACCEPTED}
    assert count(node) == COUNT
    assert rounds >= STEPS


def test_what_follows_a_batch_waits_for_its_last_step() -> None:
    node, (peer,) = opened()
    peer._out += LARGE + transfer(azure(body("later")), 1) + DETACH
    node.run()
    events = stored(node, 0) + stored(node, 1)
    assert (count(node), events.count(body("later"))) == (COUNT, 1)
    assert len(peer.take("detach")) == 1


def test_one_batch_is_unfinished_however_many_connections_send_one() -> None:
    """A compressed batch has megabytes: memory must not grow with the number of connections."""
    node, peers = opened(20)
    for peer in peers:
        peer._out += LARGE
    unfinished = 0
    while node.turn():
        unfinished = max(unfinished, len(node.service.iteration.unfinished))
    assert unfinished == 1
    assert all(states(peer) == {0: ACCEPTED} for peer in peers)
    assert count(node) == COUNT * 20


def test_the_batches_of_all_connections_share_the_time_of_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each connection alone would have the time for its whole batch, and all of them seconds."""
    let_connections_take(60.0, monkeypatch)
    begun: list[ProducerLink] = []
    take_batch = ProducerLink._take_batch

    def counted(link: ProducerLink, *arguments: Any) -> None:
        begun.append(link)
        take_batch(link, *arguments)

    monkeypatch.setattr(ProducerLink, "_take_batch", counted)
    node, peers = opened(20)
    for peer in peers:
        peer._out += transfer(azure(EXPENSIVE))  # small blocks are read at once
    for wire in node._wires:
        wire.exchange()  # the loop runs no other call in between
    assert len(begun) <= 1
    node.run()
    assert len(begun) == len(peers)
    assert all(states(peer) == {0: ACCEPTED} for peer in peers)


@pytest.mark.parametrize("how", ["closed", "lost"])
def test_a_batch_of_a_link_that_ends_is_not_stored_and_stops_nobody(how: str) -> None:
    node, (peer, other) = opened(2)
    peer._out += LARGE
    while not node.service.iteration.unfinished:
        assert node.turn()
    if how == "lost":
        peer.channel.abort()
    else:
        (link,) = node.service.iteration.unfinished
        link.close()  # type: ignore[attr-defined]
    other._out += LARGE
    node.run()
    assert states(other) == {0: ACCEPTED}
    assert count(node) == COUNT
    assert not node.service.iteration.unfinished


def test_the_quota_of_a_user_does_not_stop_a_batch_that_others_wait_for() -> None:
    quotas = {"alice": Quota(bytes_in=1 << 16)}
    node = InMemoryNode({"temps": 2}, block_bytes=1 << 18, quotas=quotas)
    peer, other = producing(node, login=Login("alice"), name="a"), producing(node, name="b")
    peer._out += LARGE + transfer(azure(*[EXPENSIVE] * COUNT), 1)
    node.turn()
    other._out += transfer(azure(body("small")))
    node.run()
    assert states(other) == {0: ACCEPTED}


def test_events_of_an_idempotent_producer_are_read_in_steps_too() -> None:
    node = InMemoryNode({"temps": 2}, block_bytes=1 << 18)
    peer = producing(node, properties={Symbol(names.PRODUCER_ID): "p"})
    peer._out += transfer(azure(*[with_sequence(EXPENSIVE, number) for number in range(COUNT)]))
    rounds = 0
    while node.turn():
        rounds += 1
        assert count(node) in {0, COUNT}, "all events of a batch are stored together"
    assert states(peer) == {0: ACCEPTED}
    assert count(node) == COUNT
    assert rounds >= STEPS
