"""Avro schemas: what is valid, where a schema is wrong, and fingerprints."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.showing.avro.schema import LEVELS_MAX, SCHEMA_BYTES_MAX, SchemaError, schema_of

_JSON = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(("int", "record", "enum", "fixed", "array", "map", "A", "B", "a.B")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "name", "fields", "symbols", "items", "values", "size", "namespace")),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("schema", "fingerprint"),
    [
        # The values of fastavro 1.12 (fastavro.schema.fingerprint), as signed numbers.
        ('"null"', 7195948357588979594),
        ('{"type":"null"}', 7195948357588979594),
        ('"int"', 8247732601305521295),
        ('{"fields":[], "type":"record", "name":"foo"}', -4824392279771201922),
        ('{"type":"record", "name":"foo", "doc":"Useful info", "fields":[]}', -4824392279771201922),
        ('{ "name":"x.y.z.foo", "type":"record", "doc":"foo\\tbar", "fields":[]}', 1162521758729409105),
        ('{ "name":"foo", "type":"record", "namespace":"a.b", "fields":[]}', -4616218487480524110),
        ('{"type":"fixed", "name":"foo", "size":15}', 1756455273707447556),
        ('{"type":"enum", "name":"foo", "symbols":["A1"]}', -6342190197741309591),
        ('{"type":"array", "items":"null"}', -589620603366471059),
        ('{"type":"map", "values":"string"}', -8732877298790414990),
    ],
)
def test_the_fingerprint_is_that_of_the_canonical_form(schema: str, fingerprint: int) -> None:
    assert schema_of(schema).fingerprint == fingerprint % (1 << 64)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "not valid JSON: Expecting property name"),
        ('"strin"', "the type 'strin' is not defined before this place (at the schema)"),
        ("7", "not 7"),
        ("[]", "at least one type"),
        ('["null", ["int"]]', "a union in it"),
        ('["int", {"type": "int"}]', "a type twice"),
        ('{"type": "record", "name": "R"}', 'a list "fields"'),
        ('{"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}', "schema.fields[0])"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "fields[0].type"),
        (
            (
                '{"type": "record", "name": "R", "fields":'
                ' [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}'
            ),
            "the field 'a' is there twice",
        ),
        ('[{"type": "fixed", "name": "F", "size": 1}, {"type": "enum", "name": "F"}]', "defined twice"),
        ('{"type": "fixed", "name": "F", "size": -1}', '"size"'),
        ('{"type": "fixed", "name": "F", "size": true}', '"size"'),
        ('{"type": "fixed", "name": "F", "namespace": 1, "size": 1}', '"namespace"'),
        ('{"type": "enum", "name": "E", "symbols": ["a", 1]}', '"symbols"'),
        ('{"type": "enum", "name": "1", "symbols": []}', '"name"'),
        ('{"type": "enum", "name": "E", "namespace": "%s", "symbols": []}' % ("n" * 255), "255 characters"),
        ('{"type": "array"}', "schema.items"),
        ('{"type": "map"}', "schema.values"),
        ('"' + "x" * 5000 + '"', "xxx…"),
        ('"' + "é" * (SCHEMA_BYTES_MAX // 2) + '"', "at most 64 KiB"),
        ("[" * 60_000, "too many levels"),
        ("1" * 5000, "too long"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_with_its_place(schema: str, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        schema_of(schema)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_levels_of_a_schema_are_bounded() -> None:
    given: object = "int"
    for _ in range(LEVELS_MAX):
        given = {"type": "array", "items": given}
    schema_of(json.dumps(given))
    with pytest.raises(SchemaError, match="more than 32 levels"):
        schema_of(json.dumps([given]))


def test_names_are_found_in_their_namespace() -> None:
    found = schema_of(
        '{"type": "record", "name": "a.R", "fields": ['
        '{"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["S"]}},'
        '{"name": "y", "type": ["null", "R", "a.E"]}]}'
    ).type
    x, y = (each for _, each in found.fields)
    assert (found.name, x.name) == ("a.R", "a.E")
    assert y.branches[1] is found
    assert y.branches[2] is x


@given(_JSON)
def test_any_json_is_a_schema_or_refused_with_words(given: object) -> None:
    with suppress(SchemaError):
        assert 0 <= schema_of(json.dumps(given)).fingerprint < 1 << 64
