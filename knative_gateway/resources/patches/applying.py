"""The owner of each field (`metadata.managedFields`), and server-side apply with its conflicts.

An apply owns the fields that it names; any other write owns the fields that it changes. An apply that would
change a field of another manager is refused unless it is forced. `fields` defines what a field is.

Spec: Kubernetes, "Server-Side Apply".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from knative_gateway.resources.objects import EMPTY, Object, at, child, drop, entries, put, same, text
from knative_gateway.resources.refusals import Because, Cause, apply_conflict
from knative_gateway.resources.schema.fields import (
    Item,
    Path,
    below,
    fields_v1,
    is_open,
    items,
    leaves,
    own,
    read_fields,
    shown,
)

MANAGED: Final = ("metadata", "managedFields")
APPLY: Final = "Apply"
UPDATE: Final = "Update"
MANAGERS_MAX: Final = 100
"""Managers of one object. Beyond the limit, the oldest entries of plain writes are removed."""
_HERE: Final = object()
"""In a tree of paths: marks a node at which a path ends."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A client that writes, and how: one entry of managedFields. `subresource` is `status` or empty."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Managed:
    """The fields that a manager owns. `api_version` and `time` are from the last write that changed this
    entry.
    """

    fields: frozenset[Path]
    api_version: str
    time: str


Owners = dict[Manager, Managed]


def owners(object_: Object) -> Owners:
    """Return the managers in an object's metadata. Entries that are not valid are skipped."""
    found: Owners = {}
    for entry in entries(object_, *MANAGED):
        manager = Manager(text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"))
        if manager.operation in {APPLY, UPDATE}:
            found[manager] = Managed(
                frozenset(read_fields(child(entry, "fieldsV1"))),
                text(entry, "apiVersion"),
                text(entry, "time"),
            )
    return found


def with_owners(object_: Object, known: Owners) -> dict[str, object]:
    """Return the object with these managers in its metadata."""
    listed = [(manager, managed) for manager, managed in known.items() if managed.fields]
    # The cut removes the first entries. An apply must keep its own: it removes the fields that it no longer
    # names.
    listed.sort(key=lambda each: (each[0].operation == APPLY, each[1].time, each[0].name))
    listed = sorted(listed[-MANAGERS_MAX:], key=lambda each: each[0].operation)
    if not listed:
        return drop(object_, MANAGED)
    written = [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": managed.api_version,
            "time": managed.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields_v1(managed.fields),
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager, managed in listed
    ]
    return put(object_, MANAGED, written)


def updated(
    old: Object, new: Object, manager: Manager, now: str, schema: Object = EMPTY
) -> dict[str, object]:
    """Return `new` with `manager` as the owner of all fields that differ from `old`. A creation has an empty
    `old`.
    """
    # A client may send managedFields to change owners. Without them, the owners of the stored object stay.
    known = owners(new if at(new, *MANAGED) is not None else old)
    status = manager.subresource == "status"
    before, after = leaves(old, schema, status=status), leaves(new, schema, status=status)
    changed = {path for path, value in after.items() if path not in before or not same(before[path], value)}
    lost = changed | (before.keys() - after.keys())
    for other, managed in list(known.items()):
        known[other] = Managed(managed.fields - lost, managed.api_version, managed.time)
    if changed:
        mine = known.get(manager)
        known[manager] = Managed(
            (mine.fields if mine else frozenset()) | changed, text(new, "apiVersion"), now
        )
    return with_owners(new, known)


def apply(
    live: Object, config: Object, manager: Manager, now: str, schema: Object = EMPTY, *, force: bool
) -> dict[str, object]:
    """Return the live object with `config` applied, and with the new managers. An empty `live` means
    creation.

    Fields that this manager applied earlier and no longer names are removed unless another manager owns them
    too.

    Raises:
      StatusError: fields of other managers would change, and `force` is not set (409).
    """
    status = manager.subresource == "status"
    wanted = leaves(config, schema, status=status)
    present = leaves(live, schema, status=status)
    known = owners(live)
    mine = known.pop(manager, None)
    conflicts = _conflicts(wanted, present, known)
    if conflicts and not force:
        raise apply_conflict([_cause(path, other) for path, other in conflicts])
    for path, other in conflicts:
        known[other] = Managed(known[other].fields - {path}, known[other].api_version, known[other].time)
    kept = set(wanted).union(*(managed.fields for managed in known.values()))
    # A list item exists as long as another manager owns one of its fields.
    kept |= {path[:end] for path in kept for end in range(1, len(path)) if isinstance(path[end - 1], Item)}
    gone = (mine.fields if mine else frozenset()) - kept
    result: Object = live or {"apiVersion": config.get("apiVersion"), "kind": config.get("kind")}
    result = _merged(_without(result, _tree(gone), schema), own(config, status=status), schema)
    fields = frozenset(wanted)
    if (
        mine is None
        or mine.fields != fields
        or any(not same(present.get(path), value) for path, value in wanted.items())
    ):
        mine = Managed(fields, text(config, "apiVersion"), now)
    return with_owners(result, {**known, manager: mine})


def _conflicts(
    wanted: Mapping[Path, object], present: Mapping[Path, object], known: Owners
) -> list[tuple[Path, Manager]]:
    """Return the fields of other managers that an apply would change."""
    changed = [path for path, value in wanted.items() if not same(present.get(path), value)]
    return [(path, other) for path in changed for other, managed in known.items() if path in managed.fields]


def _cause(path: Path, other: Manager) -> Cause:
    using = f" using {other.operation}" if other.operation == UPDATE else ""
    return Cause(Because.CONFLICT, shown(path), f'conflict with "{other.name}"{using}')


def _tree(paths: frozenset[Path]) -> dict[object, Any]:
    tree: dict[object, Any] = {}
    for path in paths:
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node[_HERE] = True
    return tree


def _without(value: Any, tree: Mapping[object, Any], schema: Object) -> Any:
    """Return the value without the fields in the tree, and without objects and lists that become empty."""
    listed = items(value, schema)
    if listed is not None:
        within = child(schema, "items")
        rest = {item: _left(each, tree.get(item), within, whole=True) for item, each in listed.items()}
        return [each for each in rest.values() if each is not _HERE]
    if not isinstance(value, Mapping):
        return value
    left = {name: _left(each, tree.get(name), below(schema, name)) for name, each in value.items()}
    return {name: each for name, each in left.items() if each is not _HERE}


def _left(value: Any, tree: Mapping[object, Any] | None, schema: Object, *, whole: bool = False) -> Any:
    """Return what remains of a value, or `_HERE` if nothing remains. With `whole`, a list item is removed
    entirely.
    """
    if tree is None:
        return value
    if _HERE in tree and (whole or not value or not (is_open(value, schema) or items(value, schema))):
        return _HERE
    left = _without(value, tree, schema)
    return _HERE if value and not left and isinstance(left, Mapping | list) and not whole else left


def _merged(live: Any, config: Any, schema: Object) -> Any:
    """Return the live value with `config` merged into it."""
    if is_open(config, schema):
        if not isinstance(live, Mapping):
            return config
        return {
            **live,
            **{name: _merged(live.get(name), value, below(schema, name)) for name, value in config.items()},
        }
    new, present = items(config, schema), items(live if isinstance(live, list | tuple) else [], schema)
    if new is None or present is None:
        return config
    within = child(schema, "items")
    return list(
        {**present, **{item: _merged(present.get(item), each, within) for item, each in new.items()}}.values()
    )
