"""Endpoints come and go in every order, and no peer's bytes raise, crash or disturb a neighbour."""

import struct
from typing import Any

import proton
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import Limits
from amqp_streams.errors import StorageError
from amqp_streams.server.dispatch import HANDLES_PER_LINK
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, filter_of, frame_of, terminus
from amqp_streams.wire.codec import encode, encode_list
from amqp_streams.wire.frames import Performative, frame, read_frame, read_performative
from amqp_streams.wire.security.sasl import AMQP_HEADER, SASL_HEADER
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value

EVENT = b"\x00\x53\x75\xa0\x05event"


def condition(one: Performative) -> str:
    error = one.fields["error"]
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(error.value[0])


def opened(node: InMemoryNode | None = None) -> ScriptedPeer:
    peer = ScriptedPeer(node or InMemoryNode({"temps": 2}))
    peer.open()
    return peer


def links(node: InMemoryNode) -> int:
    return sum(len(connection.find_links(lambda _link: True)) for connection in node.service.connections)


# -- coming and going


def test_a_detach_is_answered_with_a_closing_detach() -> None:
    """Also one that does not close: some clients cannot bear the difference."""
    peer = opened()
    for handle, closed in ((0, True), (1, False)):
        peer.attach(handle, target="temps")
        peer.send("detach", handle=UInt(handle), closed=closed)
        (detach,) = peer.take("detach")
        assert (detach.fields["closed"], detach.fields["error"]) == (True, None)
    assert links(peer.node) == 0


def test_a_name_may_be_used_again_after_its_detach() -> None:
    peer = opened()
    for _ in range(3):
        (attach,) = peer.attach(0, target="temps")
        assert attach.fields["target"] is not None
        peer.send("detach", handle=UInt(0), closed=True)
        peer.take("detach")
    assert links(peer.node) == 0


def test_a_detach_and_an_attach_in_one_block_are_taken_in_order() -> None:
    peer = opened()
    peer.attach(0, target="temps")
    attach = frame_of(
        "attach",
        name="link-0",
        handle=UInt(0),
        role=False,
        source=terminus(0x28, None),
        target=terminus(0x29, "temps"),
        initial_delivery_count=UInt(0),
    )
    peer.write(frame_of("detach", handle=UInt(0), closed=True) + attach)
    assert len(peer.take("detach")) == len(peer.take("attach")) == 1
    assert links(peer.node) == 1
    peer.transfer(0, 0, EVENT)
    assert len(peer.take("disposition")) == 1


def test_open_begin_and_attach_may_come_at_once_and_attach_and_transfers_too() -> None:
    """Many clients do not wait for answers."""
    node = InMemoryNode({"temps": 1})
    attach: dict[str, Any] = {
        "source": terminus(0x28, None),
        "target": terminus(0x29, "temps"),
        "initial_delivery_count": UInt(0),
    }
    wire = [frame_of("open", container_id="fast")]
    wire += [frame_of("begin", next_outgoing_id=UInt(0), incoming_window=UInt(99), outgoing_window=UInt(99))]
    peer = ScriptedPeer(node)
    peer.write(b"".join([*wire, frame_of("attach", name="l9", handle=UInt(9), role=False, **attach)]))
    assert len(peer.take("attach")) == 1
    wire = []
    for handle in range(3):
        wire += [frame_of("attach", name=f"l{handle}", handle=UInt(handle), role=False, **attach)]
        wire += [
            frame_of(
                "transfer", EVENT, handle=UInt(handle), delivery_id=UInt(handle), delivery_tag=b"%d" % handle
            )
        ]
    peer.write(b"".join(wire))
    assert node.store.logs["temps"].partitions[0].end == 3


def test_the_end_of_a_session_ends_its_links_only() -> None:
    node = InMemoryNode({"temps": 2})
    peer = opened(node)
    peer.send(
        "begin", channel=1, next_outgoing_id=UInt(0), incoming_window=UInt(99), outgoing_window=UInt(99)
    )
    peer.attach(0, target="temps")
    peer.attach(0, target="temps", channel=1, name="other")
    peer.attach(1, target="nowhere")
    peer.send("end")
    assert len(peer.take("end")) == 1
    assert links(node) == 1
    peer.transfer(0, 0, EVENT, channel=1)
    assert len(peer.take("disposition")) == 1
    assert len(node.service.node.links_of("temps")) == 1


def test_a_link_name_attached_twice_does_no_harm() -> None:
    peer = opened()
    peer.attach(0, target="temps")
    peer.attach(1, target="temps", name="link-0")
    peer.transfer(0, 0, EVENT)
    peer.node.run()
    neighbour = EnginePair(peer.node)
    (sent,) = neighbour.send(neighbour.sender("temps"), EVENT)
    assert sent.outcome == "accepted"


