"""The sans-IO core joined to a scripted Proton peer through byte buffers."""

import proton
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams.client.connection.protocol_events import Attached, Closed, Detached, Opened, Outcomes
from amqp_streams.client.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    LinkError,
    LinkRefusedError,
    SessionError,
)
from amqp_streams.names import CAPABILITY_EVENT_STREAMS
from amqp_streams.wire.codec import Described, Symbol, decode
from tests.amqp_streams.client.pairs import Pair, entries, message, opened, receiver, sender
from tests.amqp_streams.client.peer import Node
from tests.amqp_streams.decoded import described
from tests.properties import examples


def test_an_open_is_answered_and_says_whether_the_peer_is_an_event_stream_engine() -> None:
    assert Pair().run() == [Opened("peer", event_streams=False)]
    node = Node()
    node.capabilities = [CAPABILITY_EVENT_STREAMS]
    assert Pair(node).run() == [Opened("peer", event_streams=True)]


def test_a_user_is_identified_by_plain() -> None:
    pair = opened(user="ann")
    [init] = pair.peer.saslframes
    assert described(init).value == [Symbol("PLAIN"), b"\0ann\0secret", "h"]


def test_a_wrong_password_is_an_authentication_error() -> None:
    node = Node()
    node.password_ok = lambda mechanism, response: False
    [closed] = Pair(node, user="ann").run()
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, AuthenticationError)


def test_no_common_mechanism_is_an_authentication_error_that_names_what_is_offered() -> None:
    node = Node()
    node.mechanisms = ("SCRAM-SHA-256",)
    [closed] = Pair(node).run()
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, AuthenticationError)
    assert "SCRAM-SHA-256" in str(closed.error)


def test_a_filter_and_link_properties_reach_the_peer() -> None:
    pair = opened()
    start = Described(Symbol("amqp:x-filter"), {Symbol("event-streams-offset"): Symbol("0000000000000005")})
    pair.client.open_receiver(
        "log", filters={"start": start}, properties={"event-streams-partition": Symbol("3")}
    )
    pair.run()
    [link] = pair.node.attaches
    assert link.remote_properties == {"event-streams-partition": "3"}
    encoded, _ = decode(bytes(link.remote_source.filter.encode()))
    assert encoded == {Symbol("start"): start}


def test_the_peers_link_properties_are_read() -> None:
    node = Node()
    node.link_properties = {
        "event-streams-partition": proton.symbol("2"),
        "event-streams-epoch": proton.ulong(7),
    }
    assert receiver(opened(node=node)).properties == {
        "event-streams-partition": "2",
        "event-streams-epoch": 7,
    }


def test_a_peer_without_link_properties_has_none() -> None:
    pair = opened()
    assert sender(pair).properties == receiver(pair).properties == {}


def test_a_refused_attach_is_logged_with_its_condition_and_not_as_attached() -> None:
    pair = opened()
    pair.node.refused["log"] = proton.Condition(
        "amqp:not-found", "no such log", {proton.symbol("field"): "address"}
    )
    link = pair.client.open_receiver("log")
    [detached] = pair.run()
    assert isinstance(detached, Detached)
    assert detached.link is link
    assert type(detached.error) is LinkRefusedError
    assert (detached.error.condition, detached.error.description) == ("amqp:not-found", "no such log")
    assert detached.error.info == {"field": "address"}
    assert pair.client.open_receiver("other") is not None
    assert [type(protocol_event) for protocol_event in pair.run()] == [Attached]


def test_a_detach_later_is_a_link_error() -> None:
    pair = opened()
    link = sender(pair)
    [their_end] = pair.node.attaches
    their_end.condition = proton.Condition("amqp:link:stolen")
    their_end.close()
    [detached] = [protocol_event for protocol_event in pair.run() if isinstance(protocol_event, Detached)]
    assert type(detached.error) is LinkError
    assert detached.error.condition == "amqp:link:stolen"
    assert link.room() == 0
    assert link.send(entries(1)) == 0


