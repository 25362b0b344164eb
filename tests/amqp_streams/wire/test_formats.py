"""Message-formats are found in every encoding of a transfer, with blocks of any size, and only in
transfers.
"""

from itertools import accumulate, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.testing_amqp import frame_of
from amqp_streams.wire import formats
from amqp_streams.wire.formats import PROTOCOL_HEADER_BYTES, UNKNOWN, FormatFinder
from amqp_streams.wire.frames import frame
from amqp_streams.wire.types import UInt

AZURE = 0x80013700
AMQP = b"AMQP\x00\x01\x00\x00"
EVENT = b"\x00\x53\x75\xa0\x05event"
LINK = (0, 0)
USUAL = (b"\x43", b"\x52\x07", b"\xa0\x03tag", b"\x70\x80\x01\x37\x00")


@pytest.fixture(autouse=True, params=[0, 32], ids=["searched", "walked"])
def walked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with blocks of many frames, which are searched, and of few, which are walked."""
    monkeypatch.setattr(formats, "_WALKED_MAX", request.param)


class Stream:
    """A finder, and the frames that it was fed with, in blocks."""

    def __init__(self) -> None:
        self.finder = FormatFinder()
        self._frame = bytearray()
        self._left = -PROTOCOL_HEADER_BYTES

    def feed(self, block: bytes) -> FormatFinder:
        """Feed a block, and the end that Proton would report for it."""
        self._left += len(block)
        self._frame += block
        if self._left >= 0 and self._frame[:4] == AMQP[:4]:
            del self._frame[: len(AMQP)]
        while len(self._frame) >= 4 and self._left >= (size := int.from_bytes(self._frame[:4])):
            del self._frame[:size]
            self._left -= size
        self.finder.feed(memoryview(bytearray(block)), self._left)
        return self.finder


def fed(*frames: bytes) -> FormatFinder:
    return Stream().feed(AMQP + b"".join(frames))


def transfer(
    number: int, tag: bytes, payload: bytes, message_format: int | None, *, handle: int = 0, **fields: Any
) -> bytes:
    first: dict[str, Any] = {"handle": UInt(handle), "delivery_id": UInt(number), "delivery_tag": tag}
    return frame_of(
        "transfer",
        payload,
        **first,
        message_format=None if message_format is None else UInt(message_format),
        **fields,
    )


def written(
    *fields: bytes, descriptor: bytes = b"\x00\x53\x14", header: bytes = b"", wide: bool = False
) -> bytes:
    """A transfer by the bytes of its fields."""
    content = b"".join(fields)
    size, count = (len(content) + (4 if wide else 1)), len(fields)
    head = b"\xd0" + size.to_bytes(4) + count.to_bytes(4) if wide else bytes((0xC0, size, count))
    body = descriptor + head + content + EVENT
    if header:
        return (
            (8 + len(header) + len(body)).to_bytes(4) + bytes((2 + len(header) // 4, 0, 0, 0)) + header + body
        )
    return frame(0, body)


@pytest.mark.parametrize("number", [0, 7, 300])
def test_an_ordinary_transfer_is_not_looked_at(number: int) -> None:
    finder = fed(transfer(number, b"tag", EVENT, 0))
    assert not finder.busy
    assert finder.take(LINK, [b"tag"], None) == []


@pytest.mark.parametrize("message_format", [1, 255, 256, 0x14531400, AZURE, (1 << 32) - 1])
def test_a_format_is_found_with_any_tag_and_number(message_format: int) -> None:
    for tag in (b"", b"\x00", b"\x53\x14\xc0", b"t" * 32, b"t" * 33, b"t" * 300):
        for number in (0, 1, 255, 1 << 31):
            finder = fed(transfer(number, tag, EVENT, message_format, handle=number))
            assert finder.take((0, number), [tag], None) == [message_format], (tag, number)
            assert not finder.busy


ENCODINGS = tuple(
    product(
        (b"\x43", b"\x52\x00", b"\x70\x00\x00\x00\x00", b"\x50\x00"),
        (b"\xa0\x03tag", b"\xb0\x00\x00\x00\x03tag"),
        (b"\x00\x53\x14", b"\x00\x80" + (0x14).to_bytes(8)),
        (b"", b"\xff" * 8, b"\x14" * 1012),
        (False, True),
    )
)
"""What surrounds the format in a transfer: handle, tag, descriptor, header of the frame, wide or not."""


@pytest.mark.parametrize(
    ("written_format", "expected"),
    [
        (b"\x43", 0),
        (b"\x40", 0),
        (b"\x52\x00", 0),
        (b"\x70\x00\x00\x00\x00", 0),
        (b"\x52\x07", 7),
        (b"\x70\x80\x01\x37\x00", AZURE),
        (b"\x50\x07", UNKNOWN),
        (b"\x53\x07", UNKNOWN),
        (b"\x54\x07", UNKNOWN),
        (b"\xa1\x017", UNKNOWN),
        (b"\x00\x53\x01\x52\x07", UNKNOWN),
        (b"\xff", UNKNOWN),
    ],
)
def test_each_encoding_is_read(written_format: bytes, expected: int) -> None:
    for around in ENCODINGS:
        handle, tag, descriptor, header, wide = around
        fields = (handle, b"\x52\x07", tag, written_format, b"\x42")
        finder = fed(written(*fields, descriptor=descriptor, header=header, wide=wide))
        assert (finder.take(LINK, [b"tag"], None) or [0]) == [expected], around


def test_fields_that_are_left_out_at_the_end_are_0() -> None:
    assert (fed(written(*USUAL[:3])).take(LINK, [b"tag"], None) or [0]) == [0]


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=31),
            st.sampled_from([None, 0, 1, AZURE]),
            st.binary(max_size=5000),
            st.integers(0, 1),
        ),
        max_size=6,
    ),
    st.data(),
)
def test_every_format_is_found_wherever_the_stream_is_cut(
    sent: list[tuple[bytes, int | None, bytes, int]], data: st.DataObject
) -> None:
    whole = AMQP + b"".join(
        transfer(index, b"%d" % index + tag, EVENT + content, number, handle=handle)
        for index, (tag, number, content, handle) in enumerate(sent)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    stream = Stream()
    for first, after in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        stream.feed(whole[first:after])
    for wanted in (0, 1):
        here = [
            (b"%d" % index + tag, number or 0)
            for index, (tag, number, _, handle) in enumerate(sent)
            if handle == wanted
        ]
        found = stream.finder.take((0, wanted), [tag for tag, _ in here], None)
        assert (found or [0] * len(here)) == [number for _, number in here]


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_a_message_that_contains_a_transfer_is_not_taken_for_one(block_bytes: int) -> None:
    """The event of a user may contain bytes that look like the transfer of the next event, which belongs to
    another user.
    """
    inner = transfer(1, b"next", EVENT, AZURE)
    data = b"\x00\x53\x75\xb0" + len(inner).to_bytes(4) + inner
    whole = (
        AMQP + transfer(0, b"tag", data, 0) + transfer(1, b"next", EVENT, 0) + transfer(2, b"last", EVENT, 3)
    )
    stream = Stream()
    found: list[int] = []
    for at in range(0, len(whole), block_bytes):
        stream.feed(whole[at : at + block_bytes])
        found += stream.finder.take(LINK, [b"tag", b"next", b"last"], None)
    assert sum(found) == 3
    assert len(found) in (0, 3)


def test_equal_tags_on_two_links_are_kept_apart() -> None:
    two = transfer(0, b"tag", EVENT, AZURE, handle=3), transfer(1, b"tag", EVENT, 0, handle=4)
    finder = fed(*two, transfer(2, b"tag", EVENT, 7, channel=1))
    assert finder.take((0, 4), [b"tag"], None) == []
    assert finder.take((1, 0), [b"tag"], None) == [7]
    assert finder.take((0, 3), [b"tag"], None) == [AZURE]


# -- deliveries of several transfers


@pytest.mark.parametrize("later", [(b"tag", AZURE), (b"tag", None), (None, AZURE), (None, None)])
def test_later_transfers_may_repeat_tag_and_format_or_not(later: tuple[bytes | None, int | None]) -> None:
    tag, number = later
    again = None if number is None else UInt(number)
    first = transfer(3, b"tag", EVENT, AZURE, more=True)
    second = frame_of("transfer", EVENT, handle=UInt(0), delivery_tag=tag, message_format=again)
    finder = fed(first, second, transfer(4, b"more", EVENT, 0))
    assert finder.take(LINK, [b"tag", b"more"], None) == [AZURE, 0]
    stream = Stream()
    stream.feed(AMQP + first).prune()
    assert stream.finder.take(LINK, [], b"tag") == []
    stream.feed(second + transfer(4, b"more", EVENT, 0))
    assert stream.finder.take(LINK, [b"tag", b"more"], None) == [AZURE, 0]
    assert not stream.finder.busy


def test_a_format_that_only_a_later_transfer_without_a_tag_has_is_of_the_delivery_in_progress() -> None:
    stream = Stream()
    stream.feed(AMQP + transfer(3, b"tag", EVENT, 0, more=True)).prune()
    finder = stream.feed(
        frame_of("transfer", EVENT, handle=UInt(0), message_format=UInt(7)) + transfer(4, b"more", EVENT, 0)
    )
    assert finder.take(LINK, [b"tag", b"more"], None) == [7, 0]


def test_formats_that_contradict_each_other_are_unknown() -> None:
    finder = fed(transfer(3, b"tag", EVENT, AZURE, more=True), transfer(3, b"tag", EVENT, 7))
    assert finder.take(LINK, [b"tag"], None) == [UNKNOWN]


def test_a_tag_that_is_used_again_after_an_abort_does_not_keep_the_format() -> None:
    stream = Stream()
    stream.feed(AMQP + transfer(3, b"tag", EVENT, AZURE, more=True)).prune()
    finder = stream.feed(frame_of("transfer", handle=UInt(0), aborted=True))
    assert finder.take(LINK, [], None) == []
    assert not finder.busy


def test_formats_that_are_never_taken_are_bounded() -> None:
    stream = Stream()
    stream.feed(AMQP)
    for number in range(5000):
        stream.feed(transfer(number, b"%d" % number, EVENT, AZURE)).prune()
    assert stream.finder.waiting == {LINK: {b"4999": AZURE}}


# -- which link it is


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
@pytest.mark.parametrize("release", [False, True])
def test_a_sender_is_found_by_the_name_that_it_attached_with(block_bytes: int, release: bool) -> None:
    attaches = [("a", 7, 0, False), ("b", 300, 2, False), ("r", 1, 0, True), ("a", 9, 3, False)]
    whole = AMQP + b"".join(
        frame_of("attach", channel=channel, name=name, handle=UInt(handle), role=receiver)
        for name, handle, channel, receiver in attaches
    )
    stream, found = Stream(), list[tuple[str, tuple[int, int]]]()
    for at in range(0, len(whole), block_bytes):
        finder = stream.feed(whole[at : at + block_bytes])
        if release:
            finder.hold()
        for name in ("a", "a", "b", "r"):
            if (link := finder.find_link(name)) is not None:
                found.append((name, link))
        finder.release()
        assert finder.find_link("a") is None
    assert sorted(found) == [("a", (0, 7)), ("a", (3, 9)), ("b", (2, 300))]


def test_on_a_link_that_was_not_found_no_format_is_taken_for_0() -> None:
    finder = fed(transfer(0, b"tag", EVENT, AZURE))
    assert finder.take(None, [b"tag", b"other"], None) == [UNKNOWN, 0]
    assert fed(transfer(0, b"tag", EVENT, 0)).take(None, [b"tag"], None) == []


OTHERS = {
    "flow": frame_of("flow", handle=UInt(0), next_outgoing_id=UInt(0), incoming_window=UInt(1)),
    "attach": written(b"\xa1\x01a", b"\x43", b"\x41", descriptor=b"\x00\x53\x12"),
    "empty": frame(0, b""),
}
KINDS = {
    **OTHERS,
    "transfer": transfer(0, b"tag", EVENT * 9, 0),
    "batch": transfer(1, b"tag", EVENT * 9, AZURE),
    "long": written(*USUAL, descriptor=b"\x00\x80" + (0x14).to_bytes(8)),
}


@given(
    st.lists(st.sampled_from(sorted(KINDS)), max_size=50),
    st.lists(st.integers(1, 300), max_size=12),
)
def test_blocks_that_have_only_transfers_are_known(kinds: list[str], sizes: list[int]) -> None:
    """Then flows and attaches are not searched in them."""
    sent = [KINDS[kind] for kind in kinds]
    stream, at, made = AMQP + b"".join(sent), 0, Stream()
    ends = list(accumulate(map(len, sent), initial=len(AMQP)))
    for size in [*sizes, len(stream)]:
        block = stream[at : at + size]
        if not block:
            break
        finder = made.feed(block)
        now = at + len(block)
        ended = [kind for kind, end in zip(kinds, ends[1:], strict=True) if at < end <= now]
        begun = [kind for kind, begin in zip(kinds, ends, strict=False) if at <= begin < now - 11]
        assert not finder.transfers or not OTHERS.keys() & set(ended)
        assert not finder.plain or "attach" not in begun
        at = now


def test_a_block_with_batches_has_only_transfers(walked: None) -> None:
    finder = fed(KINDS["batch"], KINDS["long"])
    assert (finder.transfers, finder.plain) == (formats._WALKED_MAX > 0, formats._WALKED_MAX > 0)
    assert not fed(*[KINDS["batch"]] * 40).transfers, "too many frames to be read one by one"


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_garbage_raises_nothing(data: bytes, cuts: list[int]) -> None:
    for start in (
        b"",
        written(*USUAL)[:20],
        b"\x00\x00\x00\x20\x02\x00\x00\x00\x00\x53\x14",
        b"\x00\x00\x00\x20\x02\x00\x00\x00\x00\x53\x12",
    ):
        finder, at = FormatFinder(), 0
        finder.feed(AMQP, 0)
        for cut in sorted(cuts):
            finder.feed((start + data)[at : at + cut], min(cut // 2, 7))
            finder.find_link("a")
            at += cut
        finder.take(LINK, [b""], None)


@given(st.lists(st.sampled_from([None, 0, 7, AZURE]), max_size=8), st.sampled_from([None, 0, 7, AZURE]))
def test_deliveries_may_be_taken_one_by_one(numbers: list[int | None], last: int | None) -> None:
    """The last delivery is not complete: its format stays."""
    frames = [transfer(index, b"%d" % index, EVENT, number) for index, number in enumerate(numbers)]
    unfinished = transfer(99, b"last", EVENT, last, more=True)
    finder = fed(*frames, unfinished)
    wanted = [number or 0 for number in numbers]
    assert finder.awaits(LINK, AZURE) == (AZURE in [*wanted, last])
    assert not finder.awaits(None, AZURE)
    assert [finder.take_first(LINK, b"%d" % index) for index in range(len(numbers))] == wanted
    assert finder.take(LINK, [], b"last") == []
    assert finder.take_first(LINK, b"last") == (last or 0)
    assert not finder.waiting


def test_a_format_without_a_tag_belongs_to_the_next_delivery_that_is_taken() -> None:
    finder = FormatFinder()
    finder.waiting[LINK] = {None: 7, b"2": 5}
    assert [finder.take_first(LINK, tag) for tag in (b"1", b"2")] == [7, 5]
    finder.waiting[LINK] = {None: 7, b"2": 5}
    assert finder.take_first(LINK, b"2") == UNKNOWN, "one of both is wrong"
    finder.waiting[LINK] = {b"2": 5}
    assert [finder.take_first(None, tag) for tag in (b"1", b"2")] == [0, UNKNOWN]