def test_the_same_name_may_be_a_senders_and_a_receivers() -> None:
    """Names are unique for a direction only (AMQP 2.6.1)."""
    peer = opened()
    peer.attach(0, target="temps", name="both")
    peer.attach(1, source="temps", name="both")
    assert links(peer.node) == 2


# -- limits


def test_links_beyond_the_limit_are_refused_and_the_others_live_on() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for handle in range(3):
        assert len(peer.attach(handle, target="temps")) == 1
    _, detach = peer.attach(3, target="temps")
    assert condition(detach) == names.RESOURCE_LIMIT_EXCEEDED
    peer.transfer(0, 0, EVENT)
    assert len(peer.take("disposition")) == 1
    peer.send("detach", handle=UInt(0), closed=True)
    peer.take("detach")
    assert len(peer.attach(4, target="temps")) == 1, "there is room again"


def test_refused_links_that_are_never_detached_are_bounded_too() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for handle in range(3 * HANDLES_PER_LINK):
        peer.attach(handle, target="nowhere")
    assert not peer.lost
    peer.attach(99, target="nowhere")
    (close,) = peer.take("close")
    assert condition(close) == names.RESOURCE_LIMIT_EXCEEDED


def test_refused_links_that_are_detached_cost_nothing() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for _ in range(100):
        peer.attach(0, target="nowhere")
        peer.send("detach", handle=UInt(0), closed=True)
    assert len(peer.attach(0, target="temps")) == 1


def test_refused_links_of_a_session_end_with_it() -> None:
    node = InMemoryNode({"temps": 1}, limits=Limits(links=3))
    peer = opened(node)
    for _ in range(30):
        peer.send(
            "begin", channel=1, next_outgoing_id=UInt(0), incoming_window=UInt(99), outgoing_window=UInt(99)
        )
        peer.attach(0, target="nowhere", channel=1)
        peer.send("end", channel=1)
    assert not peer.lost


# -- disk


def test_a_disk_that_fails_while_a_log_is_made_refuses_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    node = InMemoryNode(auto_create_partitions=2)

    def broken(*_args: object, **_options: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(node.store, "create", broken)
        pair = EnginePair(node)
        assert pair.sender("made").refused == names.INTERNAL_ERROR
    assert pair.sender("made").refused is None
    assert len(node.store.logs["made"].partitions) == 2


# -- dispositions and flows on links of every kind


def test_dispositions_and_flows_of_every_kind_of_link_are_borne() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"a")
    peer = opened(node)
    earliest: Value = {Symbol(names.FILTER_DELIVERY_ANNOTATIONS): {Symbol(names.OFFSET): Symbol("@earliest")}}
    kinds: list[dict[str, Value]] = [
        {"source": "temps", "filters": earliest},
        {"source": "temps/$info"},
        {"source": "$management"},
        {"target": "temps"},
        {"target": "$management"},
        {"target": "nowhere"},
        {"source": "nowhere"},
    ]
    for handle, fields in enumerate(kinds):
        peer.attach(handle, **fields)  # type: ignore[arg-type]  # fields of any kind
        peer.flow(handle, 5, drain=True, echo=True)
        peer.flow(handle, 0, echo=True)
    for state in (0x23, 0x24, 0x25, 0x26, 0x27):
        for role in (True, False):
            peer.send(
                "disposition",
                role=role,
                first=UInt(0),
                last=UInt(20),
                settled=False,
                state=Described(ULong(state), []),
            )
    peer.send("disposition", role=True, first=UInt(0), last=UInt(20), settled=True)
    assert not peer.lost


@pytest.mark.parametrize(
    ("source", "beside"), [("temps", False), ("temps", True), ("temps/$info", True), ("nowhere", False)]
)
@pytest.mark.parametrize("settled", [None, True])
@pytest.mark.parametrize("tag", [b"x", struct.pack(">BBHQ", 0, 0, 60_000, 1 << 62)])
def test_a_transfer_against_the_direction_of_its_link_closes_the_connection(
    source: str, beside: bool, settled: bool | None, tag: bytes
) -> None:
    """AMQP 2.6: only the sender transfers.

    The engine takes it for one of the sender's own, with a tag that a peer made up.
    """
    peer = opened()
    if beside:
        peer.attach(1, target="temps")
    peer.attach(0, source=source)
    peer.flow(0, credit=10)
    peer.transfer(0, 0, b"\x00\x53\x77\x40", delivery_tag=tag, settled=settled)
    (closed,) = peer.take("close")
    assert condition(closed) == names.ILLEGAL_STATE


