"""Decoding returns the encoded records, or detects damage."""

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import record
from amqp_streams.storage.ports import Chunk

SEED = record.seed_of(0x1234, 5)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    """Any run of a few records: with and without header sections, one timestamp or several, one length or
    several.
    """
    one_length = draw(st.booleans())
    if one_length:
        size = draw(st.integers(0, 40))
        messages = draw(st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=20))
    else:
        messages = draw(st.lists(st.binary(max_size=60), min_size=1, max_size=20))
    steps = (
        draw(st.lists(st.integers(0, 1 << 20), min_size=len(messages), max_size=len(messages)))
        if draw(st.booleans())
        else []
    )
    stamp = draw(st.integers(0, 1 << 50))
    stamps = array("q")
    for place in range(len(messages)):
        stamp += steps[place] if steps else 0
        stamps.append(stamp)
    headers = draw(
        st.one_of(st.just(bytes(len(messages))), st.binary(min_size=len(messages), max_size=len(messages)))
    )
    some = draw(
        st.lists(
            st.sampled_from([0, 0, 1, 0x80013700, (1 << 32) - 1]),
            min_size=len(messages),
            max_size=len(messages),
        )
    )
    formats = array("I", some) if any(some) and draw(st.booleans()) else None
    return Chunk(draw(st.integers(0, 10**15)), stamps, headers, messages, formats=formats)


def _same(one: Chunk, other: Chunk) -> bool:
    mine = (one.base, one.timestamps, one.header_sizes, list(one.messages), one.formats)
    return mine == (other.base, other.timestamps, other.header_sizes, list(other.messages), other.formats)


def _formats(chunk: Chunk) -> list[int]:
    return [0] * len(chunk) if chunk.formats is None else list(chunk.formats)


def _decode(data: bytes, position: int = 0) -> record.Batch | None:
    head = record.head_at(data, position)
    return record.decode(data, position, head, SEED) if head else None


@given(chunks(), st.binary(max_size=20))
def test_an_encoded_batch_decodes_to_the_same_at_any_position(chunk: Chunk, before: bytes) -> None:
    data = before + b"".join(record.encode(chunk, SEED)) + b"behind"
    batch = _decode(data, len(before))
    assert batch is not None
    assert _same(batch.all(), chunk)
    assert (batch.head.base, batch.head.end, batch.head.length) == (
        chunk.base,
        chunk.base + len(chunk),
        len(data) - len(before) - 6,
    )
    assert record.last_timestamp_ms(data, len(before), batch.head) == chunk.timestamps[-1]


@given(chunks(), st.data())
def test_a_flipped_bit_is_never_decoded(chunk: Chunk, data: st.DataObject) -> None:
    encoded = bytearray(b"".join(record.encode(chunk, SEED)))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= 1 << data.draw(st.integers(0, 7))
    assert _decode(bytes(encoded)) is None


@given(chunks(), st.data())
def test_a_batch_cut_short_is_never_decoded(chunk: Chunk, data: st.DataObject) -> None:
    encoded = b"".join(record.encode(chunk, SEED))
    assert _decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))]) is None


@given(st.binary(max_size=200))
def test_garbage_is_never_decoded_and_never_raises(data: bytes) -> None:
    assert _decode(data) is None
    assert _decode(record.MAGIC + data) is None


@given(chunks(), st.data())
def test_any_part_of_a_batch_can_be_cut_out(chunk: Chunk, data: st.DataObject) -> None:
    batch = _decode(b"".join(record.encode(chunk, SEED)))
    assert batch is not None
    first = data.draw(st.integers(0, len(chunk) - 1))
    bytes_max = data.draw(st.integers(0, 200))
    part = batch.cut(chunk.base + first, bytes_max)
    assert part.base == chunk.base + first
    assert list(part.messages) == list(chunk.messages[first : first + len(part)])
    assert part.timestamps == chunk.timestamps[first : first + len(part)]
    assert part.header_sizes == chunk.header_sizes[first : first + len(part)]
    assert _formats(part) == _formats(chunk)[first : first + len(part)]
    assert part.formats is None or any(part.formats)
    size = sum(map(len, part.messages))
    assert len(part) == 1 or size <= bytes_max or not size
    rest = chunk.messages[first + len(part) :]
    assert not rest or size + len(rest[0]) > bytes_max


def test_a_batch_of_another_partition_is_not_decoded() -> None:
    data = b"".join(record.encode(Chunk(0, array("q", [1]), b"\0", [b"a"]), record.seed_of(0x1234, 6)))
    assert _decode(data) is None


@given(chunks())
def test_runs_of_any_size_are_cut_into_batches_that_follow_each_other(chunk: Chunk) -> None:
    big = replace(chunk, messages=[message * 5000 for message in chunk.messages])
    parts = list(record.batches(big, sum(map(len, big.messages))))
    assert [message for part in parts for message in part.messages] == big.messages
    assert b"".join(part.header_sizes for part in parts) == big.header_sizes
    assert [number for part in parts for number in _formats(part)] == _formats(chunk)
    assert all(part.formats is None or any(part.formats) for part in parts)
    end = big.base
    for part in parts:
        assert part.base == end
        assert len(part) == 1 or sum(map(len, part.messages)) <= record.BATCH_BYTES_MAX
        end += len(part)


def test_a_run_over_more_than_fifty_days_is_cut_where_the_deltas_would_overflow() -> None:
    day = 24 * 3600 * 1000
    stamps = array("q", [0, 10 * day, 49 * day, 60 * day, 61 * day])
    parts = list(record.batches(Chunk(0, stamps, bytes(5), [b"a"] * 5), 5))
    assert [len(part) for part in parts] == [3, 2]
    for part in parts:
        batch = _decode(b"".join(record.encode(part, SEED)))
        assert batch is not None
        assert _same(batch.all(), part)


def test_numbers_that_do_not_agree_make_no_head() -> None:
    data = bytearray(b"".join(record.encode(Chunk(7, array("q", [1, 2]), b"\0\1", [b"a", b"bc"]), SEED)))
    assert record.head_at(bytes(data), 0) is not None
    for position, value in ((4, 0xFF), (12, 0xE0), (32, 0), (23, 0xFF), (31, 0xFF), (36, 9)):
        changed = bytearray(data)
        changed[position] = value
        assert record.head_at(bytes(changed), 0) is None


def test_timestamps_that_decrease_are_our_own_fault() -> None:
    with pytest.raises(AssertionError):
        record.encode(Chunk(0, array("q", [2, 1]), b"\0\0", [b"a", b"b"]), SEED)


@given(chunks())
def test_message_formats_cost_four_bytes_each_and_nothing_where_all_are_0(chunk: Chunk) -> None:
    size = sum(map(len, record.encode(chunk, SEED)))
    without = sum(map(len, record.encode(replace(chunk, formats=None), SEED)))
    assert size - without == (0 if chunk.formats is None else 4 * len(chunk))
