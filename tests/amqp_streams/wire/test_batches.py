"""A batch that was written is read back, with our reader and with a reader that follows the sections of the
standard.
"""

from array import array

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.batched.compression import CODECS, TooLargeBatchError, codec, compressed
from amqp_streams.wire.batches import BATCH_OVERHEAD_BYTES, EVENT_BYTES, FORMAT_BYTES, read_batch, write_batch
from amqp_streams.wire.codec import Array, Described, Symbol, Timestamp, UInt, ULong, Value, decode, encode
from amqp_streams.wire.layout import DATA, DATA_BINARY8, sections
from tests.amqp_streams.decoded import mapping

EVENTS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 1 << 40), st.binary(max_size=300)), min_size=1, max_size=40
)


def columns(events: list[tuple[int, int, bytes]]) -> tuple["array[int]", "array[int]", list[bytes]]:
    """Return offsets from steps, ascending as required."""
    offsets, at = array("Q"), -1
    for step, _, _ in events:
        at += step
        offsets.append(at)
    return offsets, array("q", [stamp for _, stamp, _ in events]), [message for _, _, message in events]


@settings(deadline=None)
@given(EVENTS)
def test_written_batches_are_read_back(events: list[tuple[int, int, bytes]]) -> None:
    offsets, stamps, messages = columns(events)
    written = write_batch("7", offsets, stamps, messages, next_offset=offsets[-1] + 5)
    batch = read_batch(written)
    assert (batch.partition, batch.next_offset) == ("7", offsets[-1] + 5)
    assert (batch.offsets, batch.timestamps_ms, batch.messages) == (offsets, stamps, messages)
    assert len(written) <= BATCH_OVERHEAD_BYTES + EVENT_BYTES * len(messages) + sum(map(len, messages))


@settings(deadline=None)
@given(EVENTS)
def test_a_batch_is_a_message_as_the_standard_has_it(events: list[tuple[int, int, bytes]]) -> None:
    """A client that does not know batches still gets annotations, the position of the last event, and the
    data sections.
    """
    offsets, stamps, messages = columns(events)
    written = write_batch(
        "7",
        offsets,
        stamps,
        messages,
        next_offset=offsets[-1] + 1,
        extra={names.EVENTS_SKIPPED: 3, "left-out": None},
    )
    first, *body = sections(written)
    annotations = decode(written, first.start)[0]
    assert isinstance(annotations, Described)
    assert annotations.value == {
        names.SOURCE_PARTITION: "7",
        names.BATCH_NEXT_OFFSET: offsets[-1] + 1,
        names.TIMESTAMP: stamps[-1],
        names.OFFSET: f"{offsets[-1]:016d}",
        names.EVENTS_SKIPPED: 3,
        names.BATCH_OFFSETS: Array(ULong, tuple(map(ULong, offsets))),
        names.BATCH_TIMESTAMPS: Array(Timestamp, tuple(map(Timestamp, stamps))),
        names.BATCH_SIZES: Array(UInt, tuple(UInt(len(message)) for message in messages)),
    }
    assert [decode(written, section.start)[0] for section in body] == [
        Described(ULong(DATA), message) for message in messages
    ]
    assert read_batch(written).annotations == {
        names.TIMESTAMP: stamps[-1],
        names.OFFSET: f"{offsets[-1]:016d}",
        names.EVENTS_SKIPPED: 3,
    }


def test_a_batch_without_events_reports_how_far_the_node_read() -> None:
    written = write_batch("0", array("Q"), array("q"), [], next_offset=99)
    batch = read_batch(written)
    assert (batch.partition, batch.next_offset, batch.messages) == ("0", 99, [])
    message = proton.Message()
    message.decode(written)
    assert message.body is None
    assert mapping(message.instructions)[names.BATCH_NEXT_OFFSET] == 99


def test_sizes_may_be_missing_and_sections_short() -> None:
    """Another node may write them as it likes."""
    entries: dict[Value, Value] = {
        Symbol(names.SOURCE_PARTITION): Symbol("0"),
        Symbol(names.BATCH_OFFSETS): Array(ULong, (ULong(1), ULong(1000))),
        Symbol(names.BATCH_TIMESTAMPS): Array(Timestamp, (Timestamp(1 << 40), Timestamp(1 << 41))),
    }
    head = encode(Described(ULong(0x71), entries))
    batch = read_batch(
        head + b"".join(encode(Described(ULong(0x75), body)) for body in (b"one", b"two" * 100))
    )
    assert (batch.offsets.tolist(), batch.timestamps_ms.tolist()) == ([1, 1000], [1 << 40, 1 << 41])
    assert (batch.messages, batch.next_offset) == ([b"one", b"two" * 100], None)


