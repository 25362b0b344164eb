"""Sessions that links share: how many there are, how links are spread, and that one link does not hold up
another.
"""

from typing import Any

import proton
import pytest

from amqp_streams import names
from amqp_streams.client.connection import links, sessions
from amqp_streams.client.connection.protocol_events import Closed, Detached
from amqp_streams.client.connection.sessions import SESSION_LINKS_MAX, SESSIONS_MAX, HandleMax
from amqp_streams.client.errors import ConnectionLostError, NoRoomError
from amqp_streams.client.options import ACCEPTED
from amqp_streams.wire.codec import Described, Symbol, UInt, ULong, UShort, Value, encode
from tests.amqp_streams.client.pairs import Pair, message, opened, receiver
from tests.amqp_streams.client.peer import Node

FRAME_BYTES = 64 << 10
HEADER = b"AMQP\x00\x01\x00\x00"


def pair_with(channel_max: int) -> Pair:
    node = Node()
    node.channel_max = channel_max
    return opened(node=node)


def attach(pair: Pair, count: int) -> list[Any]:
    made = [pair.client.open_receiver(f"log-{number}") for number in range(count)]
    pair.run()
    assert all(link.attached for link in made)
    return made


def frame(performative: object, channel: int = 0) -> bytes:
    body = b"" if performative is None else encode(performative)
    return (len(body) + 8).to_bytes(4) + b"\x02\x00" + channel.to_bytes(2) + body


def begin(*more: Value) -> bytes:
    return frame(Described(ULong(0x11), [UShort(0), UInt(0), UInt(5), UInt(5), *more]))


OPEN = frame(Described(ULong(0x10), ["peer", None, UInt(65536), UShort(3)]))


@pytest.mark.parametrize("channel_max", [0, 1, 3, 63])
def test_sessions_never_exceed_the_peer_s_limit_for_any_number_of_links(
    channel_max: int,
) -> None:
    pair = pair_with(channel_max)
    made = attach(pair, 3 * (channel_max + 1) if channel_max < 16 else 100)
    used = {link.session for link in made}
    assert len(used) == min(channel_max + 1, SESSIONS_MAX)
    counts = [len(session.links) for session in used]
    assert max(counts) - min(counts) <= 1
    assert pair.client.fault is None


def test_the_first_links_have_a_session_each() -> None:
    made = attach(opened(), SESSIONS_MAX)
    assert len({link.session for link in made}) == SESSIONS_MAX


def test_a_link_above_the_limit_is_refused_and_the_others_continue() -> None:
    pair = pair_with(0)
    made = attach(pair, SESSION_LINKS_MAX)
    assert pair.client.room == 0
    with pytest.raises(NoRoomError, match="has 64 links"):
        pair.client.open_receiver("log")
    pair.client.close_link(made.pop())
    assert pair.client.room == 1
    assert receiver(pair).attached


def test_the_highest_handle_of_the_peer_bounds_the_links_of_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HandleMax, "_look", lambda self, _body: setattr(self, "value", 2))
    pair = pair_with(0)
    attach(pair, 3)
    assert pair.client.room == 0


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_the_handle_max_is_read_from_the_first_begin_however_the_bytes_come(piece: int) -> None:
    looking = HandleMax()
    received = HEADER + OPEN + frame(None) + begin(UInt(254)) + begin(UInt(3))
    for at in range(0, len(received), piece):
        if not looking.done:
            looking.receive(received[at : at + piece], FRAME_BYTES)
    assert looking.done
    assert looking.value == 254


@pytest.mark.parametrize(
    "received",
    [begin(), begin(None), begin(Symbol("x")), b"\x00\x00\x00\x02rubb", b"\xff" * 20, frame(None)[:4]],
)
def test_a_begin_without_a_handle_max_or_none_at_all_allows_any(received: bytes) -> None:
    looking = HandleMax()
    looking.receive(HEADER + received, FRAME_BYTES)
    assert looking.value == 0xFFFF_FFFF


