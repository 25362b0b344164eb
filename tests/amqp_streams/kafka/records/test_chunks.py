"""Chunks of consumed records."""

from array import array

from amqp_streams.kafka.records import amqp
from amqp_streams.kafka.records.chunks import Consumed, chunk_of, joined
from amqp_streams.kafka.records.plain import PlainRecord, plain_message
from amqp_streams.wire.batched.packed import Packed, packed_copy
from amqp_streams.wire.layout import EMPTY_HEADER

BODY = b"\x00\x53\x75\xa0\x01x"


def test_records_that_follow_each_other_have_a_base_only() -> None:
    chunk = chunk_of(Consumed([7, 8], [100, 90], [BODY, EMPTY_HEADER + BODY]))
    assert (chunk.base, chunk.end, chunk.offsets, chunk.formats) == (7, 9, None, None)
    assert (chunk.timestamps, chunk.header_sizes) == (array("q", [100, 90]), bytes([0, len(EMPTY_HEADER)]))
    assert chunk.messages == [BODY, EMPTY_HEADER + BODY]


def test_records_with_gaps_have_their_numbers() -> None:
    chunk = chunk_of(Consumed([7, 9], [1, 1], [BODY, BODY]))
    assert (chunk.base, chunk.end, chunk.offsets) == (7, 10, array("Q", [7, 9]))


def test_message_formats_come_back() -> None:
    [value] = amqp.values([b"any bytes"], b"\x03", array("I", [5]))
    chunk = chunk_of(Consumed([0, 1], [1, 1], [value, BODY]))
    assert (chunk.messages, chunk.header_sizes, chunk.formats) == (
        [b"any bytes", BODY],
        b"\x03\x00",
        array("I", [5, 0]),
    )


def test_records_of_other_programs_have_messages_made_of_their_parts() -> None:
    chunk = chunk_of(Consumed([3, 4], [1, 1], [b"x", None], [b"k", None], [[("site", b"roof")], ()]))
    records = [PlainRecord(b"k", b"x", [("site", b"roof")]), PlainRecord(None, None, ())]
    assert list(zip(chunk.messages, chunk.header_sizes, strict=True)) == list(map(plain_message, records))


def test_values_in_one_buffer_are_not_copied_if_they_are_usual_messages() -> None:
    values = packed_copy([BODY] * 3)
    chunk = chunk_of(Consumed(array("Q", [7, 8, 9]), array("q", [1, 1, 1]), values))
    assert chunk.messages is values
    assert (chunk.base, chunk.header_sizes, chunk.formats, chunk.offsets) == (7, bytes(3), None, None)
    mixed = [BODY, EMPTY_HEADER + BODY, b"\x01\x00\x00\x00\x00\x05any"]
    chunk = chunk_of(Consumed(array("Q", [7, 8, 9]), array("q", [1, 1, 1]), packed_copy(mixed)))
    assert chunk.messages == [BODY, EMPTY_HEADER + BODY, b"any"]
    assert chunk.header_sizes == bytes([0, len(EMPTY_HEADER), 0])
    assert chunk.formats == array("I", [0, 0, 5])


def test_parts_are_joined_in_their_order() -> None:
    first = Consumed(array("Q", [1, 2]), array("q", [10, 11]), packed_copy([b"a", b"bb"]))
    second = Consumed([4], [9], packed_copy([b"c"]))
    third = Consumed([5], [9], [None])
    assert joined([first]) is first
    both = joined([first, second])
    assert isinstance(both.values, Packed)
    assert (both.offsets, both.times_ms, list(both.values)) == ([1, 2, 4], [10, 11, 9], [b"a", b"bb", b"c"])
    assert (both.keys, both.headers) == (None, None)
    assert joined([first, third]) == Consumed([1, 2, 5], [10, 11, 9], [b"a", b"bb", None])
    some, more = Consumed([1], [1], [b"x"], [b"k"], [()]), Consumed([2], [2], [None], [None], [[("n", b"v")]])
    assert joined([some, more]) == Consumed([1, 2], [1, 2], [b"x", None], [b"k", None], [(), [("n", b"v")]])
