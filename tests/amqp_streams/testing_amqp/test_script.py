"""A script sends the given frames and keeps the received ones."""

import pytest

from amqp_streams.testing_amqp import InMemoryNode, ScriptedPeer, frame_of, symbols, terminus
from amqp_streams.wire.frames import read_frames, read_performative
from amqp_streams.wire.types import Array, Described, Symbol, UInt, ULong, Value


def test_frames_are_kept_by_name_until_they_are_taken() -> None:
    peer = ScriptedPeer(InMemoryNode({"temps": 1}))
    assert peer.open().fields["container-id"] == "amqp-streams"
    assert peer.protocol == b"AMQP\x00\x01\x00\x00"
    (attach,) = peer.attach(0, target="temps")
    assert attach.fields["name"] == "link-0"
    assert peer.take("attach") == []
    assert len(peer.take("flow")) == 1


def test_fields_have_the_standards_names_with_underscores() -> None:
    (frame,) = read_frames(frame_of("transfer", b"payload", handle=UInt(1), delivery_tag=b"t", channel=7))
    read = read_performative(frame.body)
    assert (frame.channel, read.name, read.payload) == (7, "transfer", b"payload")
    assert (read.fields["handle"], read.fields["delivery-tag"]) == (1, b"t")


def test_a_terminus_has_its_fields_in_their_places() -> None:
    assert terminus(0x29, None) == Described(ULong(0x29), [])
    assert terminus(0x29, "a", dynamic=True) == Described(ULong(0x29), ["a", None, None, None, True])
    assert terminus(0x28, "a", filter={}) == Described(
        ULong(0x28), ["a", None, None, None, None, None, None, {}]
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, []), (Symbol("a"), ["a"]), (Array(Symbol, (Symbol("a"), Symbol("b"))), ["a", "b"])],
)
def test_one_symbol_and_an_array_of_them_are_read_alike(value: Value, expected: list[str]) -> None:
    assert symbols(value) == expected
