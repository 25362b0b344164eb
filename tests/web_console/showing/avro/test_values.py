"""Bodies in Avro: their forms, and what hostile bodies cost."""

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.wire.codec import Timestamp
from web_console.showing.avro.schema import schema_of
from web_console.showing.avro.values import BODY_BYTES_MAX, VALUES_MAX, AvroError, decoded

READING = schema_of(
    """{"type": "record", "name": "Reading", "fields": [
    {"name": "room", "type": "string"},
    {"name": "celsius", "type": ["null", "double"]},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OFF", "ON"]}},
    {"name": "history", "type": {"type": "array", "items": "int"}},
    {"name": "tags", "type": {"type": "map", "values": "boolean"}},
    {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}"""
)
VALUE = {
    "room": "é1",
    "celsius": 21.5,
    "state": "ON",
    "history": [1, -2, 300],
    "tags": {"a": True},
    "key": b"\x01\x02",
    "at": Timestamp(1000),
}
BODY = (
    b"\x06\xc3\xa91\x02"
    + struct.pack("<d", 21.5)
    + b"\x02\x03\x04\x02\x03\x02\xd8\x04\x00\x02\x02a\x01\x00\x01\x02\xd0\x0f"
)
BILLIONS = bytes.fromhex("feffffffffffffff7f")
PREFIX = b"\xc3\x01" + READING.fingerprint.to_bytes(8, "little")
_REST = '{"type": "array", "items": %s}'


@pytest.mark.parametrize(
    ("prefix", "form", "words"),
    [
        (b"", "", "binary Avro"),
        (b"", "plain", "binary Avro"),
        (PREFIX, "", f"fingerprint {READING.fingerprint:016x}"),
        (PREFIX, "single", "single-object encoding"),
        (b"\0\0\0\1\2", "", "schema 258 of a schema registry"),
        (b"\0\0\0\1\2", "registry", "schema 258"),
    ],
)
def test_each_form_of_a_body_is_decoded(prefix: bytes, form: str, words: str) -> None:
    found = decoded(READING, prefix + BODY, form)
    assert (found.value, found.is_cut) == (VALUE, False)
    assert words in found.form


def test_a_value_that_begins_as_a_prefix_is_read_as_plain_avro() -> None:
    assert decoded(schema_of('["null", "int"]'), b"\0").value is None
    assert (
        decoded(schema_of('{"type": "fixed", "name": "F", "size": 12}'), PREFIX + b"ab").form == "binary Avro"
    )
    assert (
        decoded(schema_of('{"type": "fixed", "name": "F", "size": 6}'), b"\0\0\0\0\1x").form == "binary Avro"
    )


@pytest.mark.parametrize(
    ("schema", "body", "form", "words"),
    [
        ('"int"', PREFIX + b"\2", "", "of another schema"),
        ('"int"', b"\2", "single", "C3 01"),
        ('"int"', b"\2", "registry", "byte 00"),
        ('"int"', b"\0\0\0\0\1", "registry", "1 bytes are needed, and 0 are left (at byte 5)"),
        ('"int"', b"\2\2", "", "ends before byte 1, but the body has 2 bytes"),
        ('"int"', b"\xff\xff\xff\xff\xff\1", "", "more than 32 bits"),
        ('"long"', b"\xff" * 11, "", "more than 10 bytes"),
        ('"string"', b"\1", "", "negative"),
        ('"string"', BILLIONS, "", "bytes are needed"),
        ('"string"', b"\2\xff", "", "not UTF-8"),
        ('"boolean"', b"\2", "", "00 or 01, not 02"),
        ('["null"]', b"\2", "", "branch of the union 1 does not exist"),
        ('{"type": "enum", "name": "E", "symbols": []}', b"\0", "", "symbol 0 does not exist"),
        (_REST % '"int"', b"\1\1\2", "", "size of a block is negative"),
        (
            (
                '{"type": "record", "name": "R", "fields":'
                ' [{"name": "a", "type": {"type": "map", "values": "int"}}]}'
            ),
            b"\2\4\x1b[",
            "",
            "in a['\\x1b['], at byte 4",
        ),
        ('"bytes"', b"\0" * (BODY_BYTES_MAX + 1), "", "at most 512 KiB"),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_its_place(
    schema: str, body: bytes, form: str, words: str
) -> None:
    with pytest.raises(AvroError) as caught:
        decoded(schema_of(schema), body, form)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "items",
    [
        '"null"',
        '{"type": "record", "name": "R", "fields": []}',
        '{"type": "fixed", "name": "F", "size": 0}',
        (
            '{"type": "record", "name": "R", "fields":'
            ' [{"name": "a", "type": "null"}, {"name": "b", "type": "null"}]}'
        ),
    ],
)
def test_items_without_bytes_are_cut_whatever_count_the_body_claims(items: str) -> None:
    found = decoded(schema_of(_REST % items), BILLIONS + b"\0")
    assert found.is_cut
    assert isinstance(found.value, list)
    assert VALUES_MAX // 4 < len(found.value) <= VALUES_MAX


def test_many_blocks_and_many_small_values_are_cut() -> None:
    assert decoded(schema_of(_REST % '"null"'), b"\2" * BODY_BYTES_MAX).is_cut
    assert decoded(schema_of(_REST % '"boolean"'), BILLIONS + b"\1" * 100_000).is_cut
    nested = '{"type": "array", "items": {"type": "array", "items": "null"}}'
    assert decoded(schema_of(nested), BILLIONS + b"\0" * 100_000).is_cut


@pytest.mark.parametrize(
    "fields", ['"R"', '["R", "null"]', '{"type": "array", "items": "R"}', '{"type": "map", "values": "R"}']
)
def test_the_levels_of_a_recursive_value_are_bounded(fields: str) -> None:
    schema = schema_of(f'{{"type": "record", "name": "R", "fields": [{{"name": "r", "type": {fields}}}]}}')
    body = b"\2\0" * 5000 if "values" in fields else b"\2" * 5000 if "items" in fields else b"\0" * 5000
    with pytest.raises(AvroError, match="more than 64 levels") as caught:
        decoded(schema, body)
    assert len(str(caught.value)) < 400


def test_logical_types_are_shown_as_such_only_if_they_are_valid() -> None:
    def read(schema: object, body: bytes) -> object:
        return decoded(schema_of(json.dumps(schema)), body).value

    assert read({"type": "int", "logicalType": "date"}, b"\2") == "1970-01-02"
    assert read({"type": "int", "logicalType": "date"}, b"\xff\xff\xff\xff\x0f") == -(1 << 31)
    assert read({"type": "long", "logicalType": "timestamp-micros"}, b"\xd0\x0f") == Timestamp(1)
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    assert read(decimal, b"\4\xff\x38") == "-2.00"
    assert read({**decimal, "scale": 1 << 70}, b"\2\1") == b"\1"
    assert isinstance(read({**decimal, "scale": 100}, b"\x80\4" + b"\x7f" * 256), str)
    assert read(decimal, b"\x82\4" + b"\x7f" * 257) == b"\x7f" * 257
    assert read({"type": "string", "logicalType": ["x"]}, b"\2a") == "a"


@given(st.binary(max_size=200), st.sampled_from(("", "plain", "single", "registry")))
def test_any_body_is_decoded_or_refused_with_words(body: bytes, form: str) -> None:
    with suppress(AvroError):
        assert set(decoded(READING, body, form).value) <= set(VALUE)  # type: ignore[call-overload]
