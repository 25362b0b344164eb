"""The life cycle of a connection: open, timeouts, close. Real bytes, no sockets."""

import proton
import pytest

from amqp_streams import __version__, names
from amqp_streams.config import Limits
from amqp_streams.errors import PeerError
from amqp_streams.server.connection import AmqpConnection
from amqp_streams.server.links import consumer
from amqp_streams.server.links.link import Pause
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, filter_of, symbols
from amqp_streams.testing_amqp import node as testing_node
from amqp_streams.wire.codec import decode, encode
from amqp_streams.wire.frames import SASL, frame, read_frame
from amqp_streams.wire.security.sasl import AMQP_HEADER, SASL_HEADER
from amqp_streams.wire.types import Described, Symbol, UByte, UInt, ULong, UShort, Value

PRESETTLED = (proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
EVENT = b"\x00\x53\x75\xa0\x05event"


def sasl_init(mechanism: str, initial: bytes) -> bytes:
    return frame(0, encode(Described(ULong(0x41), [Symbol(mechanism), initial])), type=SASL)


def sasl_frames(got: bytes | bytearray) -> list[tuple[int, list[Value]]]:
    """The bytes between the SASL header and the AMQP header."""
    data = bytes(got)
    at, found = len(SASL_HEADER), []
    while data[at : at + 4] != b"AMQP" and (one := read_frame(data, at)) is not None:
        described, _ = decode(one[0].body)
        assert isinstance(described, Described)
        assert isinstance(described.value, list)
        # Codes are numbers.
        found.append((int(described.descriptor), described.value))  # type: ignore[arg-type]
        at = one[1]
    return found


class Users:
    """Users with one user."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def verify(self, name: str, password: str) -> bool:
        self.asked.append(name)
        return (name, password) == ("ada", "secret")


# -- open


def test_the_open_offers_event_streams_and_says_the_limits() -> None:
    node = InMemoryNode(
        container_id="node-7", limits=Limits(frame_bytes=4096, sessions=8, idle_timeout_ms=20_000)
    )
    answer = ScriptedPeer(node).open().fields
    assert symbols(answer["offered-capabilities"]) == [
        names.CAPABILITY_EVENT_STREAMS,
        names.CAPABILITY_ANONYMOUS_RELAY,
        names.CAPABILITY_FILTEX_SQL,
        names.CAPABILITY_FILTEX_PROPERTIES,
        names.CAPABILITY_FILTEX_GROUPS,
        names.CAPABILITY_BATCHED_DELIVERIES,
        names.CAPABILITY_IDEMPOTENT_PRODUCER,
        names.CAPABILITY_BATCHED_SENDS,
    ]
    assert answer["container-id"] == "node-7"
    assert answer["max-frame-size"] == 4096
    assert answer["channel-max"] == 7
    assert answer["idle-time-out"] == 10_000, "half of the tolerated silence, as 2.4.5 advises"
    assert answer["properties"] == {
        "product": "amqp-streams",
        "version": __version__,
        names.UNSETTLED_MAX: 8192,
        names.STORE: node.store.identity,
    }


def test_a_peer_that_begins_without_sasl_is_anonymous_on_this_machine() -> None:
    peer = ScriptedPeer(InMemoryNode())
    peer.open()
    assert peer.protocol == AMQP_HEADER


def test_a_peer_that_begins_without_sasl_from_elsewhere_is_shown_the_header_to_use() -> None:
    peer = ScriptedPeer(InMemoryNode(), loopback=False)
    peer.node.run()
    assert (bytes(peer.got), peer.lost) == (SASL_HEADER, True)


def test_anonymous_sasl_leads_to_amqp() -> None:
    peer = ScriptedPeer(InMemoryNode({"temps": 1}), header=SASL_HEADER)
    peer.write(sasl_init("ANONYMOUS", b"me") + AMQP_HEADER)
    mechanisms, outcome = sasl_frames(peer.got)
    assert symbols(mechanisms[1][0]) == ["ANONYMOUS"]
    assert outcome == (0x44, [0])
    peer.skip_to_amqp()
    assert peer.open().fields["container-id"] == "amqp-streams"


@pytest.mark.parametrize(("password", "good"), [(b"secret", True), (b"guess", False)])
def test_a_password_is_checked_before_amqp(password: bytes, good: bool) -> None:
    node = InMemoryNode(anonymous="never", plain_without_tls=True)
    peer = ScriptedPeer(node, header=SASL_HEADER, users=Users(), loopback=False)
    peer.write(sasl_init("PLAIN", b"\0ada\0" + password) + AMQP_HEADER)
    mechanisms, outcome = sasl_frames(peer.got)
    assert symbols(mechanisms[1][0]) == ["PLAIN"]
    assert outcome[1][0] == (0 if good else 1)
    assert peer.lost is not good


def test_plain_is_not_offered_in_the_clear_to_other_machines() -> None:
    """If no client may log in, the attempt fails with PLAIN, and not with an empty list of mechanisms."""
    node = InMemoryNode(anonymous="always")
    peer = ScriptedPeer(node, header=SASL_HEADER, users=Users(), loopback=False)
    node.run()
    assert symbols(sasl_frames(peer.got)[0][1][0]) == ["ANONYMOUS"]
    closed = ScriptedPeer(InMemoryNode(anonymous="never"), header=SASL_HEADER, loopback=False)
    closed.write(sasl_init("PLAIN", b"\0ada\0secret"))
    assert closed.lost


def test_a_peer_that_leaves_while_its_password_is_checked_does_no_harm() -> None:
    node = InMemoryNode(anonymous="never")
    peer = ScriptedPeer(node, header=SASL_HEADER, users=Users())
    connection = next(iter(node.service.connections))
    connection.received(memoryview(SASL_HEADER + sasl_init("PLAIN", b"\0ada\0secret")))  # type: ignore[attr-defined]
    node.disconnect(peer)
    node.run()
    assert not node.service.connections


def test_bytes_that_are_not_amqp_are_answered_with_a_header_and_a_close() -> None:
    peer = ScriptedPeer(InMemoryNode(), header=b"GET / HT")
    peer.node.run()
    assert (bytes(peer.got), peer.lost) == (SASL_HEADER, True)


# -- time


@pytest.mark.parametrize("said", [b"", b"AMQP", SASL_HEADER, AMQP_HEADER])
def test_a_peer_that_does_not_open_in_time_is_dropped(said: bytes) -> None:
    node = InMemoryNode(limits=Limits(unauthenticated_ms=3000))
    peer = ScriptedPeer(node, header=said)
    node.advance(2900)
    assert not peer.lost
    node.advance(1000)
    assert peer.lost


def test_a_peer_that_opened_in_time_stays() -> None:
    node = InMemoryNode(limits=Limits(unauthenticated_ms=3000))
    peer = ScriptedPeer(node)
    peer.open()
    node.advance(10_000)
    assert not peer.lost


def test_a_silent_peer_is_closed_with_the_reason() -> None:
    node = InMemoryNode(limits=Limits(idle_timeout_ms=4000))
    peer = ScriptedPeer(node)
    peer.open()
    node.advance(3900)
    assert peer.take("close") == []
    node.advance(1500)
    (close,) = peer.take("close")
    error = close.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == names.RESOURCE_LIMIT_EXCEEDED
    assert peer.lost


def test_a_peer_that_this_node_does_not_read_from_is_not_taken_for_silent() -> None:
    """The heartbeats of the peer wait in the system's buffer, and its events would be delivered again."""
    node = InMemoryNode(limits=Limits(idle_timeout_ms=4000))
    peer = ScriptedPeer(node)
    peer.open()
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    connection.pause(Pause.DISK)
    node.advance(60_000)
    assert not peer.lost
    connection.resume(Pause.DISK)
    node.advance(3400)
    assert not peer.lost
    node.advance(1200)
    assert peer.lost


def test_a_connection_is_read_again_when_no_reason_for_the_pause_is_left() -> None:
    node = InMemoryNode()
    peer = ScriptedPeer(node)
    peer.open()
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    connection.pause(Pause.DISK)
    connection.pause(Pause.QUOTA)
    connection.resume(Pause.DISK)
    assert not peer.channel.reading
    connection.resume(Pause.DISK)
    assert not peer.channel.reading
    connection.resume(Pause.QUOTA)
    assert peer.channel.reading


def test_empty_frames_keep_a_connection_open() -> None:
    node = InMemoryNode(limits=Limits(idle_timeout_ms=4000))
    peer = ScriptedPeer(node)
    peer.open()
    for _ in range(10):
        node.advance(1900)
        peer.write(frame(0, b""))
    assert not peer.lost


@pytest.mark.parametrize("wanted_ms", [300, 1000, 8000])
def test_heartbeats_come_as_often_as_the_peer_wants(wanted_ms: int) -> None:
    node = InMemoryNode()
    peer = ScriptedPeer(node)
    peer.open(idle_time_out=UInt(wanted_ms))
    peer.take("begin")
    before, silence = 0, 0
    for _ in range(40 * wanted_ms // 100):
        node.advance(100)
        peer.write(frame(0, b""))
        peer.take("flow")
        silence = 0 if peer.heartbeats > before else silence + 100
        before = peer.heartbeats
        assert silence < wanted_ms, "longer silent than the peer tolerates"
    assert peer.heartbeats <= 40 * 4, "and not a flood of them"


def test_a_peer_that_wants_none_gets_no_heartbeats() -> None:
    node = InMemoryNode()
    peer = ScriptedPeer(node)
    peer.open()
    node.advance(6_000)
    peer.take("open")
    assert peer.heartbeats == 0


def test_a_connection_ends_soon_after_its_credentials() -> None:
    node = InMemoryNode({"temps": 1})
    peer = ScriptedPeer(node)
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    peer.open()
    peer.attach(0, target="temps")
    connection.expires_ms = node.clock.now_ms + 5000
    node.advance(4900)
    assert peer.take("close") == []
    node.advance(600)
    (close,) = peer.take("close")
    error = close.fields["error"]
    assert isinstance(error, Described)
    assert error.value == [names.UNAUTHORIZED_ACCESS, "the token expired"]
    assert peer.lost


# -- close


def test_a_close_is_answered_and_the_channel_closed() -> None:
    node = InMemoryNode({"temps": 1})
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, target="temps")
    peer.send("close")
    assert len(peer.take("close")) == 1
    assert peer.lost
    assert not node.service.connections
    assert node.service.node.links_of("temps") == ()


def test_a_peer_that_vanishes_leaves_nothing_behind() -> None:
    node = InMemoryNode({"temps": 1})
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, target="temps")
    peer.attach(1, source="temps")
    node.disconnect(peer)
    assert not node.service.connections
    assert node.service.node.links_of("temps") == ()
    node.run()
    node.advance(1000)


