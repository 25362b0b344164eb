"""Cutting and joining runs loses nothing."""

from array import array
from dataclasses import replace
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.storage.formats.chunks import count_within, cut, join
from amqp_streams.storage.ports import Chunk
from amqp_streams.wire.batched.packed import Packed


class _Ends(list[int]):
    """Ends that may not be copied: a run may be read in many small pieces."""

    def __getitem__(self, index: Any) -> Any:
        assert not isinstance(index, slice), "a copy"
        return super().__getitem__(index)


lists = st.lists(st.binary(max_size=30), min_size=1, max_size=300)


def _chunk(messages: list[bytes], base: int = 10) -> Chunk:
    return Chunk(
        base,
        array("q", range(base, base + len(messages))),
        bytes(number % 256 for number in range(len(messages))),
        messages,
    )


@given(lists, st.integers(0, 3000), st.data())
def test_as_many_are_counted_as_fit_and_at_least_one(
    messages: list[bytes], bytes_max: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(messages) - 1))
    naive = sum(1 for size in accumulate(map(len, messages[first:])) if size <= bytes_max)
    assert count_within(messages, bytes_max, first) == max(1, naive)
    packed = Packed(b"".join(messages), _Ends(accumulate(map(len, messages), initial=0)))
    assert count_within(packed, bytes_max, first) == max(1, naive)


@given(lists, st.integers(0, 500))
def test_pieces_cut_one_after_the_other_join_to_the_whole(messages: list[bytes], bytes_max: int) -> None:
    formats = array("I", [len(message) % 7 for message in messages])
    whole, parts = replace(_chunk(messages), formats=formats if any(formats) else None), list[Chunk]()
    at = whole.base
    while at < whole.base + len(whole):
        parts.append(cut(whole, at, bytes_max))
        at += len(parts[-1])
    again = join(parts)
    assert (again.base, again.timestamps, again.header_sizes) == (
        whole.base,
        whole.timestamps,
        whole.header_sizes,
    )
    assert list(again.messages) == messages
    assert again.formats == whole.formats
    assert all(part.formats is None or any(part.formats) for part in parts)


def test_a_run_that_fits_is_not_copied() -> None:
    whole = _chunk([b"a", b"b"])
    assert cut(whole, 10, 100) is whole
    assert join([whole]) is whole