@settings(deadline=None)
@given(st.data())
def test_any_bytes_are_a_batch_or_a_wire_error(data: st.DataObject) -> None:
    written = bytearray(
        write_batch("0", array("Q", [1, 2]), array("q", [5, 5]), [b"a", b"bc"], next_offset=3)
    )
    for _ in range(data.draw(st.integers(1, 4))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(written[: data.draw(st.integers(0, len(written)))])
    for message in (bytes(written), cut):
        try:
            batch = read_batch(message)
        except WireError:
            continue
        assert len(batch.offsets) == len(batch.timestamps_ms) == len(batch.messages)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00\x53\x75\xa0\x01x",
        write_batch("0", array("Q", [1]), array("q", [5]), [b"a"], next_offset=2) + b"\x00\x53\x75\xa0\x01x",
        write_batch("0", array("Q", [1]), array("q", [5]), [b"a"], next_offset=2)[:-1],
        encode(Described(ULong(0x71), {Symbol(names.BATCH_OFFSETS): Array(ULong, (ULong(1),))}))
        + b"\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x71\x40\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x71\xc1\x00",
        b"\x00\x53\x71\xd1\x00\x00\x00\x03\x00\x00\x00",
    ],
)
def test_a_text_that_is_not_a_batch_is_refused_with_a_message(message: bytes) -> None:
    with pytest.raises(WireError):
        read_batch(message)


@settings(deadline=None)
@given(EVENTS, st.data())
def test_formats_that_are_not_0_are_given_by_the_indices_of_their_events(
    events: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    offsets, stamps, messages = columns(events)
    formats = data.draw(st.dictionaries(st.integers(0, len(messages) - 1), st.integers(1, (1 << 32) - 1)))
    written = write_batch("7", offsets, stamps, messages, next_offset=offsets[-1] + 5, formats=formats)
    batch = read_batch(written)
    assert (batch.formats, batch.messages) == (formats, messages)
    assert len(written) <= BATCH_OVERHEAD_BYTES + EVENT_BYTES * len(messages) + FORMAT_BYTES * len(
        formats
    ) + sum(map(len, messages))
    assert formats or written == write_batch("7", offsets, stamps, messages, next_offset=offsets[-1] + 5)


@pytest.mark.parametrize("formats", [{2: 1}, {7: 5, 0: 1}])
def test_formats_of_events_that_are_not_in_the_batch_are_an_error(formats: dict[int, int]) -> None:
    written = write_batch(
        "0", array("Q", [1, 2]), array("q", [1, 1]), [b"a", b"b"], next_offset=3, formats=formats
    )
    with pytest.raises(WireError, match="message-formats of a batch of 2 events"):
        read_batch(written)


@pytest.mark.parametrize("name", CODECS)
def test_a_compressed_batch_is_read_as_the_batch_itself(name: str) -> None:
    offsets, stamps, messages = columns([(1, 5, b"an event")] * 100)
    batch = write_batch("7", offsets, stamps, messages, next_offset=100, formats={3: 9})
    message = compressed(batch, codec(name))
    assert len(message) < len(batch) // 2
    found = read_batch(message, len(batch))
    assert (found.partition, found.offsets, found.timestamps_ms) == ("7", offsets, stamps)
    assert (found.messages, found.next_offset, found.formats) == (messages, 100, {3: 9})
    with pytest.raises(TooLargeBatchError, match=f"the limit is {len(batch) - 1}"):
        read_batch(message, len(batch) - 1)
    with pytest.raises(WireError, match="may not contain a compressed batch"):
        read_batch(message)
    with pytest.raises(WireError, match="one data section"):
        read_batch(message + DATA_BINARY8 + b"\x01x", len(batch))
    with pytest.raises(WireError, match=f"{name} frame"):
        read_batch(message[:-9] + b"y" * 9, len(batch))