def test_a_stopping_server_closes_its_connections_and_says_why() -> None:
    """The server does not close links one by one: a closing detach ends a link permanently, and clients that
    reconnect would not attach it again.
    """
    node = InMemoryNode({"temps": 1})
    peer, silent = ScriptedPeer(node), ScriptedPeer(node, header=b"")
    peer.open()
    peer.attach(0, target="temps")
    peer.attach(1, source="temps")
    for connection in tuple(node.service.connections):
        connection.shut(PeerError(names.CONNECTION_FORCED, "the server is shutting down"))
    node.run()
    assert peer.take("detach") == []
    assert peer.take("end") == []
    (close,) = peer.take("close")
    error = close.fields["error"]
    assert isinstance(error, Described)
    assert error.value == [names.CONNECTION_FORCED, "the server is shutting down"]
    assert peer.lost
    assert silent.lost


def test_a_connection_that_is_being_closed_delivers_nothing_and_leaves_cursors_where_they_are() -> None:
    """The peer would not read the events, and a presettled subscriber would lose them."""
    node = InMemoryNode({"temps": 1})
    pair = EnginePair(node, container="app")
    pair.receiver(
        "temps", durable=True, name="sub", credit=10, settle=(proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
    )
    (connection,) = node.service.connections
    connection.shut(PeerError(names.CONNECTION_FORCED, "the server is shutting down"))
    node.append("temps", b"a")
    node.run()
    again = EnginePair(node, container="app").receiver(
        "temps", durable=True, name="sub", credit=10, settle=(proton.Link.SND_SETTLED, proton.Link.RCV_FIRST)
    )
    assert again.bodies == [b"a"]


def test_a_peer_that_is_still_logging_in_when_the_server_stops_is_not_listened_to_any_more() -> None:
    """The threads that check passwords have ended by then."""
    node, users = InMemoryNode(anonymous="never"), Users()
    peer = ScriptedPeer(node, header=SASL_HEADER, users=users)
    node.run()
    (connection,) = node.service.connections
    assert isinstance(connection, AmqpConnection)
    connection.shut(PeerError(names.CONNECTION_FORCED, "the server is shutting down"))
    connection.received(memoryview(sasl_init("PLAIN", b"\0ada\0secret")))
    node.run()
    assert (peer.lost, users.asked) == (True, [])


def test_a_frame_that_cannot_be_closes_the_connection_and_no_other() -> None:
    node = InMemoryNode({"temps": 1})
    peer, neighbour = ScriptedPeer(node), EnginePair(node)
    peer.open()
    peer.transfer(7, 0, EVENT)
    (close,) = peer.take("close")
    error = close.fields["error"]
    assert isinstance(error, Described)
    assert error.value == [names.INVALID_FIELD, "no such handle: 7"]
    assert peer.lost
    (sent,) = neighbour.send(neighbour.sender("temps"), EVENT)
    assert sent.outcome == "accepted"


def test_frames_beyond_the_size_offered_are_a_framing_error() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(frame_bytes=512))
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, target="temps")
    peer.transfer(0, 0, EVENT * 200)
    (close,) = peer.take("close")
    error = close.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    assert error.value[0] == names.FRAMING_ERROR