def test_a_frame_that_proton_cannot_process_is_a_fault_and_not_ignored() -> None:
    pair = pair_with(0)
    sessions_of = pair.client._sessions
    sessions_of.sessions_max = 5  # as if the peer had not been asked
    pair.client.open_receiver("one")
    pair.client.open_receiver("two")
    pair.client.take_output()
    fault = pair.client.fault
    assert isinstance(fault, ConnectionLostError)
    assert "process error" in str(fault)


def test_a_session_that_is_refused_for_a_limit_is_not_asked_for_again() -> None:
    pair = opened()
    made = attach(pair, 2)
    theirs = pair.node.attaches[1].session

    theirs.condition = proton.Condition(names.RESOURCE_LIMIT_EXCEEDED, "one session")
    theirs.close()
    protocol_events = pair.run()
    assert [
        protocol_event.link for protocol_event in protocol_events if isinstance(protocol_event, Detached)
    ] == [made[1]]
    assert pair.client._sessions.sessions_max == 1
    [again] = attach(pair, 1)
    assert again.session is made[0].session


def test_a_link_that_is_not_read_does_not_hold_up_the_others_of_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "SESSION_BYTES_MAX", 4 * FRAME_BYTES)
    pair = pair_with(0)
    slow, quick = receiver(pair, "slow", credit=1000), receiver(pair, "quick", credit=1000)
    large = b"\x00\x53\x77\xb0" + (60_000).to_bytes(4) + bytes(60_000)
    pair.node.outgoing["slow"].extend([large] * 20)
    pair.node.outgoing["quick"].extend(message(number) for number in range(10))
    pair.peer.work()
    protocol_events = pair.run()
    assert not any(isinstance(protocol_event, Closed) for protocol_event in protocol_events)
    assert quick.take(20)[0] == [message(number) for number in range(10)]
    messages: list[bytes] = []
    while found := slow.take(3):
        if not found[0]:
            break
        messages += found[0]
        slow.settle(found[1], ACCEPTED)
        pair.run()
    assert messages == [large] * 20
    assert slow.session.unread.set_aside == 0


def test_deferred_data_is_bounded_and_comes_before_later_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSION_BYTES_MAX", 4 * FRAME_BYTES)
    monkeypatch.setattr(links, "SET_ASIDE_BYTES_MAX", 200_000)
    monkeypatch.setattr(links, "_SET_ASIDE_STEP", 1)
    pair = pair_with(0)
    slow, other = receiver(pair, "slow", credit=1000), receiver(pair, "other")
    made = [b"\x00\x53\x77\xb0" + (60_000).to_bytes(4) + bytes([number]) * 60_000 for number in range(20)]
    pair.node.outgoing["slow"].extend(made)
    pair.peer.work()
    pair.run()
    assert 200_000 <= slow.session.unread.set_aside < 300_000
    found: list[bytes] = []
    while (taken := slow.take(7)[0]) or not found:
        found += taken
        pair.run()
    assert found == made
    pair.node.outgoing["slow"].extend(made[:10])
    pair.peer.work()
    pair.run()
    pair.client.close_link(slow)
    assert other.session.unread.set_aside == 0


def test_the_share_of_a_link_becomes_smaller_with_each_link_and_with_the_size_of_messages() -> None:
    pair = opened()
    [first] = attach(pair, 1)
    assert first.room(1000) == 1000
    attach(pair, 127)
    assert first.room(1000) == links.UNREAD_BYTES_MAX // 128 // links.SIZE_GUESS == 128
    first.grant(8)
    pair.node.outgoing["log-0"].extend([b"\x00\x53\x77\xb0" + (262_136).to_bytes(4) + bytes(262_136)] * 5)
    pair.run()
    pair.peer.work()
    pair.run()
    assert len(first.take(10)[0]) == 5
    assert first.room(1000) == 2 - 3, "two fit into its share, and three may come"
    assert first.credit == 3
