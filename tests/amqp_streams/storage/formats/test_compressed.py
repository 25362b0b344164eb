"""The compressed file: what was put in is read back, and damage costs the damaged block only."""

import random
from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats import compressed
from amqp_streams.storage.formats.compressed import (
    BLOCK_BYTES_MAX,
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    NUMBERS,
    TAIL_BYTES,
    Layout,
)
from amqp_streams.wire.batched.compression import codec

SEED, BASE = 77, 5
LENGTHS = st.lists(st.integers(1, 3 * BLOCK_BYTES_MAX), min_size=1, max_size=30)


@given(LENGTHS, st.integers(1, BLOCK_BYTES_MAX))
def test_blocks_begin_at_entries_of_the_index_and_are_never_too_long(lengths: list[int], target: int) -> None:
    positions = [sum(lengths[:number]) for number in range(len(lengths))]
    size = sum(lengths)
    starts = compressed.blocks(positions, size, target=target)
    assert starts[0] == 0
    edges = [*positions, size]
    for first, after in zip(starts, [*starts[1:], size], strict=True):
        assert 0 < after - first <= BLOCK_BYTES_MAX
        inside = [edge for edge in edges if first < edge < after]
        # More than one stretch only if all of them fit, and a part of a stretch begins no block of its own.
        assert not inside or after - first <= target or first not in positions
    long = [(first, after) for first, after in pairwise(edges) if after - first <= BLOCK_BYTES_MAX]
    for first, after in long:
        assert not [start for start in starts if first < start < after], "a stretch is in one block"


