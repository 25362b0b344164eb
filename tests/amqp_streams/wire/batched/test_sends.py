"""Reading a batch that a producer sent returns what was written, by us or by an Event Hubs client."""

from array import array

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import WireError
from amqp_streams.wire.batched.arrays import write_array
from amqp_streams.wire.batched.compression import (
    CODECS,
    TooLargeBatchError,
    UnknownCodecError,
    codec,
    compressed,
)
from amqp_streams.wire.batched.sends import (
    ANNOTATIONS_MAX,
    BATCH_OVERHEAD_BYTES,
    EVENT_BYTES,
    FORMAT_BYTES,
    TooManyEventsError,
    event_text,
    read_in_steps,
    read_sent_batch,
    rejection_text,
    resuming,
    write_sent_batch,
)
from amqp_streams.wire.codec import Array, Described, Symbol, UInt, ULong, Value, decode, encode
from amqp_streams.wire.layout import DATA, sections

MESSAGES = st.lists(st.binary(max_size=300), min_size=1, max_size=40)


def data(*messages: bytes) -> bytes:
    """Data sections as most libraries write them: short ones with a size of one byte."""
    return b"".join(encode(Described(ULong(DATA), message)) for message in messages)


def annotated(**entries: Value) -> bytes:
    keys = {
        "sizes": names.BATCH_SIZES,
        "formats": names.BATCH_MESSAGE_FORMATS,
        "resumes": names.BATCH_RESUMES,
    }
    return encode(
        Described(ULong(0x71), {Symbol(keys.get(key, key)): value for key, value in entries.items()})
    )


@settings(deadline=None)
@given(MESSAGES, st.data(), st.booleans())
def test_written_batches_are_read_back(messages: list[bytes], drawn: st.DataObject, resumes: bool) -> None:
    formats = drawn.draw(
        st.dictionaries(st.integers(0, len(messages) - 1), st.integers(1, (1 << 32) - 1), max_size=5)
    )
    written = write_sent_batch(messages, formats, resumes=resumes)
    batch = read_sent_batch(written, len(messages))
    assert (batch.messages, batch.formats, batch.resumes) == (messages, formats, resumes)
    most = BATCH_OVERHEAD_BYTES + EVENT_BYTES * len(messages) + FORMAT_BYTES * len(formats)
    assert len(written) <= most + sum(map(len, messages))


@settings(deadline=None)
@given(MESSAGES, st.booleans(), st.booleans(), st.sampled_from([None, *CODECS]))
def test_a_batch_of_any_client_can_resume_a_link(
    messages: list[bytes], ours: bool, header: bool, wanted: str | None
) -> None:
    batch = write_sent_batch(messages, {0: 7}) if ours else annotated(x="y") + data(*messages)
    batch = compressed(batch, None if wanted is None else codec(wanted))
    if header:
        batch = encode(Described(ULong(0x70), [True])) + batch
    read = read_sent_batch(resuming(batch, 1 << 20), len(messages))
    assert read.resumes
    assert read.messages == messages
    assert read.formats == ({0: 7} if ours else {})


def test_a_batch_without_annotations_can_resume_a_link() -> None:
    read = read_sent_batch(resuming(data(b"a", b"b"), 100), 2)
    assert (read.resumes, read.messages) == (True, [b"a", b"b"])


@pytest.mark.parametrize("message", [b"", b"x", b"\0\x53\x71", annotated(sizes=True) + b"\0"])
def test_what_cannot_be_read_cannot_resume_a_link(message: bytes) -> None:
    with pytest.raises(WireError):
        read_sent_batch(resuming(message, 100), 2)


def test_annotations_that_end_before_their_count_resume_nothing() -> None:
    with pytest.raises(WireError, match="the map at byte 3 has no count"):
        resuming(b"\x00\x53\x71\xc1\x00" + data(b"a"), 100)


@given(MESSAGES)
def test_a_batch_is_a_message_as_the_standard_has_it(messages: list[bytes]) -> None:
    written = write_sent_batch(messages, {0: 7}, resumes=True)
    first, *body = sections(written)
    annotations = decode(written, first.start)[0]
    assert isinstance(annotations, Described)
    assert annotations.value == {
        names.BATCH_SIZES: Array(UInt, tuple(UInt(len(message)) for message in messages)),
        names.BATCH_MESSAGE_FORMATS: Array(UInt, (UInt(0), UInt(7))),
        names.BATCH_RESUMES: True,
    }
    assert [decode(written, section.start)[0] for section in body] == [
        Described(ULong(DATA), message) for message in messages
    ]


