"""Records for other programs: an AMQP reader gets each message back byte for byte."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.kafka.records.plain import REMAINDER, PlainRecord, plain_message, plain_record
from amqp_streams.wire.codec import encode
from amqp_streams.wire.keys import key_section
from amqp_streams.wire.sections import sections
from amqp_streams.wire.types import Described, Int, Symbol, Timestamp, ULong, Value

TEXTS = st.text(max_size=8)
SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    TEXTS,
    st.binary(max_size=8),
    st.integers(-5, 5).map(Int),
    st.floats(allow_nan=False),
    st.integers(0, 9).map(Timestamp),
    st.just(Symbol("s")),
    st.just(UUID(int=7)),
)
PROPERTIES: st.SearchStrategy[dict[Value, Value]] = st.dictionaries(
    TEXTS | st.just(REMAINDER), SCALARS, max_size=3
)
PAYLOADS = st.binary(max_size=20) | st.integers(250, 300).map(bytes)


def part(code: int, value: Value, *, long: bool = False) -> bytes:
    """One section, with the short or the long form of its descriptor."""
    written = encode(Described(ULong(code), value))
    return b"\x00\x80" + code.to_bytes(8) + written[3:] if long else written


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    """A message as stores have it, with one data section."""
    parts = [
        draw(st.sampled_from([b"", part(0x70, [True]), part(0x70, [])])),
        draw(
            st.one_of(
                st.just(b""),
                TEXTS.map(key_section),
                st.just(part(0x72, {Symbol("x-other"): 1, Symbol(names.GROUP_KEY): "k"})),
            )
        ),
        draw(st.sampled_from([b"", part(0x73, ["id", b"user"])])),
    ]
    if draw(st.booleans()):
        parts.append(part(0x74, draw(PROPERTIES), long=draw(st.booleans())))
    payload = draw(PAYLOADS)
    wide = b"\x00\x53\x75\xb0" + len(payload).to_bytes(4) + payload
    parts.append(draw(st.sampled_from([part(0x75, payload), wide, part(0x75, payload, long=True)])))
    parts.append(draw(st.sampled_from([b"", part(0x78, {Symbol("f"): 1})])))
    return b"".join(parts)


@given(stored())
def test_a_message_comes_back_byte_for_byte(message: bytes) -> None:
    record = plain_record(message)
    header = next((each.end for each in sections(message) if each.code == 0x70), 0)
    assert plain_message(record) == (message, header)


@given(stored(), st.binary(max_size=8))
def test_a_value_that_another_program_changed_is_read_as_it_is(message: bytes, other: bytes) -> None:
    record = plain_record(message)._replace(value=other)
    found, _ = plain_message(record)
    body = sections(found)
    assert other in found
    assert any(each.code == 0x75 for each in body)


@given(
    st.none() | st.binary(max_size=8),
    st.none() | PAYLOADS,
    st.lists(st.tuples(TEXTS | st.just(REMAINDER), st.none() | st.binary(max_size=30)), max_size=4),
)
def test_every_record_of_another_program_is_a_message(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    message, size = plain_message(PlainRecord(key, value, headers))
    assert sections(message)
    assert size == 0
    assert (value or b"") in message


def test_a_kafka_client_sees_payload_key_and_properties() -> None:
    properties: dict[Value, Value] = {
        "text": "a",
        "raw": b"\xff",
        "n": Int(5),
        "yes": True,
        "none": None,
        "at": Timestamp(9),
        "u": UUID(int=1),
    }
    message = key_section("k") + part(0x74, properties) + part(0x75, b"payload")
    record = plain_record(message)
    assert (record.key, record.value) == (b"k", b"payload")
    assert list(record.headers[:-1]) == [
        ("text", b"a"),
        ("raw", b"\xff"),
        ("n", b"5"),
        ("yes", b"true"),
        ("none", None),
        ("at", b"9"),
        ("u", b"00000000-0000-0000-0000-000000000001"),
    ]
    assert record.headers[-1][0] == REMAINDER


def test_a_simple_message_needs_no_header_of_ours() -> None:
    message = key_section("k") + part(0x74, {"a": "b"}) + part(0x75, b"payload")
    assert plain_record(message) == (b"k", b"payload", [("a", b"b")])


def test_a_record_of_a_kafka_client_becomes_a_message() -> None:
    record = PlainRecord(b"key", b"v", [("a", b"1"), ("b", b"\xff"), ("c", None), ("a", b"2")])
    expected = key_section("key") + part(0x74, {"a": "2", "b": b"\xff", "c": None}) + part(0x75, b"v")
    assert plain_message(record) == (expected, 0)
    assert plain_message(PlainRecord(b"\xff", None, ())) == (part(0x77, None), 0)


@pytest.mark.parametrize(
    ("message", "message_format", "why"),
    [
        (part(0x77, "text"), 0, "not one data section"),
        (part(0x75, b"a") + part(0x75, b"b"), 0, "not one data section"),
        (part(0x76, [1]), 0, "not one data section"),
        (part(0x73, ["id"]), 0, "not one data section"),
        (part(0x75, b"a"), 7, "the message-format 7"),
    ],
)
def test_what_a_kafka_client_could_not_read_is_refused(message: bytes, message_format: int, why: str) -> None:
    with pytest.raises(PeerError, match=why) as refused:
        plain_record(message, message_format)
    assert refused.value.condition == names.NOT_ALLOWED


def test_what_is_not_a_message_is_refused_as_such() -> None:
    with pytest.raises(PeerError) as refused:
        plain_record(b"\x00\x53\x75\xa0\x09short")
    assert refused.value.condition == names.DECODE_ERROR