@pytest.mark.parametrize("size", [512, 1000, 65_536])
def test_nothing_sent_is_larger_than_the_peers_frames(size: int) -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", *[b"x" * 200] * 20)
    producer = EnginePair(node)
    producer.send(producer.sender("temps"), b"\x00\x53\x75\xb0\x00\x00\x40\x00" + b"y" * 0x4000)
    peer = ScriptedPeer(node)
    peer.open(max_frame_size=UInt(size))
    earliest: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
    peer.attach(0, source="temps", filters=earliest)
    peer.flow(0, 100)
    at, sizes = 8, []
    while (found := read_frame(bytes(peer.got), at)) is not None:
        sizes.append(found[1] - at)
        at = found[1]
    assert max(sizes) <= size
    transfers = peer.take("transfer")
    assert len([one for one in transfers if not one.fields["more"]]) == 21
    assert sum(len(one.payload) for one in transfers) > 20 * 200 + 0x4000


def test_a_channel_beyond_the_limit_is_refused() -> None:
    node = InMemoryNode(limits=Limits(sessions=2))
    peer = ScriptedPeer(node)
    peer.open()
    begin = {"next_outgoing_id": UInt(0), "incoming_window": UInt(10), "outgoing_window": UInt(10)}
    peer.send("begin", channel=1, **begin)
    assert [one.fields["remote-channel"] for one in peer.take("begin")] == [UShort(0), UShort(1)]
    peer.send("begin", channel=2, **begin)
    assert peer.take("begin") == []
    assert len(peer.take("close")) == 1


