from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.ports import Key
from knative_gateway.resources.objects import (
    at,
    drop,
    key_of,
    moment_ms,
    number,
    put,
    same,
    text,
    timestamp,
    walk,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)
PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)


@given(OBJECTS, PATHS, JSON)
def test_a_put_value_is_present_and_nothing_else_changes(
    object_: dict[str, object], path: list[str], value: object
) -> None:
    before = repr(object_)
    assert at(put(object_, path, value), *path) == value
    assert at(drop(put(object_, path, value), path), *path) is None
    assert repr(object_) == before


@given(OBJECTS, PATHS)
def test_dropping_what_is_not_there_changes_nothing(object_: dict[str, object], path: list[str]) -> None:
    gone = drop(object_, path)
    assert drop(gone, path) == gone


@given(OBJECTS)
def test_an_object_is_rebuilt_from_its_leaves(object_: dict[str, object]) -> None:
    rebuilt: dict[str, object] = {}
    for path, value in walk(object_):
        rebuilt = put(rebuilt, path, value) if path else {}
    assert rebuilt == object_


@given(JSON, JSON)
def test_equality_is_that_of_json(one: object, other: object) -> None:
    assert same(one, one)
    assert same(one, other) is same(other, one)
    assert not same(1, True)
    assert not same({"a": [0]}, {"a": [False]})
    assert same(1, 1.0)


def test_reading_what_is_not_there_or_of_another_type_gives_nothing() -> None:
    assert text({"a": 1}, "a") == ""
    assert number({"a": True}, "a") == 0
    assert at([1], "a") is None


def test_a_key_has_the_group_and_no_version() -> None:
    trigger = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": "t", "namespace": "n"},
    }
    assert key_of(trigger) == Key("eventing.knative.dev", "Trigger", "n", "t")
    assert key_of({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}) == Key(
        "", "Namespace", "", "n"
    )


@given(st.integers(0, 4_000_000_000))
def test_timestamps_are_read_back(seconds: int) -> None:
    assert moment_ms(timestamp(seconds * 1000 + 999)) == seconds * 1000


def test_a_time_without_a_zone_does_not_count() -> None:
    assert moment_ms("2026-01-01T00:00:00") is None
    assert moment_ms("yesterday") is None
    assert moment_ms("1970-01-01T01:00:01.5+01:00") == 1500
