"""Transfers with a message-format are found wherever blocks of bytes are cut, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.testing_amqp import frame_of
from amqp_streams.wire.formats import FormatFinder
from amqp_streams.wire.types import UInt

AZURE = 0x80013700
EVENT = b"\x00\x53\x75\xa0\x05event"


def transfer(number: int, tag: bytes, payload: bytes, message_format: int | None, **fields: object) -> bytes:
    first = {"handle": UInt(0), "delivery_id": UInt(number), "delivery_tag": tag}
    return frame_of("transfer", payload, **first, message_format=None if message_format is None else UInt(message_format), **fields)


def found(blocks: list[bytes], *deliveries: tuple[bytes, bytes]) -> list[int]:
    finder = FormatFinder()
    for block in blocks:
        finder.feed(memoryview(block))
    taken = [finder.take(tag, message) for tag, message in deliveries]
    assert not finder.waiting
    return taken


@pytest.mark.parametrize("message_format", [None, 0])
def test_an_ordinary_transfer_is_not_found(message_format: int | None) -> None:
    finder = FormatFinder()
    finder.feed(transfer(0, b"tag", EVENT, message_format))
    assert not finder.waiting


@pytest.mark.parametrize("message_format", [1, 255, 256, 0x14531400, AZURE, (1 << 32) - 1])
@pytest.mark.parametrize("tag", [b"", b"\x00", b"\x53\x14\xc0", b"t" * 32])
@pytest.mark.parametrize("number", [0, 1, 255, 1 << 31])
def test_a_format_is_found_with_any_tag_and_number(message_format: int, tag: bytes, number: int) -> None:
    assert found([transfer(number, tag, EVENT, message_format)], (tag, EVENT)) == [message_format]


def test_the_long_form_of_a_list_is_read_as_well() -> None:
    fields = b"\x52\x09\x52\x07\xa0\x03tag\x70\x80\x01\x37\x00\x42\x42"
    body = b"\x00\x53\x14\xd0" + (len(fields) + 4).to_bytes(4) + (6).to_bytes(4) + fields + EVENT
    frame = (len(body) + 8).to_bytes(4) + b"\x02\x00\x00\x01" + body
    assert found([frame], (b"tag", EVENT)) == [AZURE]


@given(st.lists(st.tuples(st.binary(max_size=32), st.sampled_from([None, 1, AZURE]), st.binary(max_size=90)), max_size=6), st.data())
def test_every_format_is_found_once_wherever_the_stream_is_cut(sent: list[tuple[bytes, int | None, bytes]], data: st.DataObject) -> None:
    stream = b"".join(
        transfer(index, b"%d" % index + tag[:30], EVENT + content, number) for index, (tag, number, content) in enumerate(sent)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    blocks = [stream[first:after] for first, after in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    deliveries = [(b"%d" % index + tag[:30], EVENT + content) for index, (tag, _, content) in enumerate(sent)]
    assert found(blocks, *deliveries) == [number or 0 for _, number, _ in sent]


def test_a_message_that_contains_a_transfer_is_not_taken_for_one() -> None:
    inner = transfer(0, b"tag", EVENT, AZURE)
    outer = b"\x00\x53\x75\xa0" + bytes((len(inner),)) + inner
    finder = FormatFinder()
    finder.feed(transfer(0, b"tag", outer, 0))
    assert finder.take(b"tag", outer) == 0


def test_later_transfers_of_a_delivery_do_not_count() -> None:
    parts = [b"\x00\x53\x75\xb0\x00\x00\x00\xc8" + b"a" * 100, b"b" * 100]
    blocks = [transfer(3, b"tag", part, AZURE, more=index == 0) for index, part in enumerate(parts)]
    assert found(blocks, (b"tag", b"".join(parts))) == [AZURE]


def test_what_is_never_delivered_is_bounded() -> None:
    finder = FormatFinder()
    for number in range(5000):
        finder.feed(transfer(number, b"%d" % number, EVENT, AZURE))
        finder.feed(transfer(number, b"same", EVENT, AZURE))
        finder.prune()
    assert len(finder.waiting) <= 1024
    assert max(map(len, finder.waiting.values())) <= 8
