"""Names with a NUL are found in an open and in attaches, with blocks of any size, and nothing else is
found.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.testing_amqp import frame_of, terminus
from amqp_streams.wire.nuls import NulFinder
from amqp_streams.wire.types import UInt


def attach(name: str = "link", source: str | None = None, target: str | None = None) -> bytes:
    return frame_of(
        "attach",
        name=name,
        handle=UInt(0),
        role=False,
        source=terminus(0x28, source),
        target=terminus(0x29, target),
    )


def found(*blocks: bytes, opened: bool = True) -> set[tuple[str, ...]]:
    finder = NulFinder()
    for block in blocks:
        finder.feed(memoryview(block), opened=opened)
    return finder.names


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (attach("one\0x"), {("one", "", "")}),
        (attach("\0"), {("", "", "")}),
        (attach(source="one\0x", target="two\0"), {("link", "one", "two")}),
        (attach(target="x" * 300 + "\0"), {("link", "", "x" * 300)}),
        (attach("one", "two", "three"), set()),
        (frame_of("open", container_id="me\0you"), {("me",)}),
        (frame_of("open", container_id="me", hostname="host"), set()),
        (
            frame_of("begin", next_outgoing_id=UInt(0), incoming_window=UInt(0), outgoing_window=UInt(0)),
            set(),
        ),
    ],
)
def test_each_name_with_a_nul_is_found(frame: bytes, names: set[tuple[str, ...]]) -> None:
    assert found(frame, opened=False) == names


@given(
    st.lists(st.sampled_from(["plain", "a\0b", "c\0", "d" * 260 + "\0"]), min_size=1, max_size=4), st.data()
)
def test_they_are_found_wherever_the_stream_is_cut(names: list[str], data: st.DataObject) -> None:
    stream = b"\x00\x53\x12\xc0" + b"".join(attach(name, source=f"s{name}") for name in names)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    blocks = [stream[first:after] for first, after in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = {(name.split("\0")[0], "s" + name.split("\0")[0], "") for name in names if "\0" in name}
    assert found(*blocks) == found(*(bytes((byte,)) for byte in stream)) == expected


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing(garbage: bytes) -> None:
    found(garbage, b"\x00\x00\x00\x40\x02\x00\x00\x00\x00\x53\x12" + garbage, opened=False)


def test_the_number_of_findings_is_bounded() -> None:
    assert len(found(*(attach(f"{number}\0") for number in range(3000)))) == 1024