# -- peers that do not read


def test_a_peer_that_takes_nothing_is_written_to_only_so_much() -> None:
    limits = Limits(connection_pending_bytes=64 << 10)
    node = InMemoryNode({"temps": 1}, limits=limits)
    node.append("temps", *[b"x" * 250] * 6_000)
    pair = EnginePair(node)
    receiver = pair.receiver("temps", filters=filter_of("@earliest"), settle=PRESETTLED)
    pair.channel.stuck = True
    pair.flow(receiver, 6_000)
    node.advance(5000)
    assert 0 < pair.channel.pending() < (64 << 10) + (512 << 10)
    pair.channel.stuck = False
    node.run()
    assert len(receiver.arrived) == 6_000


def test_a_peer_that_takes_everything_at_once_does_not_wait_for_a_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system takes megabytes at once, so nothing is ever pending and nothing drains, and a peer that
    settles nothing sends nothing.
    """
    monkeypatch.setattr(testing_node, "DRAINED_WHEN_ABOVE", 1 << 40)
    node = InMemoryNode({"temps": 1})
    for _ in range(100):
        node.append("temps", *[b"x" * 250] * 200)
    peer = ScriptedPeer(node)
    peer.open()
    monkeypatch.setattr(peer.channel, "pending", lambda: 0)
    earliest: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
    peer.attach(0, source="temps", filters=earliest, snd_settle_mode=UByte(1))
    monkeypatch.setattr(consumer, "TURN_EVENTS", 100_000)
    monkeypatch.setattr(consumer, "TURN_S", 60.0)
    peer.flow(0, 20_000)
    assert len(peer.take("transfer")) == 20_000


def test_many_peers_of_one_node_are_served_side_by_side() -> None:
    node = InMemoryNode({"temps": 2})
    pairs = [EnginePair(node, container=f"client-{index}") for index in range(20)]
    receivers = [pair.receiver("temps", credit=100) for pair in pairs]
    for pair in pairs:
        pair.send(pair.sender("temps"), EVENT)
    assert [len(receiver.arrived) for receiver in receivers] == [20] * 20
