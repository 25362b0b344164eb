"""Transfers and dispositions, with a scripted Proton peer at the other end."""

from typing import Any

import proton
import pytest

from amqp_streams.client.connection.protocol_events import Changed, Outcomes
from amqp_streams.client.errors import (
    RejectedError,
    ReleasedError,
)
from amqp_streams.client.options import ACCEPTED, MODIFIED, REJECTED, RELEASED
from amqp_streams.client.producing.outbox import Entry
from tests.amqp_streams.client import peer as peers
from tests.amqp_streams.client.pairs import entries, message, opened, receiver, sender
from tests.amqp_streams.client.peer import Node


def test_accepted_events_come_back_in_order() -> None:
    pair = opened()
    link = sender(pair)
    given_entries = entries(5)
    assert link.room() == 100
    assert link.send(given_entries) == 5
    assert link.in_flight == 5
    [outcomes] = [protocol_event for protocol_event in pair.run() if isinstance(protocol_event, Outcomes)]
    assert outcomes.accepted == given_entries
    assert outcomes.refused == []
    assert link.in_flight == 0
    assert pair.node.stored["log"] == [entry.message for entry in given_entries]


@pytest.mark.parametrize(
    ("outcome", "error", "condition"),
    [
        (peers.REJECTED, RejectedError, "amqp:decode-error"),
        (peers.RELEASED, ReleasedError, "released"),
        (peers.MODIFIED, ReleasedError, "modified"),
    ],
)
def test_a_refusal_carries_its_kind_and_the_peers_words(
    outcome: object, error: type[Exception], condition: str
) -> None:
    pair = opened()
    pair.node.outcome = lambda message: outcome
    pair.node.condition = proton.Condition("amqp:decode-error", "no message")
    link = sender(pair)
    link.send(entries(1))
    [outcomes] = [protocol_event for protocol_event in pair.run() if isinstance(protocol_event, Outcomes)]
    [(entry, refusal)] = outcomes.refused
    assert isinstance(entry, Entry)
    assert entry.event == 0
    assert type(refusal) is error
    assert refusal.condition == condition
    if error is RejectedError:
        assert refusal.description == "no message"


def test_an_event_that_no_space_is_left_for_is_not_refused_permanently() -> None:
    """A full disk recovers: the node answers with rejected and this condition, and the event is sent again as
    if it were released.
    """
    pair = opened()
    pair.node.outcome = lambda message: peers.REJECTED
    pair.node.condition = proton.Condition("amqp:resource-limit-exceeded", "the disk is full")
    link = sender(pair)
    link.send(entries(1))
    [outcomes] = [protocol_event for protocol_event in pair.run() if isinstance(protocol_event, Outcomes)]
    [(_, refusal)] = outcomes.refused
    assert type(refusal) is ReleasedError
    assert str(refusal) == "amqp:resource-limit-exceeded: the disk is full"


def test_no_more_room_than_the_peers_credit() -> None:
    node = Node()
    node.credit = 3
    node.outcome = lambda message: None
    pair = opened(node=node)
    link = sender(pair)
    assert link.room() == 3
    link.send(entries(3))
    pair.run()
    assert link.room() == 0


def test_a_link_takes_no_more_than_about_a_mebibyte_at_once() -> None:
    pair = opened()
    link = sender(pair)
    large = [
        Entry(number, b"\x00\x53\x75\xb0" + (400_000).to_bytes(4) + bytes(400_000)) for number in range(10)
    ]
    sent = link.send(large)
    assert sent == 3
    assert link.room() == 0
    pair.run()
    assert link.room() > 0


def test_messages_are_taken_in_order_and_credit_bounds_them() -> None:
    pair = opened()
    pair.node.outgoing["log"].extend(message(number) for number in range(30))
    link = receiver(pair, credit=20)
    messages, deliveries, aborted = link.take(7)
    assert messages == [message(number) for number in range(7)]
    assert len(deliveries) == 7
    assert aborted == 0
    assert link.take(100)[0] == [message(number) for number in range(7, 20)]
    link.grant(5)
    assert Changed(frozenset({link})) in pair.run()
    assert link.take(100)[0] == [message(number) for number in range(20, 25)]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (ACCEPTED, peers.ACCEPTED),
        (REJECTED, peers.REJECTED),
        (RELEASED, peers.RELEASED),
        (MODIFIED, peers.MODIFIED),
    ],
)
def test_outcomes_go_to_the_peer_settled(outcome: Any, state: int) -> None:
    pair = opened()
    pair.node.outgoing["log"].extend(message(number) for number in range(3))
    link = receiver(pair)
    link.settle(link.take(10)[1], outcome)
    pair.run()
    assert pair.node.outcomes == [(int(state), True)] * 3


def test_a_large_message_comes_whole_both_ways() -> None:
    big = b"\x00\x53\x75\xb0" + (3_000_000).to_bytes(4) + bytes(range(250)) * 12_000
    pair = opened(piece=10_000)
    link = sender(pair)
    link.send([Entry(0, big)])
    pair.run()
    assert pair.node.stored["log"] == [big]
    pair.node.outgoing["back"].extend([message(1), big, message(2)])
    back = receiver(pair, "back")
    assert back.take(10)[0] == [message(1), big, message(2)]


def test_a_large_message_is_taken_piece_by_piece_as_it_comes() -> None:
    big = b"\x00\x53\x75\xb0" + (500_000).to_bytes(4) + bytes(500_000)
    pair = opened()
    link = receiver(pair)
    pair.node.outgoing["log"].append(big)
    pair.peer.work()
    back = pair.peer.take_output()
    got: list[bytes] = []
    for at in range(0, len(back), 50_000):
        assert got == []
        pair.client.receive(back[at : at + 50_000])
        got += link.take(1)[0]
    assert got == [big]


def test_an_aborted_message_is_dropped_and_its_credit_reported() -> None:
    pair = opened()
    link = receiver(pair)
    [their_end] = pair.peer.senders
    their_end.delivery("1")
    their_end.stream(bytes(100_000))
    pair.run()
    messages, deliveries, aborted = link.take(1)
    assert (messages, len(deliveries), aborted) == ([], 0, 0)
    their_end.current.abort()
    pair.node.outgoing["log"].append(message(7))
    pair.peer.work()
    pair.run()
    messages, _, aborted = link.take(10)
    assert (messages, aborted) == ([message(7)], 1)


def test_after_the_end_deliveries_are_not_touched_any_more() -> None:
    pair = opened()
    pair.node.outgoing["log"].extend(message(number) for number in range(5))
    link = receiver(pair)
    _, deliveries, _ = link.take(3)
    pair.client.end()
    link.settle(deliveries, ACCEPTED)
    link.grant(3)
    messages, deliveries, aborted = link.take(3)
    assert (messages, len(deliveries), aborted) == ([], 0, 0)
    assert link.properties == {}