def test_a_stretch_that_is_too_long_has_blocks_of_the_same_size() -> None:
    starts = compressed.blocks([0], BLOCK_BYTES_MAX + 2, target=256 << 10)
    assert starts == [0, BLOCK_BYTES_MAX // 2 + 1]


def file_of(segment: bytes, starts: list[int], name: str = "zstd") -> tuple[bytes, Layout]:
    """The compressed file of a segment, and where its blocks are."""
    data = compressed.encode_head(NUMBERS[name], BASE, len(segment), SEED)
    places, lengths = array("Q"), array("I")
    for first, after in zip(starts, [*starts[1:], len(segment)], strict=True):
        block = b"".join(compressed.encode_block(segment[first:after], first, codec(name), SEED))
        places.append(len(data))
        lengths.append(len(block))
        data += block
    layout = Layout(NUMBERS[name], len(segment), array("Q", starts), places, lengths, is_whole=True)
    return data + compressed.encode_end(layout, BASE, SEED), layout


def layout_of(data: bytes, base: int = BASE, seed: int = SEED) -> Layout:
    return compressed.read_layout(lambda count, at: data[at : at + count], len(data), base, seed)


def content_of(data: bytes, layout: Layout, name: str = "zstd") -> list[bytes | None]:
    """The blocks; None for those that are lost."""
    blocks = []
    for number, place in enumerate(layout.places):
        first, after = layout.extent(number)
        block = data[place : place + layout.lengths[number]]
        blocks.append(compressed.decode_block(block, first, after - first, codec(name), SEED))
    return blocks


@st.composite
def segments(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """Some bytes, of which parts repeat, and where blocks begin."""
    parts = draw(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=8))
    parts = [part * draw(st.integers(1, 20)) for part in parts]
    return b"".join(parts), [sum(map(len, parts[:number])) for number in range(len(parts))]


@given(segments(), st.sampled_from(["zstd", "lz4"]))
def test_a_file_has_what_was_put_in(segment: tuple[bytes, list[int]], name: str) -> None:
    data, made = file_of(*segment, name)
    layout = layout_of(data)
    assert layout.is_whole
    assert (layout.codec, layout.size) == (NUMBERS[name], len(segment[0]))
    assert (layout.starts, layout.places, layout.lengths) == (made.starts, made.places, made.lengths)
    assert b"".join(block or b"" for block in content_of(data, layout, name)) == segment[0]
    assert compressed.head_is_whole(data[:HEAD_BYTES], layout, BASE, SEED)


@given(segments(), st.data())
def test_a_flipped_bit_costs_at_most_its_block(segment: tuple[bytes, list[int]], data: st.DataObject) -> None:
    whole, starts = segment
    made, layout = file_of(whole, starts)
    at = data.draw(st.integers(0, len(made) - 1))
    damaged = bytearray(made)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    found = layout_of(bytes(damaged))
    assert found.size == len(whole)
    intact = [
        not place <= at < place + length for place, length in zip(layout.places, layout.lengths, strict=True)
    ]
    _require_true(bytes(damaged), found, whole)
    if all(intact):
        # The head, the table or the tail: nothing is lost, and it is noticed.
        assert b"".join(block or b"" for block in content_of(bytes(damaged), found)) == whole
        assert not found.is_whole or not compressed.head_is_whole(
            bytes(damaged[:HEAD_BYTES]), found, BASE, SEED
        )
    else:
        assert content_of(bytes(damaged), found).count(None) == 1


@given(segments(), st.data())
def test_no_bytes_are_read_for_others_whatever_the_damage(
    segment: tuple[bytes, list[int]], data: st.DataObject
) -> None:
    """Cut, filled with zeros or garbage: what is read is what was there."""
    whole, starts = segment
    made, _ = file_of(whole, starts)
    first = data.draw(st.integers(0, len(made)))
    after = data.draw(st.integers(first, len(made)))
    kind = data.draw(st.sampled_from(["cut", "zeros", "garbage", "removed"]))
    middle = {"zeros": bytes(after - first), "garbage": data.draw(st.binary(max_size=80))}.get(kind, b"")
    damaged = made[:first] + middle + (b"" if kind == "cut" else made[after:])
    found = layout_of(damaged)
    assert found.size <= len(whole)
    _require_true(damaged, found, whole)


def _require_true(damaged: bytes, found: Layout, whole: bytes) -> None:
    for number, block in enumerate(content_of(damaged, found)):
        first, after = found.extent(number)
        assert block is None or block == whole[first:after]


def test_blocks_after_a_lost_table_are_found_among_bytes_that_look_like_blocks() -> None:
    """The magic in a block that is stored as it is, at any distance from the end of what is read at once."""
    rng = random.Random(1)
    crafted = b"".join(compressed.BLOCK_MAGIC + rng.randbytes(508) for _ in range(BLOCK_BYTES_MAX // 512))
    starts = [number * BLOCK_BYTES_MAX for number in range(20)]
    data, layout = file_of(crafted * 20, starts)
    assert set(layout.lengths) == {BLOCK_HEAD_BYTES + BLOCK_BYTES_MAX}
    plain = bytearray(data)
    for number in (3, 9):
        at = layout.places[number]
        plain[at : at + 4] = b"\0\0\0\0"
    found = layout_of(bytes(plain[:-TAIL_BYTES]))
    assert not found.is_whole
    blocks = content_of(bytes(plain), found)
    assert [number for number, block in enumerate(blocks) if block is None] == [3, 9]


def test_a_file_of_another_segment_or_partition_has_nothing() -> None:
    data, _ = file_of(b"a" * 100, [0, 50])
    assert not layout_of(data, base=BASE + 1).is_whole
    for other in (layout_of(data, seed=SEED + 1), layout_of(b""), layout_of(b"short")):
        assert other.size == 0
        assert not other.starts


def test_bytes_that_do_not_compress_are_stored_as_they_are() -> None:
    block = b"".join(compressed.encode_block(b"\x01\x02", 9, codec("zstd"), SEED))
    assert len(block) == BLOCK_HEAD_BYTES + 2
    assert compressed.decode_block(block, 9, 2, codec("zstd"), SEED) == b"\x01\x02"
    assert compressed.decode_block(block, 8, 2, codec("zstd"), SEED) is None
    assert compressed.decode_block(block, 9, 3, codec("zstd"), SEED) is None


@given(st.binary(max_size=400), st.binary(max_size=20))
def test_any_bytes_can_be_looked_at(data: bytes, other: bytes) -> None:
    joined = data + compressed.BLOCK_MAGIC + other
    assert layout_of(joined).size == 0
