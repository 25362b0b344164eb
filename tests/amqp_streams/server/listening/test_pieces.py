"""Blocks of received bytes, cut into pieces; and connections that send many tiny frames."""

import pytest

from amqp_streams.server.links import turns
from amqp_streams.server.listening.pieces import FRAMES, PIECE_MAX, PIECE_MIN, SMALL_BYTES, Pieces
from amqp_streams.testing_amqp import InMemoryNode, ScriptedPeer, frame_of
from amqp_streams.wire.types import UInt
from tests.amqp_streams.server.iterations import let_connections_take
from tests.amqp_streams.server.sent_batches import ACCEPTED, body, producing, states, stored


def test_a_piece_of_small_frames_has_a_bounded_number_of_them() -> None:
    pieces = Pieces()
    for _ in range(20):
        pieces.learn(10_500, 500)
    assert len(pieces.cut(memoryview(bytes(PIECE_MAX)))) == 21 * FRAMES


def test_pieces_grow_in_steps_and_shrink_at_once() -> None:
    pieces, block = Pieces(), memoryview(bytes(2 * PIECE_MAX))
    sizes = [len(pieces.cut(block))]
    while sizes[-1] < PIECE_MAX:
        pieces.learn(sizes[-1], 0)
        sizes.append(len(pieces.cut(block)))
    assert sizes == [PIECE_MIN << step for step in range(len(sizes))]
    pieces.learn(PIECE_MAX, PIECE_MAX // 32)
    assert len(pieces.cut(block)) == 32 * FRAMES
    pieces.learn(PIECE_MAX, PIECE_MAX)
    assert len(pieces.cut(block)) == PIECE_MIN


def test_what_waits_keeps_its_order() -> None:
    pieces = Pieces()
    pieces.keep(b"first ")
    pieces.keep(memoryview(b"second"))
    assert pieces.waiting == 12
    assert bytes(pieces.take_all()) == b"first second"
    assert not pieces.waiting
    pieces.keep(b"x")
    pieces.clear()
    assert not pieces.take_all()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which each piece takes all the time of its iteration."""
    let_connections_take(-1.0, monkeypatch)
    monkeypatch.setattr(turns, "BUDGET_S", 1e-9)


def event(text: str, number: int) -> bytes:
    return frame_of(
        "transfer", body(text), handle=UInt(0), delivery_id=UInt(number), delivery_tag=b"%d" % number
    )


EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""An empty frame, which costs Proton about as much as any other."""


def flooding(count: int) -> tuple[InMemoryNode, list[ScriptedPeer]]:
    node = InMemoryNode({"temps": 1}, block_bytes=PIECE_MAX)
    return node, [producing(node, name=str(number), batched=False) for number in range(count)]


@pytest.mark.usefixtures("slow")
def test_a_connection_with_little_to_say_does_not_wait_for_floods() -> None:
    node, (*floods, other) = flooding(6)
    for peer in floods:
        peer._out += EMPTY * (10 * PIECE_MIN // len(EMPTY)) + event("flood", 0)
    node.turn()
    assert all(not peer.channel.reading for peer in floods)
    other._out += event("small", 0)
    node.turn()
    node.turn()
    assert stored(node) == [body("small")]
    node.run()
    assert stored(node)[1:] == [body("flood")] * 5
    assert all(states(peer) == {0: ACCEPTED} for peer in (*floods, other))
    assert all(peer.channel.reading for peer in floods)


@pytest.mark.usefixtures("slow")
def test_events_keep_their_order_over_pieces() -> None:
    node, (peer,) = flooding(1)
    count = 2 * PIECE_MIN // 40
    peer._out += b"".join(event(str(number), number) for number in range(count))
    node.run()
    assert stored(node) == [body(str(number)) for number in range(count)]


@pytest.mark.usefixtures("slow")
def test_a_connection_that_ends_leaves_nothing_behind() -> None:
    node, (peer, other) = flooding(2)
    peer._out += EMPTY * (10 * PIECE_MIN // len(EMPTY))
    node.turn()
    peer.channel.abort()
    other._out += event("small", 0)
    node.run()
    assert states(other) == {0: ACCEPTED}


def test_a_small_block_is_processed_at_once() -> None:
    node, (peer,) = flooding(1)
    node.service.iteration._ends_s = 0.0
    peer._out += event("a", 0)
    assert len(event("a", 0)) < SMALL_BYTES
    node.turn()
    assert peer.channel.reading
