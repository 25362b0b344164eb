"""Frames, whatever the cut, and lengths that are not allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.homes.protocol.frames import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    Frame,
    FrameError,
    Kind,
    Splitter,
    encoded,
)

FRAMES = st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=40)))


def taken(splitter: Splitter) -> list[Frame]:
    return list(iter(splitter.next, None))


@given(FRAMES, st.data())
def test_frames_are_the_same_however_the_bytes_are_cut(
    made: list[tuple[Kind, bytes]], data: st.DataObject
) -> None:
    wire = b"".join(encoded(kind, body) for kind, body in made)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)))))
    splitter, found = Splitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        splitter.feed(wire[start:end])
        found += taken(splitter)
    assert found == [Frame(kind, body) for kind, body in made]
    assert not splitter.has_bytes


@pytest.mark.parametrize("bytes_max", [HELLO_BYTES_MAX, FRAME_BYTES_MAX])
def test_a_frame_of_the_largest_size_is_taken_and_a_larger_one_is_refused_by_its_length(
    bytes_max: int,
) -> None:
    splitter = Splitter()
    splitter.bytes_max = bytes_max
    splitter.feed(encoded(Kind.REPORT, bytes(bytes_max - 1)))
    assert [len(frame.body) for frame in taken(splitter)] == [bytes_max - 1]
    splitter.feed((bytes_max + 1).to_bytes(4))
    with pytest.raises(FrameError, match=f"to {bytes_max} bytes, and this one would have {bytes_max + 1}"):
        splitter.next()


def test_a_frame_without_a_kind_is_refused() -> None:
    splitter = Splitter()
    splitter.feed(bytes(4))
    with pytest.raises(FrameError, match="would have 0"):
        splitter.next()


@given(st.binary(max_size=64))
def test_garbage_gives_frames_or_the_documented_error(data: bytes) -> None:
    splitter = Splitter()
    splitter.feed(data)
    try:
        found = taken(splitter)
    except FrameError:
        return
    assert sum(5 + len(frame.body) for frame in found) <= len(data)


def test_a_kind_of_a_later_version_is_a_frame() -> None:
    splitter = Splitter()
    splitter.feed(b"\x00\x00\x00\x02\xc8x")
    assert splitter.next() == Frame(200, b"x")
