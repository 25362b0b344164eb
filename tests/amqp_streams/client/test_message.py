"""Target partitions are written and positions are read. The remembered layout gives the same result as the
full decoder.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import message as messages
from amqp_streams.client.message import (
    Delivered,
    EventPosition,
    bare,
    delivered,
    position_of,
    with_target_partition,
)
from amqp_streams.errors import WireError
from amqp_streams.names import OFFSET, SOURCE_PARTITION, TIMESTAMP
from amqp_streams.wire.annotations import AnnotationWriter, section
from amqp_streams.wire.codec import Symbol, Timestamp
from amqp_streams.wire.offsets import OFFSET_MAX, offset_text
from amqp_streams.wire.sections import delivery_annotations, strip, target_partition

BODY = b"\x00\x53\x75\xa0\x01x"
MESSAGE_ANNOTATIONS = b"\x00\x53\x72\xc1\x01\x00"
HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"


def test_a_target_partition_follows_the_header_and_replaces_other_delivery_annotations() -> None:
    assert target_partition(with_target_partition(BODY, "7")) == "7"
    assert with_target_partition(HEADER + BODY, "7").startswith(HEADER + b"\x00\x53\x71")
    again = with_target_partition(with_target_partition(HEADER + BODY, "7"), "12")
    assert delivery_annotations(again) == {"event-streams-target-partition": "12"}
    assert bare(again) == HEADER + BODY


@given(
    st.booleans(),
    st.binary(max_size=20),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=3),
    st.integers(0, 120),
)
def test_the_remaining_bytes_are_those_that_the_node_would_store(
    header: bool, extra: bytes, changes: list[tuple[int, int]], end: int
) -> None:
    """This also holds for a malformed beginning: bytes that are not messages are reported as a whole."""
    annotations = AnnotationWriter("0", {"x-opt-a": extra}).run(1, 2, 1)[0]
    message = bytearray(((HEADER if header else b"") + annotations + BODY)[: end or None])
    for at, byte in changes:
        message[at % len(message)] = byte
    try:
        stored = strip(bytes(message))[1]
    except WireError:
        with pytest.raises(WireError):
            bare(bytes(message))
    else:
        assert bare(bytes(message)) == stored


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1023),
            st.integers(0, 10**16 - 1),
            st.integers(0, 1 << 60),
            st.booleans(),
            st.binary(max_size=20),
        ),
        max_size=20,
    )
)
def test_cursors_are_those_that_were_written_whatever_came_before(
    written: list[tuple[int, int, int, bool, bytes]],
) -> None:
    for partition, number, timestamp, with_header, extra in written:
        annotations = AnnotationWriter(str(partition), {"x-opt-a": extra}).run(number, timestamp, 1)[0]
        message = (HEADER if with_header else b"") + annotations + BODY
        assert position_of(message) == EventPosition(str(partition), number, timestamp)


@given(
    st.permutations([SOURCE_PARTITION, OFFSET, TIMESTAMP]),
    st.sampled_from(["1", "22"]),
    st.integers(0, OFFSET_MAX),
)
def test_any_order_is_read(order: list[str], partition: str, offset: int) -> None:
    values = {
        SOURCE_PARTITION: Symbol(partition),
        OFFSET: Symbol(offset_text(offset)),
        TIMESTAMP: Timestamp(7),
    }
    message = section({name: values[name] for name in order}) + BODY
    for _ in range(2):
        assert position_of(message) == EventPosition(partition, offset, 7)


def test_offsets_as_strings_and_missing_ones_are_read_too() -> None:
    assert position_of(section({OFFSET: "0000000000000005"}) + BODY) == EventPosition(None, 5, None)
    assert position_of(BODY) == EventPosition(None, None, None)


@given(st.text("0123456789 +-_abc", min_size=1, max_size=20), st.sampled_from([Symbol, str]))
def test_a_text_of_another_form_is_not_an_offset(text: str, kind: type[str]) -> None:
    """This also holds after a layout with 16 digits was remembered: `int` would accept blanks, signs and
    underscores.
    """
    for offset in (kind(text), kind(text.ljust(16)[:16])):
        learnt = {SOURCE_PARTITION: Symbol("1"), OFFSET: Symbol(offset_text(7)), TIMESTAMP: Timestamp(7)}
        assert position_of(section(learnt) + BODY) == EventPosition("1", 7, 7)
        expected = int(offset) if re.fullmatch("[0-9]{16}", offset) else None
        assert position_of(section({**learnt, OFFSET: offset}) + BODY) == EventPosition("1", expected, 7)


@given(
    st.integers(0, OFFSET_MAX),
    st.sampled_from([{}, {"x-opt-a": b"x" * 20}, {OFFSET: "12"}, {OFFSET: Symbol("12345678901234_6")}]),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=2),
    st.integers(-20, 0),
)
def test_a_delivery_taken_apart_has_the_position_and_the_bytes_of_the_other_functions(
    offset: int, extra: dict[str, object], changes: list[tuple[int, int]], end: int
) -> None:
    usual = AnnotationWriter("0", {}).run(offset, 5, 1)[0] + MESSAGE_ANNOTATIONS + BODY
    position_of(usual)  # learns the layout
    assert delivered(usual) == Delivered(offset_text(offset), 5, MESSAGE_ANNOTATIONS + BODY)
    other = bytearray((AnnotationWriter("0", extra).run(offset, 5, 1)[0] + BODY)[: end or None])
    for at, byte in changes:
        other[at % len(other)] = byte
    found = delivered(bytes(other))
    if found is not None:
        position = position_of(bytes(other))
        assert position.offset is not None
        assert found == (offset_text(position.offset), position.timestamp_ms, bare(bytes(other)))


def test_layouts_learnt_are_bounded() -> None:
    for number in range(300):
        extra = {f"x-{'y' * (number % 150)}": number}
        position_of(AnnotationWriter("0", extra).run(1, 1, 1)[0] + BODY)
    assert len(messages._layouts) <= 64
