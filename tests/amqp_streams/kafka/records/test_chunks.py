"""Chunks of consumed records."""

from array import array

from amqp_streams.kafka.records import amqp
from amqp_streams.kafka.records.chunks import Consumed, chunk_of
from amqp_streams.kafka.records.plain import PlainRecord, plain_message
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
