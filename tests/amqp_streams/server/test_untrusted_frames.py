"""Arbitrary bytes and frames of one client. The other clients are always served."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.testing_amqp import EnginePair, InMemoryNode, ScriptedPeer, frame_of, terminus
from amqp_streams.wire.codec import encode, encode_list
from amqp_streams.wire.frames import frame, read_frame, read_performative
from amqp_streams.wire.security.sasl import AMQP_HEADER, SASL_HEADER
from amqp_streams.wire.types import Described, Symbol, UInt, ULong, Value
from tests.properties import examples

EVENT = b"\x00\x53\x75\xa0\x05event"


# -- any bytes at all

_NAMES = ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"]


def conversation() -> list[bytes]:
    """Frames of a peer that does a bit of everything, one by one."""
    return [
        frame_of("open", container_id="c", idle_time_out=UInt(9000), max_frame_size=UInt(4096)),
        frame_of("begin", next_outgoing_id=UInt(0), incoming_window=UInt(999), outgoing_window=UInt(999)),
        *_attaches(),
        *_deliveries(),
        frame(0, b""),
        frame_of("detach", handle=UInt(2), closed=True),
        frame_of("end"),
        frame_of("close"),
    ]


def _attaches() -> list[bytes]:
    """A producer, a consumer, a reader of `$info` and a sender of requests."""
    earliest: Value = {
        Symbol(names.FILTER_DELIVERY_ANNOTATIONS): Described(
            ULong(0x200), {Symbol(names.OFFSET): Symbol("@earliest")}
        )
    }
    attach: dict[str, Any] = {
        "snd_settle_mode": None,
        "initial_delivery_count": UInt(0),
        "properties": {Symbol(names.PARTITION): Symbol("1")},
    }
    return [
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
    ]


def _deliveries() -> list[bytes]:
    """Credit, an event in one frame and in two, a request, and outcomes."""
    window = {
        "next_incoming_id": UInt(0),
        "incoming_window": UInt(999),
        "next_outgoing_id": UInt(0),
        "outgoing_window": UInt(999),
    }
    return [
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
        assert not service.commits.awaited
        assert all(link.alive for link in service._pumps)
        return bytes(peer.got)


_SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