def test_a_consumer_among_other_links_gets_returned_events_back() -> None:
    node = InMemoryNode({"temps": 1})
    node.append("temps", b"a")
    pair = EnginePair(node)
    pair.sender("temps")
    receiver = pair.receiver("temps", credit=5, filters=filter_of("@earliest"))
    (each,) = receiver.take()
    pair.settle(each, proton.Delivery.RELEASED)
    node.run()
    assert receiver.bodies == [b"a"]
    pair.settle(receiver.take()[0])
    node.run()
    assert receiver.arrived == []


def test_many_producers_on_a_connection_are_all_served() -> None:
    node = InMemoryNode({"temps": 3})
    pair = EnginePair(node)
    senders = [pair.sender("temps") for _ in range(9)]
    sent = [sender.send(EVENT) for sender in senders for _ in range(5)]
    node.run()
    assert {each.outcome for each in sent} == {"accepted"}


# -- any bytes at all

_NAMES = ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"]


def conversation() -> list[bytes]:
    """Frames of a peer that does a bit of everything, one by one."""
    earliest: Value = {
        Symbol(names.FILTER_DELIVERY_ANNOTATIONS): Described(
            ULong(0x200), {Symbol(names.OFFSET): Symbol("@earliest")}
        )
    }
    window = {
        "next_incoming_id": UInt(0),
        "incoming_window": UInt(999),
        "next_outgoing_id": UInt(0),
        "outgoing_window": UInt(999),
    }
    attach: dict[str, Any] = {
        "snd_settle_mode": None,
        "initial_delivery_count": UInt(0),
        "properties": {Symbol(names.PARTITION): Symbol("1")},
    }
    return [
        frame_of("open", container_id="c", idle_time_out=UInt(9000), max_frame_size=UInt(4096)),
        frame_of("begin", next_outgoing_id=UInt(0), incoming_window=UInt(999), outgoing_window=UInt(999)),
        frame_of(
            "attach",
            name="p",
            handle=UInt(0),
            role=False,
            source=terminus(0x28, "x"),
            target=terminus(0x29, "temps"),
            **attach,
        ),
        frame_of(
            "attach",
            name="c",
            handle=UInt(1),
            role=True,
            source=terminus(0x28, "temps", filter=earliest),
            target=terminus(0x29, "y"),
        ),
        frame_of(
            "attach",
            name="i",
            handle=UInt(2),
            role=True,
            source=terminus(0x28, "temps/$info"),
            target=terminus(0x29, "y"),
        ),
        frame_of(
            "attach",
            name="m",
            handle=UInt(3),
            role=False,
            source=terminus(0x28, None),
            target=terminus(0x29, "$management"),
        ),
        frame_of("flow", handle=UInt(1), delivery_count=UInt(0), link_credit=UInt(50), echo=True, **window),
        frame_of("flow", handle=UInt(2), delivery_count=UInt(0), link_credit=UInt(5), drain=True, **window),
        frame_of("transfer", EVENT, handle=UInt(0), delivery_id=UInt(0), delivery_tag=b"0"),
        frame_of("transfer", EVENT[:4], handle=UInt(0), delivery_id=UInt(1), delivery_tag=b"1", more=True),
        frame_of("transfer", EVENT[4:], handle=UInt(0), delivery_id=UInt(1), delivery_tag=b"1"),
        frame_of(
            "transfer",
            b"\x00\x53\x77\xa1\x01x",
            handle=UInt(3),
            delivery_id=UInt(2),
            delivery_tag=b"2",
            settled=True,
        ),
        frame_of(
            "disposition",
            role=True,
            first=UInt(0),
            last=UInt(1),
            settled=True,
            state=Described(ULong(0x27), [True]),
        ),
        frame(0, b""),
        frame_of("detach", handle=UInt(2), closed=True),
        frame_of("end"),
        frame_of("close"),
    ]


_FRAMES = conversation()


class Neighbours:
    """A node that serves another client while a peer sends arbitrary frames."""

    def __init__(self, block_bytes: int = 256 << 10) -> None:
        self.node = InMemoryNode({"temps": 2}, block_bytes=block_bytes)
        self.other = EnginePair(self.node)
        self.sender = self.other.sender("temps")
        self.receiver = self.other.receiver("temps", credit=10_000)

    def says(self, *blocks: bytes) -> bytes:
        """A peer that sends these frames, and the frames that it got back."""
        peer = ScriptedPeer(self.node, header=b"")
        for block in blocks:
            peer.write(block)
        self.node.advance(700)
        (sent,) = self.other.send(self.sender, EVENT)
        assert sent.outcome == "accepted"
        assert any(each.raw.endswith(EVENT) for each in self.receiver.arrived)
        self.node.disconnect(peer)
        service = self.node.service
        assert service.unfinished.bytes == 0
        assert len(service.node.links_of("temps")) == 2, "the neighbour's"
        assert not service._waiting
        assert all(link.alive for link in service._pumps)
        return bytes(peer.got)


_SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_SETTINGS
@given(
    st.sampled_from(
        [
            b"",
            AMQP_HEADER,
            SASL_HEADER,
            AMQP_HEADER + b"".join(_FRAMES[:2]),
            AMQP_HEADER + b"".join(_FRAMES[:6]),
        ]
    ),
    st.binary(),
)
def test_arbitrary_bytes_at_any_stage_affect_no_other_client(before: bytes, garbage: bytes) -> None:
    Neighbours().says(before, garbage)


@_SETTINGS
@given(st.data())
def test_frames_with_changed_bytes_affect_no_other_client(data: st.DataObject) -> None:
    """The closest to valid is the most dangerous: one byte of one frame, or a few."""
    frames = [bytearray(each) for each in _FRAMES[: data.draw(st.integers(1, len(_FRAMES)), label="frames")]]
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        victim = frames[data.draw(st.integers(0, len(frames) - 1), label="frame")]
        if len(victim) > 8:
            victim[data.draw(st.integers(8, len(victim) - 1), label="place")] = data.draw(
                st.integers(0, 255), label="value"
            )
    Neighbours().says(AMQP_HEADER, *map(bytes, frames))


@_SETTINGS
@given(st.lists(st.integers(0, len(_FRAMES) - 1), max_size=25))
def test_frames_in_any_order_and_number_affect_no_other_client(order: list[int]) -> None:
    Neighbours().says(AMQP_HEADER + b"".join(_FRAMES[:2]), *(_FRAMES[index] for index in order))


_VALUES: st.SearchStrategy[Value] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(0, 2**32 - 1).map(UInt),
        st.integers(0, 2**64 - 1).map(ULong),
        st.text(max_size=8),
        st.binary(max_size=8),
        st.sampled_from(
            ["temps", "temps/$info", "$management", names.PARTITION, names.OFFSET, "@earliest"]
        ).map(Symbol),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", names.PARTITION, names.OFFSET]).map(Symbol), inner, max_size=3),
        st.builds(
            Described,
            st.sampled_from([0x23, 0x24, 0x25, 0x27, 0x28, 0x29, 0x30, 0x200]).map(ULong),
            st.lists(inner, max_size=6),
        ),
    ),
    max_leaves=8,
)


@_SETTINGS
@given(
    st.lists(st.tuples(st.sampled_from(_NAMES), st.lists(_VALUES, max_size=14)), min_size=1, max_size=6),
    st.integers(2, 8),
)
def test_performatives_with_fields_of_any_kind_affect_no_other_client(
    said: list[tuple[str, list[Value]]], before: int
) -> None:
    frames = [
        frame(0, b"\x00" + encode(ULong(0x10 + _NAMES.index(name))) + encode_list(fields))
        for name, fields in said
    ]
    Neighbours().says(AMQP_HEADER + b"".join(_FRAMES[:before]), *frames)


@_SETTINGS
@given(st.integers(1, 5))
def test_bytes_one_by_one_are_the_same_as_all_at_once(block: int) -> None:
    """The answer may be divided differently, and dispositions may be joined, but its meaning is the same."""
    said = AMQP_HEADER + b"".join(_FRAMES[:2]), b"".join(_FRAMES[2:])
    at_once, one_by_one = Neighbours(), Neighbours(block_bytes=block)
    gist = _gist(at_once.says(*said))
    assert len(gist) == 9
    assert gist == _gist(one_by_one.says(*said))
    ends = [
        [partition.end for partition in each.node.store.logs["temps"].partitions]
        for each in (at_once, one_by_one)
    ]
    assert ends[0] == ends[1]


def _gist(got: bytes) -> list[str]:
    at, found = len(AMQP_HEADER), []
    while (one := read_frame(got, at)) is not None:
        at = one[1]
        if one[0].body:
            read = read_performative(one[0].body)
            if read.name in {"open", "begin", "attach", "detach", "end", "close"}:
                handle, name, error = (read.fields.get(field) for field in ("handle", "name", "error"))
                found.append(f"{read.name} {handle!r} {name!r} {error!r}")
    return sorted(found)