@settings(deadline=None)
@given(MESSAGES)
def test_batches_of_other_clients_are_read(messages: list[bytes]) -> None:
    """An Event Hubs client writes message annotations and data sections; another one may write more."""
    azure = encode(Described(ULong(0x72), {Symbol("x-opt-partition-key"): "key"}))
    head = bytes(proton.Message(properties={"a": "b"}, subject="s", ttl=1.0).encode())
    footer = encode(Described(ULong(0x78), {}))
    for message in (
        data(*messages),
        azure + data(*messages),
        annotated(other=1) + azure + data(*messages) + footer,
        head + data(*messages),
        annotated(sizes=Array(UInt, ())) + data(*messages),
        b"".join(b"\x00\x80" + bytes(7) + b"\x75\xb0" + len(each).to_bytes(4) + each for each in messages),
    ):
        assert read_sent_batch(message, len(messages)).messages == messages


def test_arrays_may_have_any_width() -> None:
    """A library may write an array of small numbers with items of one byte."""
    small = annotated()[:3] + b"\xd1" + (4 + 22 + 6).to_bytes(4) + (2).to_bytes(4)
    key = encode(Symbol(names.BATCH_SIZES))
    value = b"\xe0\x04\x02\x52\x01\x01"
    small = b"\x00\x53\x71\xd1" + (4 + len(key) + len(value)).to_bytes(4) + (2).to_bytes(4) + key + value
    batch = b"\x00\x53\x75\xb0\x00\x00\x00\x01a\x00\x53\x75\xb0\x00\x00\x00\x01b"
    assert read_sent_batch(small + batch, 2).messages == [b"a", b"b"]


@pytest.mark.parametrize("sized", [True, False])
def test_a_batch_with_too_many_events_is_refused_before_it_is_read(sized: bool) -> None:
    messages = [b"x"] * 100
    written = write_sent_batch(messages) if sized else data(*messages)
    assert len(read_sent_batch(written, 100).messages) == 100
    with pytest.raises(TooManyEventsError, match="at most"):
        read_sent_batch(written, 99)


def test_a_batch_without_sizes_is_read_in_steps() -> None:
    """Each section takes a step of Python, so a batch of many would hold others up."""
    batch = data(*[b"e"] * 1000)
    reading = read_in_steps(batch, 1000)
    assert [next(reading) for _ in range(4)] == [None] * 4
    with pytest.raises(StopIteration) as end:
        next(reading)
    assert end.value.value.messages == [b"e"] * 1000
    refused = read_in_steps(batch, 10)
    next(refused)
    with pytest.raises(TooManyEventsError, match="at most 10 events here"):
        next(refused)


BODY = data(b"one", b"two")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "without a section"),
        (annotated(a=1), "the message ends at byte"),
        (annotated(a=1) + annotated(a=1) + BODY, "is not allowed there"),
        (encode(Described(ULong(0x77), "x")), "amqp-value at byte 0 is not allowed there"),
        (encode(Described(ULong(0x78), {})), "footer at byte 0 is not allowed there"),
        (BODY + encode(Described(ULong(0x77), "x")), "may not follow data"),
        (BODY + encode(Described(ULong(0x78), {})) + BODY, "may not follow data"),
        (BODY[:-1], "incomplete"),
        (b"\x00\x53\x75\xb0\x00\x00", "byte"),
        (b"\x00\x53\x75\xb0\xff\xff\xff\xffx", "incomplete"),
        (annotated(sizes=Array(UInt, (UInt(3),))) + BODY, "the sizes in a batch are not those"),
        (annotated(sizes=Array(ULong, (ULong(1 << 40),))) + BODY, "other items"),
        (annotated(sizes="x") + BODY + b"", None),
        (annotated(formats=Array(UInt, (UInt(1),))) + BODY, "message-formats of a batch of 2 events"),
        (annotated(formats=Array(UInt, (UInt(2), UInt(1)))) + BODY, "message-formats of a batch of 2"),
        (annotated(formats=Array(UInt, (UInt(1),) * 99)) + BODY, "at most 10 events"),
        (write_sent_batch([b"a", b"b"])[:-1], "the sizes in a batch"),
        (
            write_sent_batch([b"ab", b"c"]).replace(b"\x75\xb0\0\0\0\2", b"\x75\xb0\0\0\0\1"),
            "those of its sizes",
        ),
    ],
)
def test_other_bytes_are_a_wire_error(message: bytes, reason: str | None) -> None:
    if reason is None:
        assert read_sent_batch(message, 10).messages == [b"one", b"two"]
        return
    with pytest.raises(WireError, match=reason):
        read_sent_batch(message, 10)


def test_the_number_of_annotations_is_bounded() -> None:
    entries: dict[str, Value] = {f"amqp-streams:{number}": number for number in range(ANNOTATIONS_MAX)}
    assert read_sent_batch(annotated(**entries) + BODY, 10).messages == [b"one", b"two"]
    with pytest.raises(WireError, match="at most 64 delivery annotations"):
        read_sent_batch(annotated(more=1, **entries) + BODY, 10)


