"""Transfers and dispositions, as frames: large, aborted, settled this way and that, in ranges."""

from typing import Any

import pytest
from cproton_ffi import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.testing import MemoryStore
from amqp_streams.testing_amqp import InMemoryNode, ScriptedPeer, frame_of
from amqp_streams.wire.frames import Performative
from amqp_streams.wire.types import Described, Symbol, UByte, UInt, ULong, Value
from tests.properties import examples

EARLIEST: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
ACCEPTED = Described(ULong(0x24), [])
REJECTED = Described(ULong(0x25), [])
RELEASED = Described(ULong(0x26), [])


def event(size: int, fill: bytes = b"x") -> bytes:
    """A message with one data section of `size` bytes."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4) + fill * size


def stored(node: InMemoryNode, log: str = "temps", partition: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while chunk := node.store.logs[log].partitions[partition].read(len(found), 1 << 24):
        found += chunk.messages
    return found


def producing(node: InMemoryNode | None = None, **fields: Any) -> ScriptedPeer:
    """A peer with one producer link."""
    peer = ScriptedPeer(node or InMemoryNode({"temps": 1}))
    peer.open()
    peer.attach(0, target="temps", **fields)
    peer.take("flow")
    return peer


def consuming(count: int, *, credit: int, **fields: Any) -> ScriptedPeer:
    """A peer with one consumer link on a log with `count` events."""
    node = InMemoryNode({"temps": 1})
    node.append("temps", *(b"%d" % number for number in range(count)))
    peer = ScriptedPeer(node)
    peer.open()
    peer.attach(0, source="temps", filters=EARLIEST, **fields)
    peer.flow(0, credit)
    return peer


def outcomes(peer: ScriptedPeer) -> list[tuple[int, int, int, bool]]:
    """Return the received dispositions: first, last, code of the state, settled."""
    return [_outcome(one) for one in peer.take("disposition")]


def _outcome(one: Performative) -> tuple[int, int, int, bool]:
    first, last, state = one.fields["first"], one.fields["last"], one.fields["state"]
    assert isinstance(first, UInt)
    assert isinstance(state, Described)
    code = int(state.descriptor)  # type: ignore[arg-type]  # codes are numbers
    return int(first), int(first if last is None else last), code, bool(one.fields["settled"])  # type: ignore[arg-type]


def error_of(one: Performative) -> str:
    """The condition in a detach, or in a rejected disposition."""
    error = one.fields.get("error")
    if error is None:
        state = one.fields["state"]
        assert isinstance(state, Described)
        assert isinstance(state.value, list)
        error = state.value[0]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(error.value[0])


# -- in


@pytest.mark.parametrize("pieces", [1, 2, 7, 100])
def test_a_message_in_many_transfers_is_one_event(pieces: int) -> None:
    peer = producing()
    message = event(10_000)
    step = -(-len(message) // pieces)
    parts = [message[at : at + step] for at in range(0, len(message), step)]
    for number, part in enumerate(parts):
        assert stored(peer.node) == []
        peer.transfer(0, 0, part, more=number + 1 < len(parts))
    assert stored(peer.node) == [message]
    assert outcomes(peer) == [(0, 0, 0x24, True)]


def test_messages_of_two_links_in_pieces_do_not_mix() -> None:
    peer = producing()
    peer.attach(1, target="temps")
    first, second = event(100, b"a"), event(100, b"b")
    peer.transfer(0, 0, first[:50], more=True)
    peer.transfer(1, 1, second[:60], more=True)
    peer.transfer(0, 0, first[50:])
    peer.transfer(1, 1, second[60:])
    assert stored(peer.node) == [first, second]


def test_a_message_as_large_as_allowed_is_taken_and_one_byte_more_is_not() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(message_bytes=2000))
    peer = producing(node)
    limit = event(2000 - 8)
    assert len(limit) == 2000
    peer.transfer(0, 0, limit)
    assert stored(node) == [limit]
    peer.transfer(0, 1, limit + b"\0")
    (detach,) = peer.take("detach")
    assert (error_of(detach), detach.fields["closed"]) == (names.LINK_MESSAGE_SIZE_EXCEEDED, True)


def test_the_limit_is_enforced_while_bytes_arrive_and_other_links_live_on() -> None:
    """The limit does not wait for the complete message, which may never arrive."""
    node = InMemoryNode({"temps": 1}, limits=Limits(message_bytes=2000))
    peer = producing(node)
    peer.attach(1, target="temps")
    peer.transfer(0, 0, event(1000)[:900], more=True)
    peer.transfer(0, 0, b"x" * 900, more=True)
    assert peer.take("detach") == []
    peer.transfer(0, 0, b"x" * 900, more=True)
    (detach,) = peer.take("detach")
    assert (error_of(detach), detach.fields["handle"]) == (names.LINK_MESSAGE_SIZE_EXCEEDED, UInt(0))
    peer.transfer(1, 1, event(10))
    assert stored(node) == [event(10)]
    assert not peer.lost


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize(
    "closing", ["too large", "refused", "beside a producer", "beside a consumer", "management"]
)
def test_transfers_on_a_refused_or_closed_link_are_dropped_and_take_no_memory(
    closing: str, more: bool
) -> None:
    """A peer that never answers the detach may send without limit. None of its bytes may be kept."""
    node = InMemoryNode({"temps": 1}, limits=Limits(message_bytes=100_000))
    peer = ScriptedPeer(node)
    peer.open()
    if (
        closing == "beside a producer"
    ):  # a connection with one good producer is served without a look at each link
        peer.attach(1, target="temps")
    if closing == "beside a consumer":
        peer.attach(1, source="temps")
    peer.attach(0, target={"too large": "temps", "management": "$management"}.get(closing, "nowhere"))
    piece = bytes(60_000)
    for _ in range(3):
        peer.transfer(0, 0, piece, more=True)
    peer.transfer(0, 0, piece)
    kept, deliveries = kept_by_engine(node)
    assert kept <= 2 * len(piece)
    for number in range(1, 100):
        peer.transfer(0, number, piece, more=more, state=ACCEPTED)
        if more:
            peer.transfer(0, number, b"", aborted=True)
    kept_after, deliveries_after = kept_by_engine(node)
    assert kept_after <= 2 * len(piece)
    assert deliveries_after <= deliveries + 1
    assert stored(node) == []
    assert not peer.lost


def kept_by_engine(node: InMemoryNode) -> tuple[int, int]:
    """Bytes that the engine and our links hold for incoming messages, and deliveries that are not settled."""
    kept = deliveries = 0
    for connection in node.service.connections:
        for link in connection.find_links(lambda _link: True):
            kept += len(getattr(link, "partial", b""))
        pointer = connection._engine.connection  # type: ignore[attr-defined]  # the shell's
        session = lib.pn_session_head(pointer, 0)
        while session:
            kept += lib.pn_session_incoming_bytes(session)
            session = lib.pn_session_next(session, 0)
        each = lib.pn_link_head(pointer, 0)
        while each:
            deliveries += lib.pn_link_unsettled(each)
            each = lib.pn_link_next(each, 0)
    return kept, deliveries


@pytest.mark.parametrize("arrived", [0, 1, 5000])
def test_an_aborted_delivery_is_dropped(arrived: int) -> None:
    peer = producing()
    peer.transfer(0, 0, event(9000)[:arrived], more=True)
    peer.transfer(0, 0, b"", aborted=True)
    peer.transfer(0, 1, event(3))
    assert stored(peer.node) == [event(3)]
    assert outcomes(peer) == [(1, 1, 0x24, True)]


def test_an_aborted_delivery_in_one_block_is_dropped() -> None:
    peer = producing()
    whole: dict[str, Any] = {"handle": UInt(0), "delivery_id": UInt(0), "delivery_tag": b"0"}
    peer.write(
        frame_of("transfer", b"\x00\x53", **whole, more=True) + frame_of("transfer", **whole, aborted=True)
    )
    peer.transfer(0, 1, event(3))
    assert stored(peer.node) == [event(3)]


def test_a_message_without_a_byte_is_rejected() -> None:
    peer = producing()
    peer.transfer(0, 0, b"")
    (rejected,) = peer.take("disposition")
    assert error_of(rejected) == names.DECODE_ERROR
    assert stored(peer.node) == []


def test_neighbours_are_accepted_in_one_disposition() -> None:
    peer = producing()
    transfers = [
        frame_of("transfer", event(5), handle=UInt(0), delivery_id=UInt(number), delivery_tag=b"%d" % number)
        for number in range(500)
    ]
    peer.write(b"".join(transfers))
    assert outcomes(peer) == [(0, 499, 0x24, True)]


def test_a_rejected_message_splits_the_range() -> None:
    peer = producing()
    bodies = [event(5), event(5), b"garbage", event(5)]
    peer.write(
        b"".join(
            frame_of("transfer", body, handle=UInt(0), delivery_id=UInt(number), delivery_tag=b"%d" % number)
            for number, body in enumerate(bodies)
        )
    )
    assert sorted(outcomes(peer)) == [(0, 1, 0x24, True), (2, 2, 0x25, True), (3, 3, 0x24, True)]


def test_transfers_sent_settled_are_stored_and_not_answered() -> None:
    peer = producing(snd_settle_mode=UByte(1))
    for number in range(5):
        peer.transfer(0, number, event(5), settled=True)
    assert len(stored(peer.node)) == 5
    assert peer.take("disposition") == []


def test_a_message_sent_settled_that_cannot_be_taken_closes_the_link() -> None:
    """No other way is left to report it."""
    peer = producing()
    peer.transfer(0, 0, b"garbage", settled=True)
    (detach,) = peer.take("detach")
    assert error_of(detach) == names.DECODE_ERROR


def test_in_mode_second_the_sender_settles_first() -> None:
    """AMQP 2.8.3: the receiver will only settle after the sender has."""
    peer = producing(rcv_settle_mode=UByte(1))
    peer.transfer(0, 0, event(5))
    assert outcomes(peer) == [(0, 0, 0x24, False)]
    assert unsettled(peer.node) == 1
    peer.send("disposition", role=False, first=UInt(0), settled=True, state=ACCEPTED)
    assert unsettled(peer.node) == 0


def test_in_mode_second_refusals_are_not_settled_first_either() -> None:
    peer = producing(rcv_settle_mode=UByte(1))
    peer.transfer(0, 0, b"garbage")
    assert outcomes(peer) == [(0, 0, 0x25, False)]
    peer.send("disposition", role=False, first=UInt(0), settled=True, state=REJECTED)
    assert unsettled(peer.node) == 0


@pytest.mark.parametrize("settled_at", ["sending", "before the outcome", "after the outcome"])
def test_in_mode_second_nothing_stays_unsettled_whenever_the_sender_settles(settled_at: str) -> None:
    store = MemoryStore(auto=False)
    node = InMemoryNode({"temps": 1}, store=store)
    peer = producing(node, rcv_settle_mode=UByte(1))
    for number in range(3):
        peer.transfer(0, number, event(5), settled=settled_at == "sending")
        if settled_at == "before the outcome":
            peer.send("disposition", role=False, first=UInt(number), settled=True)
        store.complete()
        node.run()
        if settled_at == "after the outcome":
            peer.send("disposition", role=False, first=UInt(number), settled=True)
    assert len(stored(node)) == 3
    assert unsettled(node) == 0


def test_in_mode_second_a_sender_that_never_settles_is_bounded() -> None:
    """Each delivery that it leaves open costs memory here, so credit ends with them."""
    node = InMemoryNode({"temps": 1}, limits=Limits(unsettled=50, credit=20))
    peer = producing(node, rcv_settle_mode=UByte(1))
    for number in range(200):
        peer.transfer(0, number, event(5))
    links = [
        link for connection in node.service.connections for link in connection.find_links(lambda _link: True)
    ]
    assert lib.pn_link_credit(links[0].pointer) <= 0
    peer.send("disposition", role=False, first=UInt(0), last=UInt(199), settled=True)
    assert lib.pn_link_credit(links[0].pointer) > 0


def unsettled(node: InMemoryNode) -> int:
    return sum(
        lib.pn_link_unsettled(link.pointer)
        for connection in node.service.connections
        for link in connection.find_links(lambda _link: True)
    )


# -- out


def test_deliveries_are_unsettled_and_settled_when_the_consumer_accepts() -> None:
    peer = consuming(10, credit=10)
    transfers = peer.take("transfer")
    assert [one.fields["settled"] for one in transfers] == [False] * 10 or [
        one.fields["settled"] for one in transfers
    ] == [None] * 10
    assert unsettled(peer.node) == 10
    peer.send("disposition", role=True, first=UInt(0), last=UInt(9), state=ACCEPTED, settled=True)
    assert unsettled(peer.node) == 0
    assert peer.take("disposition") == [], "both have settled"


def test_a_consumer_that_settles_second_is_answered() -> None:
    peer = consuming(3, credit=3, rcv_settle_mode=UByte(1))
    peer.send("disposition", role=True, first=UInt(0), last=UInt(2), state=ACCEPTED)
    settled = [one.fields for one in peer.take("disposition")]
    assert [(one["role"], one["first"], one["settled"]) for one in settled] == [
        (False, UInt(number), True) for number in range(3)
    ]
    assert unsettled(peer.node) == 0


def test_a_consumer_that_asks_for_settled_transfers_gets_them() -> None:
    peer = consuming(3, credit=3, snd_settle_mode=UByte(1))
    assert [one.fields["settled"] for one in peer.take("transfer")] == [True] * 3
    assert unsettled(peer.node) == 0


def test_delivery_tags_are_unique_among_those_unsettled() -> None:
    tags = [one.fields["delivery-tag"] for one in consuming(50, credit=50).take("transfer")]
    assert len(set(tags)) == 50


def test_a_large_message_goes_out_in_frames_of_the_peers_size() -> None:
    node = InMemoryNode({"temps": 1})
    sender = producing(node)
    message = event(300_000)
    for at in range(0, len(message), 50_000):
        sender.transfer(0, 0, message[at : at + 50_000], more=at + 50_000 < len(message))
    peer = ScriptedPeer(node)
    peer.open(max_frame_size=UInt(4096))
    peer.attach(0, source="temps", filters=EARLIEST)
    peer.flow(0, 1)
    transfers = peer.take("transfer")
    assert len(transfers) > 70
    assert [one.fields["more"] for one in transfers[:-1]] == [True] * (len(transfers) - 1)
    assert not transfers[-1].fields["more"]
    assert b"".join(one.payload for one in transfers).endswith(message)


def test_a_disposition_that_names_no_final_state_settles_nothing() -> None:
    peer = consuming(1, credit=1)
    received = Described(ULong(0x23), [UInt(0), ULong(0)])
    peer.send("disposition", role=True, first=UInt(0), state=received)
    assert unsettled(peer.node) == 1
    peer.send("disposition", role=True, first=UInt(0), settled=True)
    assert unsettled(peer.node) == 0


@pytest.mark.parametrize("first", [7, 0xFFFFFFFF])
def test_dispositions_of_deliveries_that_are_not_there_do_nothing(first: int) -> None:
    peer = consuming(2, credit=2)
    peer.send("disposition", role=True, first=UInt(first), state=RELEASED, settled=True)
    assert unsettled(peer.node) == 2
    assert not peer.lost


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=8), st.integers(1, 700), st.data())
def test_however_the_bytes_are_cut_the_events_are_the_same(
    bodies: list[bytes], block: int, data: st.DataObject
) -> None:
    """Frames divide messages, and reads divide frames. Neither division may affect the events."""
    node = InMemoryNode({"temps": 1}, block_bytes=block)
    peer = producing(node)
    messages = [b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body for body in bodies]
    wire = b""
    for number, message in enumerate(messages):
        step = data.draw(st.integers(1, len(message)))
        for at in range(0, len(message), step):
            more = at + step < len(message)
            fields: dict[str, Any] = {
                "handle": UInt(0),
                "delivery_id": UInt(number),
                "delivery_tag": b"%d" % number,
                "more": more,
            }
            wire += frame_of("transfer", message[at : at + step], **fields)
    peer.write(wire)
    assert stored(node) == messages
    assert {state for _, _, state, _ in outcomes(peer)} == {0x24}
