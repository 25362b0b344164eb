"""The texts of message sections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.client.raw import Described, Symbol, Timestamp, WireError, encode, key_section
from amqp_streams.wire.codec import ULong
from amqp_streams.wire.types import Value
from spark_connector.rows.section_texts import FIELDS, fields_of, key_of, pairs_at, pairs_of
from spark_connector.rows.values import text_of

texts = st.text(max_size=300)
values = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | texts
    | st.binary(max_size=20)
    | st.uuids()
)


def section(code: int, value: Value) -> bytes:
    return encode(Described(ULong(code), value))


@given(texts)
def test_the_key_is_read_however_it_was_written(key: str) -> None:
    plain = key_section(key)
    assert key_of(plain) == key
    others = section(0x72, {Symbol("x-other"): 1})
    assert key_of(others) is None
    event = Event(b"", key=key, annotations={"x-other": 5}).encode()
    assert key_of(event[: -len(b"\x00\x53\x75\xa0\x00")]) == key


def test_without_annotations_a_message_has_no_key() -> None:
    assert key_of(b"") is None
    assert key_of(section(0x72, {})) is None


@given(st.dictionaries(texts, values, max_size=8))
def test_pairs_are_names_and_texts_in_order(properties: dict[Value, Value]) -> None:
    found = pairs_of(section(0x74, properties))
    assert found is not None
    assert list(found.items()) == [(name, text_of(value)) for name, value in properties.items()]


def test_a_section_that_is_absent_is_not_an_empty_one() -> None:
    assert pairs_of(b"") is None
    assert pairs_of(section(0x74, {})) == {}


def test_names_that_are_not_strings_are_read() -> None:
    assert pairs_of(section(0x72, {Symbol("x-a"): 1, ULong(7): "b"})) == {"x-a": "1", "7": "b"}
    with pytest.raises(ValueError, match="twice"):
        pairs_of(section(0x74, {"7": "a", 7: "b"}))


@given(
    st.binary(max_size=60),
    st.sampled_from([b"\x00\x53\x72", b"\x00\x53\x74", b"\x00\x53\x74\xc1", b"\x00\x53\x73\xc0"]),
)
def test_a_broken_section_is_an_error_of_two_kinds(rest: bytes, head: bytes) -> None:
    for read in (key_of, pairs_of, fields_of):
        try:
            read(head + rest)
        except (WireError, ValueError, IndexError):
            continue


def test_fields_have_columns() -> None:
    event = Event(
        b"", subject="s", content_type="c", message_id=7, correlation_id=b"\x01", creation_time_ms=5
    ).encode()
    fields = fields_of(event[: -len(b"\x00\x53\x75\xa0\x00")])
    assert {name: read(fields) for name, read in FIELDS.items()} == {
        "message_id": "7",
        "subject": "s",
        "correlation_id": "AQ==",
        "content_type": "c",
        "creation_time": 5000,
    }
    assert {read(fields_of(b"")) for read in FIELDS.values()} == {None}
    assert FIELDS["creation_time"]([None] * 9 + [Timestamp(-1)]) == -1000


def test_maps_are_laid_out_as_arrow_wants_them() -> None:
    assert pairs_at([{"a": "1", "b": None}, None, {}]) == ([0, None, 2, 2], ["a", "b"], ["1", None])