@settings(deadline=None)
@given(st.data())
def test_any_bytes_are_a_batch_or_a_wire_error(drawn: st.DataObject) -> None:
    made = write_sent_batch([b"a", b"bc", b""], {1: 5}, resumes=True)
    written = bytearray(drawn.draw(st.sampled_from([made, annotated(x=1) + BODY])))
    for _ in range(drawn.draw(st.integers(1, 4))):
        written[drawn.draw(st.integers(0, len(written) - 1))] = drawn.draw(st.integers(0, 255))
    cut = bytes(written[: drawn.draw(st.integers(0, len(written)))])
    for message in (bytes(written), cut):
        try:
            batch = read_sent_batch(message, 5)
        except WireError:
            continue
        assert all(type(each) is bytes for each in batch.messages)
        assert len(batch.messages) <= 5
        assert sum(map(len, batch.messages)) <= len(message)


def test_sizes_in_another_array_type_are_refused() -> None:
    head = b"\x00\x53\x71\xd1"
    content = encode(Symbol(names.BATCH_SIZES)) + write_array(0x80, array("Q", [3, 3]))
    written = head + (4 + len(content)).to_bytes(4) + (2).to_bytes(4) + content + BODY
    with pytest.raises(WireError, match="arrays of uint"):
        read_sent_batch(written, 10)


@given(st.integers(0, 1 << 20), st.text())
def test_the_reason_of_an_event_is_read_from_the_text_of_a_rejection(index: int, reason: str) -> None:
    assert event_text(index, rejection_text(index, reason)) == reason
    assert event_text(index, "the disk is full") == "the disk is full"


def packed(frame: bytes, *, name: Value = Symbol("zstd"), size: Value = UInt(1000)) -> bytes:  # noqa: B008  both are frozen
    return annotated(**{names.BATCH_COMPRESSION: name, names.BATCH_UNCOMPRESSED_SIZE: size}) + data(frame)


@settings(deadline=None)
@given(MESSAGES, st.sampled_from(CODECS), st.booleans())
def test_a_compressed_batch_is_read_as_the_batch_itself(
    messages: list[bytes], name: str, resumes: bool
) -> None:
    """Within its limit, also if another client wrote the annotations and the data section."""
    batch = write_sent_batch(messages * 10, {0: 7}, resumes=resumes)
    plain, count = read_sent_batch(batch, len(messages) * 10), len(messages) * 10
    assert plain.encoded == batch
    other = packed(codec(name).compress(batch), name=Symbol(name), size=UInt(len(batch)))
    for message in (compressed(batch, codec(name)), other):
        found = read_sent_batch(message, count, len(batch))
        assert (found.messages, found.formats, found.resumes, found.encoded) == (
            plain.messages,
            plain.formats,
            resumes,
            batch,
        )
        if message is not batch:
            with pytest.raises(TooLargeBatchError, match=f"has {len(batch)} bytes"):
                read_sent_batch(message, count, len(batch) - 1)
            with pytest.raises(TooManyEventsError):
                read_sent_batch(message, count - 1, len(batch))


def zipped(batch: bytes) -> bytes:
    return codec("zstd").compress(batch)


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (packed(b"garbage"), WireError, "not a valid zstd frame"),
        (packed(zipped(bytes(999))), WireError, "1000 bytes of content"),
        (packed(zipped(bytes(1000))), WireError, "byte 0"),
        (packed(zipped(bytes(1000))) + data(b"more"), WireError, "one data section"),
        (annotated(**{names.BATCH_COMPRESSION: Symbol("zstd")}), WireError, "ends at byte 38"),
        (packed(b"", size=None), WireError, names.BATCH_UNCOMPRESSED_SIZE),
        (packed(b"", name=Symbol("gzip")), UnknownCodecError, "'gzip' is not supported"),
        (packed(b"", name=Symbol("z" * 1000)), UnknownCodecError, "is not supported"),
        (packed(b"", size=UInt(10_001)), TooLargeBatchError, "the limit is 10000"),
    ],
)
def test_what_is_not_a_compressed_batch_is_refused(message: bytes, error: type[WireError], text: str) -> None:
    with pytest.raises(error, match=text):
        read_sent_batch(message, 100, 10_000)


def test_a_compressed_batch_is_not_in_another_one_and_not_where_none_is_expected() -> None:
    inner = packed(zipped(write_sent_batch([b"event"] * 100)), size=UInt(1328))
    outer = packed(zipped(inner), size=UInt(len(inner)))
    for message, bytes_max in ((outer, 10_000), (inner, None)):
        with pytest.raises(WireError, match="may not contain a compressed batch"):
            read_sent_batch(message, 100, bytes_max)
