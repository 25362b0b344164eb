from array import array
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.batched.packed import (
    Packed,
    cut_equal,
    join_messages,
    joined,
    largest_bytes,
    pack,
    packed_copy,
    total_bytes,
)

alike = st.tuples(st.binary(min_size=1, max_size=9), st.integers(0, 40)).map(
    lambda drawn: [drawn[0]] * drawn[1]
)
messages = st.one_of(alike, st.lists(st.binary(max_size=9), max_size=20))


def packed(wanted: list[bytes], front: bytes = b"", back: bytes = b"") -> Packed:
    sizes = set(map(len, wanted))
    if len(sizes) == 1 and (size := sizes.pop()):
        ends: range | list[int] = range(len(front), len(front) + size * len(wanted) + 1, size)
    else:
        ends = list(accumulate(map(len, wanted), initial=len(front)))
    return Packed(front + b"".join(wanted) + back, ends)


@given(messages, st.binary(max_size=5), st.slices(20))
def test_it_equals_the_list_of_its_messages(wanted, around, part):
    made = packed(wanted, around, around)
    assert (made, list(made), len(made)) == (wanted, wanted, len(wanted))
    assert (total_bytes(made), total_bytes(wanted)) == (made.body_bytes, sum(map(len, wanted)))
    if wanted:
        assert largest_bytes(made) == largest_bytes(wanted) == max(map(len, wanted))
    assert made.sizes() == array("I", map(len, wanted))
    assert [made[index] for index in range(-len(wanted), len(wanted))] == wanted * 2
    assert made[part] == wanted[part]
    assert isinstance(made[part], Packed) == (part.step in (None, 1))
    copy = pack(made.buffer, made.ends)
    assert (copy, copy.buffer) == (wanted, b"".join(wanted))


@given(messages)
def test_there_is_no_message_outside(wanted):
    made = packed(wanted, b"front", b"back")
    for index in (len(wanted), -len(wanted) - 1):
        with pytest.raises(IndexError):
            made[index]
    assert made != [*wanted, b""]
    assert made != 7


@given(messages, st.integers(0, 200), st.integers(0, 9), st.data())
def test_it_counts_the_messages_that_fit(wanted, size, overhead, data):
    first = data.draw(st.integers(0, len(wanted)))
    ends = list(accumulate(len(message) + overhead for message in wanted[first:]))
    assert packed(wanted, b"front").within(size, overhead, first) == sum(end <= size for end in ends)


@given(
    messages, st.binary(max_size=3), st.integers(0, 255), st.integers(0, 255), st.lists(st.integers(0, 255))
)
def test_it_is_known_whether_all_begin_alike(others, front, first, last, more):
    """All of them are checked, whether they have one size or not."""
    for wanted in (others, [front + bytes((byte,)) + b"r" * (byte % 3) for byte in more]):
        alike = all(
            message[: len(front)] == front and first <= message[len(front)] <= last
            for message in wanted
            if len(message) > len(front)
        )
        long = all(len(message) > len(front) for message in wanted)
        assert packed(wanted, b"f", b"b").all_begin(front, first, last) == (alike and long)


@given(messages)
def test_the_bytes_of_all_messages_are_not_copied(wanted):
    for made in (packed(wanted), packed(wanted, b"f", b"b")):
        body = made.body()
        assert body == joined(wanted) == joined(made)
        assert body is made.buffer or memoryview(body).obj is made.buffer


@given(st.lists(st.tuples(messages, st.booleans()), max_size=4))
def test_parts_are_joined_in_their_order(drawn):
    parts = [packed(wanted, b"front", b"back") if is_packed else wanted for wanted, is_packed in drawn]
    together = join_messages(parts)
    assert together == [message for wanted, _ in drawn for message in wanted]
    assert isinstance(together, Packed) == (bool(drawn) and all(is_packed for _, is_packed in drawn))


@given(st.lists(st.binary(min_size=7, max_size=7), max_size=70), st.sampled_from(["", "2x"]))
def test_items_of_one_size_are_cut_whatever_their_number(items: list[bytes], front: str) -> None:
    skipped = b"" if not front else b"--"
    assert cut_equal(memoryview(b"".join(skipped + item for item in items)), 7, front) == items


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=20))
def test_messages_are_copied_into_one_buffer(messages: list[bytes]) -> None:
    found = packed_copy(messages)
    assert list(found) == messages
    assert found.buffer == b"".join(messages)
    alike = len(messages[0]) > 0 and len(set(map(len, messages))) == 1
    assert isinstance(found.ends, range) == alike
