"""The sequence numbers of events are read as written, with any client's encoding."""

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.annotations import section
from amqp_streams.wire.codec import Byte, Symbol, Timestamp, UByte, UInt, ULong
from amqp_streams.wire.sections import delivery_annotations, strip
from amqp_streams.wire.sequences import SEQUENCE_MAX, sequence_of, split_batch, with_sequence

BARE = b"\x00\x53\x75\xa0\x01x"
ANNOTATED = b"\x00\x53\x72\xc1\x07\x02\xa3\x01k\xa1\x01v" + BARE
HEADER = b"\x00\x53\x70\x45"
SEQUENCES = st.integers(0, SEQUENCE_MAX)
MESSAGES = st.sampled_from([BARE, ANNOTATED, b"\x00\x53\x77\x40", BARE + BARE])


def noted(value: object, message: bytes = BARE, **more: object) -> bytes:
    return section({names.SEQUENCE: value} | more) + message


@given(st.lists(st.tuples(SEQUENCES, MESSAGES), min_size=1, max_size=9), st.booleans())
def test_a_batch_is_taken_apart_as_each_of_its_messages_is(
    events: list[tuple[int, bytes]], header: bool
) -> None:
    front = HEADER if header else b""
    messages = [with_sequence(front + message, sequence) for sequence, message in events]
    split = split_batch(messages)
    assert split is not None
    assert (
        list(split.sequences)
        == [sequence_of(message) for message in messages]
        == [sequence for sequence, _ in events]
    )
    assert (
        split.stored
        == [strip(message)[1] for message in messages]
        == [front + message for _, message in events]
    )
    assert list(split.header_sizes) == [strip(message)[0] for message in messages]


@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.builds(with_sequence, MESSAGES, SEQUENCES)),
        min_size=1,
        max_size=4,
    )
)
def test_a_batch_with_anything_else_in_it_is_left_to_the_general_decoder(messages: list[bytes]) -> None:
    split = split_batch(messages)
    if split is not None:
        assert split.stored == [strip(message)[1] for message in messages]
        assert list(split.sequences) == [sequence_of(message) for message in messages]


def test_an_incomplete_message_is_not_part_of_a_batch() -> None:
    whole = with_sequence(BARE, 7)
    for end in range(len(whole) - len(BARE) + 3):
        assert split_batch([whole, whole[:end]]) is None


def test_messages_of_proton_are_understood() -> None:
    message = proton.Message(body="x")
    message.instructions = {proton.symbol(names.SEQUENCE): proton.ulong(1 << 40)}
    encoded = bytes(message.encode())
    assert sequence_of(encoded) == 1 << 40
    split = split_batch([encoded])
    assert split is not None
    assert list(split.sequences) == [1 << 40]


@pytest.mark.parametrize(
    "value", [0, 5, 1 << 40, UByte(5), UInt(5), ULong(5), ULong(0), ULong(SEQUENCE_MAX), Byte(5)]
)
def test_any_integer_from_0_on_will_do(value: int) -> None:
    assert sequence_of(noted(value)) == value


@pytest.mark.parametrize("value", [-1, True, "5", 5.0, Timestamp(5), b"5", Symbol("5")])
def test_nothing_else_is_a_number(value: object) -> None:
    with pytest.raises(WireError, match=names.SEQUENCE):
        sequence_of(noted(value))


def test_a_message_without_a_number_has_none() -> None:
    assert sequence_of(BARE) is None
    assert sequence_of(section({"note": "x"}) + BARE) is None


def test_annotations_that_are_far_too_large_are_not_searched() -> None:
    with pytest.raises(WireError, match="allowed"):
        sequence_of(noted(5, note="x" * 70_000))


@given(MESSAGES, SEQUENCES, SEQUENCES)
def test_other_annotations_stay_and_an_earlier_number_goes(message: bytes, first: int, second: int) -> None:
    targeted = HEADER + section({names.TARGET_PARTITION: Symbol("3")}) + message
    numbered = with_sequence(with_sequence(targeted, first), second)
    assert delivery_annotations(numbered) == {names.TARGET_PARTITION: "3", names.SEQUENCE: second}
    assert strip(numbered) == strip(targeted)


def test_bytes_that_are_not_a_message_get_no_number() -> None:
    with pytest.raises(WireError):
        with_sequence(b"no message", 1)
