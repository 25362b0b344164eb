"""Which parts of an object can have owners: fields, and the items of lists with keys."""

from hypothesis import given

from knative_gateway.resources.schema.fields import Item, fields_v1, leaves, read_fields, shown
from knative_gateway.resources.schema.own_kinds import array, record, string
from tests.knative_gateway.resources.test_objects import OBJECTS

KEYED = {
    **array(record({"name": string(), "port": {"type": "integer"}, "protocol": string(default="TCP")})),
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["port", "protocol"],
}
SET = {**array(string()), "x-kubernetes-list-type": "set"}
SCHEMA = record(
    {
        "spec": record(
            {"ports": KEYED, "tags": SET, "whole": {"type": "object", "x-kubernetes-map-type": "atomic"}}
        )
    }
)
PORT = Item('k:{"port":80,"protocol":"TCP"}')


def test_a_list_without_a_type_is_one_field() -> None:
    assert leaves({"spec": {"filters": [{"exact": {"a": "b"}}], "empty": {}}}) == {
        ("spec", "filters"): [{"exact": {"a": "b"}}],
        ("spec", "empty"): {},
    }


def test_items_are_fields_by_their_keys_and_defaults_count() -> None:
    assert leaves({"spec": {"ports": [{"port": 80, "name": "http"}]}}, SCHEMA) == {
        ("spec", "ports", PORT): True,
        ("spec", "ports", PORT, "port"): 80,
        ("spec", "ports", PORT, "name"): "http",
    }
    assert leaves({"spec": {"tags": ["a", "b"]}}, SCHEMA).keys() == {
        ("spec", "tags", Item('v:"a"')),
        ("spec", "tags", Item('v:"b"')),
    }


def test_a_list_whose_items_are_not_distinct_is_one_field() -> None:
    for ports in ([{"name": "x"}], [{"port": 1}, {"port": 1}], ["x"]):
        assert leaves({"spec": {"ports": ports}}, SCHEMA) == {("spec", "ports"): ports}
    assert leaves({"spec": {"tags": ["a", "a"]}}, SCHEMA) == {("spec", "tags"): ["a", "a"]}


def test_an_atomic_object_is_one_field() -> None:
    assert leaves({"spec": {"whole": {"a": 1}}}, SCHEMA) == {("spec", "whole"): {"a": 1}}


def test_fields_that_the_server_sets_and_status_are_excluded() -> None:
    object_ = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "a", "uid": "u", "labels": {"a": "b"}},
        "status": {"x": 1},
    }
    assert leaves(object_) == {("metadata", "labels", "a"): "b"}
    assert leaves(object_, status=True) == {("status", "x"): 1}


def test_they_are_written_as_kubernetes_writes_them() -> None:
    written = fields_v1(leaves({"spec": {"ports": [{"port": 80}], "tags": ["a"]}}, SCHEMA))
    port: dict[str, object] = {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}
    assert written == {"f:spec": {"f:ports": port, "f:tags": {'v:"a"': {}}}}


@given(OBJECTS)
def test_they_are_read_back(spec: dict[str, object]) -> None:
    paths = leaves(
        {"spec": {**spec, "ports": [{"port": 80}, {"port": 81, "name": "x"}], "tags": ["a"]}}, SCHEMA
    )
    assert set(read_fields(fields_v1(paths))) == set(paths)


def test_they_are_shown_with_their_keys() -> None:
    assert shown(("spec", "ports", PORT, "name")) == '.spec.ports[port=80,protocol="TCP"].name'
    assert shown(("spec", "tags", Item('v:"a"'))) == '.spec.tags[="a"]'
    assert shown(("spec", Item("k:{"))) == ".spec[=null]"
