"""The fields of an object that a field manager can own, and their form in `managedFields` (FieldsV1).

A field is a leaf of nested objects. A list is one field, unless its schema has a list type: in a list of type
`map` each item has fields of its own and is itself a field, identified by its keys; in a list of type `set`
each value is a field.

Spec: Kubernetes, "Server-Side Apply", "Merge strategy".
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from knative_gateway.resources.objects import EMPTY, Object, child, entries

LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
MEMBER: Final = True
"""The value that `leaves` returns for a list item itself, in addition to the fields of the item."""
DEPTH_MAX: Final = 64
_SELF: Final = "."
_SYSTEM: Final = frozenset(
    ("metadata", name)
    for name in (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "generateName",
    )
)


@dataclass(frozen=True, slots=True)
class Item:
    """One list item as a step of a path. `written` is its FieldsV1 form: `k:{"port":80}` or `v:"value"`."""

    written: str


Path = tuple[str | Item, ...]


def leaves(object_: Object, schema: Object = EMPTY, *, status: bool = False) -> dict[Path, object]:
    """Return the fields that can be owned, with their values: those of `status`, or all others."""
    found: dict[Path, object] = {}
    for name, value in own(object_, status=status).items():
        _leaves(value, below(schema, name), (name,), found)
    found.pop(("metadata",), None)
    return found


def own(object_: Object, *, status: bool) -> dict[str, object]:
    """Return the part of an object whose fields can be owned.

    That is `status`, or everything except `status`, the kind, and the metadata that the server sets.
    """
    if status:
        return {name: value for name, value in object_.items() if name == "status"}
    parts = {name: value for name, value in object_.items() if name not in {"apiVersion", "kind", "status"}}
    if "metadata" in parts:
        parts["metadata"] = {
            name: value
            for name, value in child(parts, "metadata").items()
            if ("metadata", name) not in _SYSTEM
        }
    return parts


def _leaves(value: object, schema: Object, path: Path, found: dict[Path, object]) -> None:
    if is_open(value, schema) and value:
        assert isinstance(value, Mapping)
        for name, each in value.items():
            _leaves(each, below(schema, name), (*path, name), found)
        return
    listed = items(value, schema)
    if not listed:
        found[path] = value
        return
    for item, each in listed.items():
        found[*path, item] = MEMBER
        if isinstance(each, Mapping):
            for name, value_below in each.items():
                _leaves(value_below, below(child(schema, "items"), name), (*path, item, name), found)


def is_open(value: object, schema: Object) -> bool:
    """Return whether the fields of `value` are owned one by one, instead of `value` as a whole."""
    return isinstance(value, Mapping) and schema.get(MAP_TYPE) != "atomic"


def items(value: object, schema: Object) -> dict[Item, object] | None:
    """Return the items of a list that are owned one by one, or None if the list is owned as a whole."""
    type_ = schema.get(LIST_TYPE)
    if not isinstance(value, list | tuple) or type_ not in {"map", "set"}:
        return None
    keys = [key for key in entries(schema, LIST_KEYS) if isinstance(key, str)]
    found: dict[Item, object] = {}
    for each in value:
        item = _keyed(each, keys, child(schema, "items")) if type_ == "map" else _valued(each)
        if item is None or item in found:
            return None
        found[item] = each
    return found


def _keyed(value: object, keys: Sequence[str], schema: Object) -> Item | None:
    if not isinstance(value, Mapping):
        return None
    named = {key: value.get(key, child(schema, "properties", key).get("default")) for key in keys}
    return None if not keys or None in named.values() else Item(f"k:{_json(named)}")


def _valued(value: object) -> Item | None:
    return None if isinstance(value, Mapping | list | tuple) else Item(f"v:{_json(value)}")


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def below(schema: Object, name: str) -> Object:
    """Return the schema of a field; empty if the schema does not define the field."""
    known = child(schema, "properties").get(name)
    if known is None:
        known = schema.get("additionalProperties")
    return known if isinstance(known, Mapping) else EMPTY


def fields_v1(paths: Collection[Path]) -> dict[str, object]:
    """Return a set of paths in the form that Kubernetes stores in `managedFields[].fieldsV1`."""
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for step in path:
            node = node.setdefault(step.written if isinstance(step, Item) else f"f:{step}", {})
        if isinstance(path[-1], Item) and path[-1].written.startswith("k:"):
            node[_SELF] = {}
    return _sorted(tree)


def _sorted(tree: Mapping[str, Any]) -> dict[str, object]:
    # Each level by itself: sorting all paths at once is one long call.
    return {step: _sorted(tree[step]) for step in sorted(tree)}


def read_fields(tree: Object, path: Path = ()) -> list[Path]:
    """Return the paths of a FieldsV1 tree. Unknown prefixes and levels below DEPTH_MAX are skipped."""
    found: list[Path] = []
    steps = {_step(name): under for name, under in tree.items() if name[:2] in {"f:", "k:", "v:"}}
    if path and (not steps or _SELF in tree):
        found.append(path)
    for step, under in steps.items():
        found += (
            read_fields(child(under), (*path, step))
            if isinstance(under, Mapping) and len(path) < DEPTH_MAX
            else []
        )
    return found


def _step(written: str) -> str | Item:
    return written[2:] if written.startswith("f:") else Item(written)


def shown(path: Path) -> str:
    """Return a path as text for a message: `.spec.ports[port=80].name`."""
    return "".join(_shown(step) if isinstance(step, Item) else f".{step}" for step in path)


def _shown(item: Item) -> str:
    try:
        value = json.loads(item.written[2:])
    except ValueError:
        value = None
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{name}={_json(each)}" for name, each in value.items()) + "]"
    return f"[={_json(value)}]"
