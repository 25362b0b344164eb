import pytest
from hypothesis import given

from knative_gateway.resources.objects import Object
from knative_gateway.resources.refusals import Because
from knative_gateway.resources.schema.checking import DEPTH_MAX, check, defined, is_known
from tests.knative_gateway.resources.test_objects import JSON

S = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "string"}, 1, "must be of type string, not integer"),
        ({"type": "integer"}, True, "must be of type integer, not boolean"),
        ({"type": "integer"}, 1.5, "must be of type integer, not number"),
        ({"type": "object"}, [], "must be of type object, not array"),
        ({"type": "boolean"}, "true", "must be of type boolean, not string"),
        ({"type": "integer", "format": "int32"}, 1 << 31, "must fit in int32"),
        ({"type": "integer"}, 1 << 63, "must fit in int64"),
        ({"type": "integer", "minimum": 0}, -1, "must be at least 0"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, 0, "must be greater than 0"),
        ({"type": "integer", "maximum": 3}, 4, "must be at most 3"),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 3, "must be less than 3"),
        ({"type": "integer", "multipleOf": 2}, 3, "must be a multiple of 2"),
        ({"type": "string", "enum": ["a", "b"]}, "c", '"c": supported values: "a", "b"'),
        ({"type": "string", "minLength": 2}, "a", "must be at least 2 characters long"),
        ({"type": "string", "maxLength": 2}, "abc", "must have at most 2 characters"),
        ({"type": "string", "pattern": "^a+$"}, "b", "must match '^a+$'"),
        ({"type": "string", "format": "date-time"}, "now", "must be an RFC 3339 time"),
        ({"type": "array", "items": S, "minItems": 1}, [], "must have at least 1 items"),
        ({"type": "array", "items": S, "maxItems": 1}, ["a", "b"], "must have at most 1 items"),
        ({"type": "array", "items": S, "uniqueItems": True}, ["a", "a"], "items must be unique"),
        (
            {"type": "object", "maxProperties": 0, "additionalProperties": S},
            {"a": "b"},
            "must have at most 0 items",
        ),
        ({"x-kubernetes-int-or-string": True}, 1.5, "must be of type integer or string, not number"),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            True,
            "must validate at least one schema of anyOf",
        ),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
            1,
            "must validate one and only one schema of oneOf",
        ),
        ({"allOf": [{"type": "string"}]}, 1, "must be of type string, not integer"),
        ({"not": {"type": "string"}}, "a", "must not validate the schema of not"),
        ({"type": "string"}, None, "null: expected string"),
    ],
)
def test_a_value_that_does_not_fit_is_reported(schema: Object, value: object, told: str) -> None:
    (cause,) = check(schema, value, "spec.x").causes
    assert cause.field == "spec.x"
    assert told in cause.words


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({"type": "number"}, 1),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "http"),
        (
            {"type": "string", "pattern": "(?P<"},
            "a pattern that Python cannot read is not held against anybody",
        ),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z"),
        (
            {
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                "type": "object",
                "properties": {"a": S, "b": S},
            },
            {"a": "x"},
        ),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"a": {"b": [None]}}),
    ],
)
def test_values_that_fit_are_kept_unchanged(schema: Object, value: object) -> None:
    checked = check(schema, value)
    assert (checked.value, checked.causes, checked.unknown) == (value, [], [])


def test_unknown_fields_are_left_out_and_named() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"b": S}}}},
    }
    checked = check(schema, {"a": [{"b": "x", "c": 1}], "d.e": 2})
    assert checked.value == {"a": [{"b": "x"}]}
    assert checked.unknown == ["a[0].c", "[d.e]"]


def test_null_is_absent_where_it_is_not_allowed() -> None:
    schema = {
        "type": "object",
        "properties": {"a": S, "b": {"type": "string", "nullable": True}},
        "required": ["a"],
    }
    checked = check(schema, {"a": None, "b": None})
    assert checked.value == {"b": None}
    assert [cause.field for cause in checked.causes] == ["a"]


def test_defaults_of_the_schema_are_filled_in() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}}
        },
    }
    assert check(schema, {}).value == {"a": {"b": 3}}


def test_a_value_nested_too_deeply_is_refused_without_recursion() -> None:
    schema: dict[str, object] = {"type": "array"}
    schema["items"] = schema
    value: list[object] = []
    for _ in range(DEPTH_MAX + 9):
        value = [value]
    assert "nested" in check(schema, value).causes[0].words


@given(JSON)
def test_pruning_a_pruned_object_changes_nothing(value: object) -> None:
    inner = {
        "type": "object",
        "properties": {"a": S, "b": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    once = check(
        {"type": "object", "properties": {"a": inner, "b": {"type": "array", "items": inner}}}, value
    )
    again = check(
        {"type": "object", "properties": {"a": inner, "b": {"type": "array", "items": inner}}}, once.value
    )
    assert not again.unknown
    assert again.value == once.value


def test_schemas_along_a_path_end_where_nothing_is_defined() -> None:
    schema = {"properties": {"a": {"properties": {"b": S}}}}
    assert list(defined(schema, ["a", "b", "c"])) == [{"properties": {"b": S}}, S]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("a", True),
        ("a.b", True),
        ("a.c", False),
        ("m", True),
        ("m.any", True),
        ("o.any.thing", True),
        ("x", False),
    ],
)
def test_a_field_is_known_if_an_object_may_have_it(path: str, known: bool) -> None:
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "object", "properties": {"b": text}},
            "m": {"type": "object", "additionalProperties": text},
            "o": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    assert is_known(schema, path.split(".")) is known


def test_a_pattern_cannot_block_other_work() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert check(schema, "a" * 100_000).causes == []
    assert [cause.because for cause in check(schema, "a" * 100_000 + "!").causes] == [Because.INVALID]
    assert [cause.because for cause in check(schema, "\ud800").causes] == [Because.INVALID]


def test_patterns_are_read_as_kubernetes_reads_them() -> None:
    assert check({"type": "string", "pattern": r"^\p{Lu}\z"}, "Ü").causes == []
    assert (
        check({"type": "string", "pattern": "(?=a)"}, "b").causes == []
    )  # not RE2's: no value is refused for it
