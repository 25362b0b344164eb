from typing import Any

import pytest
from hypothesis import given

from knative_gateway.resources.patches.json_patches import (
    ADDED_VALUES_MAX,
    OPERATIONS_MAX,
    json_patch,
    merge_patch,
)
from knative_gateway.resources.refusals import StatusError
from tests.knative_gateway.resources.test_objects import JSON, OBJECTS

# RFC 7386, appendix A.
MERGES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), MERGES)
def test_a_merge_patch_does_what_its_rfc_shows(target: object, patch: object, result: object) -> None:
    assert merge_patch(target, patch) == result


# RFC 6902, appendix A, by its numbers.
OPERATIONS = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    (
        {"foo": ["bar", "baz"]},
        [{"op": "add", "path": "/foo/1", "value": "qux"}],
        {"foo": ["bar", "qux", "baz"]},
    ),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    (
        {"baz": "qux", "foo": "bar"},
        [{"op": "replace", "path": "/baz", "value": "boo"}],
        {"baz": "boo", "foo": "bar"},
    ),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        {"baz": "qux", "foo": ["a", 2]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        None,
    ),
    (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
        {"foo": "bar", "baz": "qux"},
    ),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], None),
    (
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
        {"foo": ["bar", ["abc", "def"]]},
    ),
    (
        {"foo": [{"a": 1}]},
        [{"op": "copy", "from": "/foo/0", "path": "/foo/0"}],
        {"foo": [{"a": 1}, {"a": 1}]},
    ),
    ({"foo": [{"a": 1}]}, [{"op": "replace", "path": "/foo/0/a", "value": 2}], {"foo": [{"a": 2}]}),
    ({"foo": [{"a": 1}]}, [{"op": "remove", "path": "/foo/0/a"}], {"foo": [{}]}),
    ({"foo": None}, [{"op": "test", "path": "/foo", "value": None}], None),
    ({"foo": 1}, [{"op": "replace", "path": "", "value": {"bar": 2}}], {"bar": 2}),
]


@pytest.mark.parametrize(("target", "operations", "result"), OPERATIONS)
def test_a_json_patch_does_what_its_rfc_shows(
    target: dict[str, object], operations: list[object], result: object
) -> None:
    assert json_patch(target, operations) == (target if result is None else result)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "test", "path": "/baz", "value": "bar"}, 422),
        ({"op": "test", "path": "/foo/0", "value": True}, 422),
        ({"op": "add", "path": "/none/bat", "value": "qux"}, 422),
        ({"op": "remove", "path": "/none"}, 422),
        ({"op": "replace", "path": "/none", "value": 1}, 422),
        ({"op": "add", "path": "/foo/9", "value": 1}, 422),
        ({"op": "remove", "path": "/foo/01"}, 422),
        ({"op": "remove", "path": "/foo/-"}, 422),
        ({"op": "add", "path": "/foo/0/x", "value": 1}, 422),
        ({"op": "move", "from": "/foo", "path": "/foo/0"}, 422),
        ({"op": "copy", "from": "/none", "path": "/foo"}, 422),
        ({"op": "add", "path": "/foo"}, 400),
        ({"op": "add", "path": "foo", "value": 1}, 400),
        ({"op": "add", "path": "/~2", "value": 1}, 400),
        ({"op": "add", "value": 1}, 400),
        ({"op": "shrink", "path": "/foo"}, 400),
        ("add", 400),
    ],
)
def test_an_operation_that_does_not_fit_refuses_the_whole_patch(operation: object, code: int) -> None:
    target = {"foo": [1], "baz": "qux"}
    with pytest.raises(StatusError) as refused:
        json_patch(target, [{"op": "add", "path": "/new", "value": 1}, operation])
    assert refused.value.code == code
    assert target == {"foo": [1], "baz": "qux"}


