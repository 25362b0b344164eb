"""Columns of messages as batches, read back with the engine's own reader of batches."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.batched.sends import read_sent_batch
from amqp_streams.wire.sequences import with_sequence
from spark_connector.writing.packing import BATCH_BYTES, Alone, as_binary, bytes_of, contents, lengths, packed

# Messages as the connector writes them: they begin with a section.
MESSAGES = st.lists(
    st.one_of(st.binary(max_size=9), st.just(b"x" * 400)).map(b"\x00\x53\x75".__add__), max_size=60
)


def opened(sent: list[bytes | Alone], *, numbered: bool) -> list[bytes]:
    found: list[bytes] = []
    for one in sent:
        if isinstance(one, Alone):
            assert one.number == len(found)
            found.append(with_sequence(one.message, one.number) if numbered else one.message)
        else:
            found += read_sent_batch(one, 1000).messages
    return found


@given(MESSAGES, st.booleans(), st.integers(1, 20), st.integers(150, 2000), st.integers(0, 3))
def test_batches_have_the_messages_in_order_with_their_numbers_and_are_within_the_limits(
    messages: list[bytes], numbered: bool, events_max: int, bytes_max: int, skipped: int
) -> None:
    # A slice: the buffers of the column have more messages than the column.
    column = pa.array([b"\x00\x53\x75other"] * skipped + messages, pa.binary())[skipped:]
    sent = list(packed(column, numbered=numbered, events_max=events_max, bytes_max=bytes_max))
    wanted = [with_sequence(one, at) if numbered else one for at, one in enumerate(messages)]
    assert opened(sent, numbered=numbered) == wanted
    for one in sent:
        if isinstance(one, bytes):
            assert len(one) <= bytes_max
            assert len(read_sent_batch(one, 1000).messages) <= events_max


def test_a_batch_has_as_many_messages_as_fit() -> None:
    column = pa.array([b"\x00\x53\x75" + b"x" * 97] * 10_000, pa.binary())
    sent = [one for one in packed(column, numbered=True, events_max=10_000) if isinstance(one, bytes)]
    assert all(BATCH_BYTES - 400 < len(one) <= BATCH_BYTES for one in sent[:-1])


def test_the_bytes_of_a_slice_are_those_of_its_rows() -> None:
    column = pa.array([b"one", b"two", b"three", b"four"], pa.binary())[1:3]
    assert bytes(contents(column)) == b"twothree"
    assert lengths(column).to_pylist() == [3, 5]
    assert bytes_of(pa.array([1, 2, 3], pa.uint8())[1:]) == b"\x02\x03"
    assert bytes(contents(pa.array([], pa.binary()))) == b""


def test_numbers_have_the_byte_order_of_the_wire() -> None:
    assert as_binary(pa.array([1, 258], pa.int32())).to_pylist() == [b"\0\0\0\x01", b"\0\0\x01\x02"]
    assert as_binary(pa.array([7], pa.uint8())).to_pylist() == [b"\x07"]