def test_a_session_that_ends_ends_its_link_only() -> None:
    pair = opened()
    sender(pair)
    other = sender(pair, "other")
    session = pair.node.attaches[0].session
    session.condition = proton.Condition("amqp:session:window-violation", "too much")
    session.close()
    [detached] = pair.run()
    assert isinstance(detached, Detached)
    assert type(detached.error) is SessionError
    assert detached.error.condition == "amqp:session:window-violation"
    other.send(entries(1))
    assert any(isinstance(protocol_event, Outcomes) for protocol_event in pair.run())


def test_closing_a_link_reports_nothing_and_leaves_the_others() -> None:
    pair = opened()
    pair.node.outgoing["log"].append(message(1))
    first, second = sender(pair), receiver(pair)
    pair.client.close_link(first)
    assert pair.run() == []
    assert second.take(1)[0] == [message(1)]
    pair.client.close_link(second)
    pair.client.close_link(second)
    assert pair.run() == []
    messages, deliveries, aborted = second.take(1)
    assert (messages, len(deliveries), aborted) == ([], 0, 0)


def test_a_connection_closed_by_the_peer_carries_its_condition() -> None:
    pair = opened()
    link = sender(pair)
    pair.peer.connection.condition = proton.Condition("amqp:connection:forced", "bye")
    pair.peer.connection.close()
    [closed] = pair.run()
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLostError)
    assert (closed.error.condition, closed.error.description) == ("amqp:connection:forced", "bye")
    pair.client.end()
    pair.client.end()
    assert link.room() == 0
    assert pair.client.receive(b"more") == []


def test_a_silent_peer_is_found_by_the_clock() -> None:
    pair = opened()
    protocol_events, next_ms = pair.client.tick(1)
    assert protocol_events == []
    assert next_ms is not None
    assert pair.client.tick(next_ms - 1)[0] == []
    [closed], _ = pair.client.tick(next_ms)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, ConnectionLostError)
    assert "idle" in closed.error.description


def test_an_idle_client_sends_heartbeats() -> None:
    pair = Pair()
    pair.peer.transport.idle_timeout = 10
    pair.run()
    _, next_ms = pair.client.tick(1)
    assert next_ms is not None
    assert next_ms <= 10_000
    pair.client.take_output()
    pair.client.tick(next_ms)
    assert pair.client.take_output() == b"\x00\x00\x00\x08\x02\x00\x00\x00"


@given(st.integers(1, 40))
@settings(max_examples=examples(15), deadline=None)
def test_bytes_in_pieces_give_the_same_result(piece: int) -> None:
    def story(size: int) -> list[object]:
        pair = opened(piece=size)
        pair.node.outgoing["in"].extend(message(number) for number in range(10))
        link, incoming = sender(pair), receiver(pair, "in", credit=8)
        given_entries = entries(4)
        link.send(given_entries)
        outcomes = [protocol_event for protocol_event in pair.run() if isinstance(protocol_event, Outcomes)]
        return [[entry.message for batch in outcomes for entry in batch.accepted], incoming.take(100)[0]]

    assert story(piece) == story(1 << 30)


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_garbage_from_a_peer_is_one_documented_error(garbage: bytes, after_open: bool) -> None:
    pair = opened() if after_open else Pair()
    pair.client.take_output()
    protocol_events = pair.client.receive(garbage)
    protocol_events += pair.client.receive(garbage)
    closed = [protocol_event for protocol_event in protocol_events if isinstance(protocol_event, Closed)]
    assert len(closed) <= 1
    assert all(
        isinstance(protocol_event.error, ConnectError | ConnectionLostError) for protocol_event in closed
    )
    pair.client.take_output()
    pair.client.end()


def test_a_receiver_that_is_closed_while_much_is_on_its_way_leaves_the_connection_alone() -> None:
    """If the engine dropped the remaining bytes, it would grant more window on a channel that has ended, and
    the peer would end the connection.
    """
    pair = opened()
    pair.node.outgoing["log"].extend(message(number) for number in range(1000))
    link = receiver(pair, credit=0)
    link.grant(1000)
    pair.peer.receive(pair.client.take_output())
    on_its_way = pair.peer.take_output()
    pair.client.close_link(link)
    pair.peer.receive(pair.client.take_output())
    protocol_events = [*pair.client.receive(on_its_way), *pair.run()]
    assert not any(isinstance(protocol_event, Closed) for protocol_event in protocol_events)
    assert receiver(pair).alive