def test_a_patch_has_its_limits() -> None:
    deep: object = 1
    for _ in range(80):
        deep = {"a": deep}
    with pytest.raises(StatusError):
        merge_patch({}, deep)
    with pytest.raises(StatusError):
        json_patch({}, [{"op": "test", "path": "", "value": {}}] * 10_001)
    with pytest.raises(StatusError):
        json_patch({}, {"op": "test"})


@given(JSON, JSON)
def test_a_merge_patch_twice_is_the_same_as_once(target: object, patch: object) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_adding_and_removing_leaves_nothing_behind(
    target: dict[str, object], value: dict[str, object]
) -> None:
    operations = [
        {"op": "add", "path": "/new", "value": value},
        {"op": "test", "path": "/new", "value": value},
        {"op": "remove", "path": "/new"},
    ]
    assert json_patch(target, operations) == target


COPY_TWICE = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "copy", "from": "/b", "path": "/a/-"}]


@pytest.mark.timeout(20)
def test_copies_of_copies_end_soon() -> None:
    """A short patch could otherwise create a document that is larger than the memory."""
    with pytest.raises(StatusError, match="adds too much") as refused:
        json_patch({"a": ["x"]}, COPY_TWICE * 40)
    assert refused.value.code == 413


@pytest.mark.parametrize("op", ["add", "replace"])
def test_all_operations_together_add_a_limited_number_of_values(op: str) -> None:
    """Each of 10,000 operations at the beginning of a list of 200,000 items moves all of them."""
    half = {"op": op, "path": "/a", "value": [0] * (ADDED_VALUES_MAX // 2 - 1)}
    assert json_patch({"a": 1}, [half, half]) == {"a": half["value"]}
    with pytest.raises(StatusError, match="operation 2 of the JSON patch adds too much") as refused:
        json_patch({"a": 1}, [half, half, {"op": op, "path": "/a", "value": 1}])
    assert refused.value.code == 413


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": f"/a/{LONG}", "value": 1},
        {"op": "test", "path": f"/a/0/{LONG}", "value": 1},
        {"op": "test", "path": f"/{LONG}", "value": 1},
        {"op": "add", "path": f"/b/{LONG}", "value": 1},
    ],
)
def test_a_message_shows_the_beginning_of_a_long_path(operation: dict[str, object]) -> None:
    with pytest.raises(StatusError) as refused:
        json_patch({"a": [1], "b": 1}, [operation])
    assert len(str(refused.value)) < 500


def test_a_failed_test_of_a_long_path_has_a_short_message() -> None:
    with pytest.raises(StatusError, match="testing /xx") as refused:
        json_patch({LONG: 1}, [{"op": "test", "path": f"/{LONG}", "value": 2}])
    assert len(str(refused.value)) < 500


@pytest.mark.timeout(20)
def test_the_most_operations_on_a_large_object_end_soon() -> None:
    """A copy of the object for each operation would delay all other requests."""
    large: dict[str, object] = {f"k{number}": "v" for number in range(50_000)}
    patched = json_patch(
        large, [{"op": "add", "path": f"/n{number}", "value": "v"} for number in range(OPERATIONS_MAX)]
    )
    assert isinstance(patched, dict)
    assert len(patched) == 50_000 + OPERATIONS_MAX == 60_000


def test_neither_the_document_nor_the_operations_are_changed() -> None:
    document: dict[str, Any] = {"a": {"b": [1]}}
    value: dict[str, Any] = {"c": []}
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/v", "value": value},
        {"op": "add", "path": "/v/c/0", "value": 1},
        {"op": "remove", "path": "/a/b/0"},
    ]
    assert json_patch(document, operations) == {"a": {"b": []}, "v": {"c": [1]}}
    assert (document, value) == ({"a": {"b": [1]}}, {"c": []})


def test_a_copy_is_its_own() -> None:
    operations = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/x", "value": 1}]
    assert json_patch({"a": {}}, operations) == {"a": {}, "b": {"x": 1}}
