"""Sections are read as they were written, and heads that do not fit the sizes are noticed."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import WireError
from amqp_streams.wire.batched.arrays import (
    SECTION_BYTES,
    are_equal,
    heads_match,
    join_sections,
    numbers_of,
    read_array,
    sizes_of,
    split_sections,
    walk_sections,
    write_array,
)
from amqp_streams.wire.codec import Array, UInt, ULong, decode

MESSAGES = st.one_of(
    st.lists(st.binary(max_size=300), min_size=1, max_size=30),
    st.integers(0, 20).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9)
    ),
)


@given(st.one_of(MESSAGES, st.just([])))
def test_sizes_are_those_of_the_messages(messages: list[bytes]) -> None:
    sizes = sizes_of(messages)
    assert sizes == array("I", map(len, messages))
    assert are_equal(sizes) == (len(set(sizes)) <= 1)


@given(MESSAGES, st.binary(max_size=20))
def test_sections_are_read_as_they_were_written(messages: list[bytes], head: bytes) -> None:
    sizes = sizes_of(messages)
    joined = join_sections(head, sizes, messages)
    assert len(joined) == len(head) + sum(sizes) + SECTION_BYTES * len(messages)
    assert split_sections(joined, len(head), sizes) == messages
    assert heads_match(joined, len(head), sizes)
    assert walk_sections(joined[len(head) :], len(messages)) == messages


@given(MESSAGES, st.data())
def test_a_changed_head_is_noticed(messages: list[bytes], data: st.DataObject) -> None:
    sizes = sizes_of(messages)
    joined = bytearray(join_sections(b"", sizes, messages))
    index = data.draw(st.integers(0, len(messages) - 1))
    place = sum(sizes[:index]) + SECTION_BYTES * index + data.draw(st.integers(0, SECTION_BYTES - 1))
    joined[place] ^= 1 << data.draw(st.integers(0, 7))
    assert not heads_match(bytes(joined), 0, sizes)
    with pytest.raises(WireError, match="are not those of its sizes"):
        split_sections(bytes(joined), 0, sizes)


def test_sizes_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(WireError, match="the sizes in a batch are not those of its 18 bytes"):
        split_sections(join_sections(b"", array("I", [1, 1]), [b"a", b"b"]), 0, array("I", [1]))


@pytest.mark.parametrize(("code", "kind"), [(0x80, "Q"), (0x83, "q"), (0x70, "I")])
def test_arrays_are_read_as_they_were_written(code: int, kind: str) -> None:
    numbers = array(kind, [0, 1, 77])
    written = write_array(code, numbers)
    assert read_array(b"xx" + written + b"rest", 2, 2 + len(written)) == (numbers, 2 + len(written))
    value = decode(written)[0]
    assert isinstance(value, Array)
    assert list(value.items) == [0, 1, 77]
    with pytest.raises(WireError, match="has not the bytes of its 3 items"):
        read_array(written, 0, len(written) - 1)


def test_other_arrays_are_left_to_the_decoder() -> None:
    assert read_array(b"\xf0\x00\x00\x00\x05\x00\x00\x00\x00\x52", 0, 10) is None
    assert read_array(b"\xf0", 0, 1) is None
    assert numbers_of(Array(UInt, (UInt(3),)), "I") == array("I", [3])
    with pytest.raises(WireError, match="other items than numbers of its kind"):
        numbers_of(Array(ULong, (ULong(1 << 40),)), "I")


def test_no_sections_are_expected_in_a_batch_without_events() -> None:
    assert walk_sections(b"anything", 0) == []
