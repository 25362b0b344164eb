"""Only transfers with a long tag are changed, with blocks of any size, and no frame changes its size."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.testing_amqp import frame_of
from amqp_streams.wire.frames import frame, read_frames, read_performative
from amqp_streams.wire.outgoing_formats import FORMAT_BYTES, TAG_BYTES, FormatWriter
from amqp_streams.wire.types import UInt

TAG = b"tag of 12 by"
EVENT = b"\x00\x53\x75\xa0\x05event"
NUMBERS = st.integers(0, (1 << 32) - 1)


def transfer(number: int, tag: bytes, payload: bytes) -> bytes:
    """Return a transfer as Proton writes it."""
    fields: dict[str, Any] = {"handle": UInt(number % 300), "delivery_id": UInt(number), "delivery_tag": tag}
    return frame_of("transfer", payload, **fields, message_format=UInt(0), settled=False, more=False)


def long_tag(message_format: int) -> bytes:
    tag = TAG + message_format.to_bytes(FORMAT_BYTES)
    assert len(tag) == TAG_BYTES + FORMAT_BYTES
    return tag


@given(
    st.lists(
        st.tuples(NUMBERS, st.one_of(st.none(), NUMBERS), st.sampled_from([b"", EVENT, b"x" * 300, "like"])),
        max_size=8,
    ),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_each_transfer_gets_its_format_and_all_else_stays(
    sent: list[tuple[int, int | None, bytes | str]], cuts: list[int]
) -> None:
    written: list[bytes] = []
    for number, message_format, content in sent:
        payload = transfer(0, long_tag(1), EVENT) if isinstance(content, str) else content
        written.append(transfer(number, TAG if message_format is None else long_tag(message_format), payload))
        written += [frame(0, b""), frame_of("detach", handle=UInt(0))]
    whole = b"".join(written)
    writer, output, at = FormatWriter(), b"", 0
    for cut in cuts:
        output += writer.feed(whole[at : at + cut])
        at += cut
    output += writer.feed(whole[at:])
    frames = list(zip(read_frames(output), read_frames(whole), strict=True))
    assert [len(one.body) for one, _ in frames] == [len(other.body) for _, other in frames]
    found = [(read_performative(one.body), other.body) for one, other in frames if one.body]
    expected = iter(sent)
    for one, other in found:
        if one.name != "transfer":
            continue
        number, message_format, _ = next(expected)
        assert (one.fields["delivery-id"], one.fields["delivery-tag"], one.fields["message-format"]) == (
            number,
            TAG,
            message_format or 0,
        )
        assert one.payload == read_performative(other).payload


def test_a_frame_comes_as_soon_as_its_beginning_is_complete() -> None:
    whole = transfer(1, long_tag(7), b"x" * 1000)
    writer = FormatWriter()
    assert writer.feed(whole[:30]) == b""
    assert len(writer.feed(whole[30:200])) == 200
    assert writer.feed(whole[200:]) == whole[200:]
