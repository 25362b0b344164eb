"""Who set which field: `metadata.managedFields`, and server-side apply with its conflicts. Spec: Kubernetes, "Server-Side Apply".

A field is a leaf of objects in objects: lists are one field, as in structural schemas without list types. An apply owns what it names;
any other write owns what it changes. An apply that would change another manager's field is refused unless it is forced.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from knative_gateway.resources.objects import Object, at, child, drop, entries, put, same, text, walk
from knative_gateway.resources.refusals import Because, Cause, apply_conflict

Path = tuple[str, ...]
MANAGED: Final = ("metadata", "managedFields")
APPLY: Final = "Apply"
UPDATE: Final = "Update"
MANAGERS_MAX: Final = 100
"""Of one object: beyond it the oldest entries of plain writes are forgotten."""
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
class Manager:
    """Who writes, and how: one entry of managedFields. `subresource` is `status` or empty."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Managed:
    """What a manager owns. `api_version` and `time` are those of its last write that changed this."""

    fields: frozenset[Path]
    api_version: str
    time: str


Owners = dict[Manager, Managed]


def owners(object_: Object) -> Owners:
    """The managers of an object, as its metadata says; entries that cannot be read are left out."""
    found: Owners = {}
    for entry in entries(object_, *MANAGED):
        manager = Manager(text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"))
        if manager.operation in {APPLY, UPDATE}:
            found[manager] = Managed(frozenset(_paths(child(entry, "fieldsV1"))), text(entry, "apiVersion"), text(entry, "time"))
    return found


def with_owners(object_: Object, known: Owners) -> dict[str, object]:
    """The object with these managers in its metadata."""
    listed = [(manager, managed) for manager, managed in known.items() if managed.fields]
    listed = sorted(listed, key=lambda each: (each[0].operation, each[1].time, each[0].name))[-MANAGERS_MAX:]
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


def fields_v1(paths: Collection[Path]) -> dict[str, object]:
    """A set of fields as Kubernetes writes it."""
    tree: dict[str, object] = {}
    for path in sorted(paths):
        node = tree
        for name in path:
            below = node.setdefault(f"f:{name}", {})
            assert isinstance(below, dict)
            node = below
    return tree


def _paths(tree: Object, path: Path = ()) -> Sequence[Path]:
    """The leaves of a FieldsV1; what is within lists counts as the list."""
    found: list[Path] = []
    names = {name: below for name, below in tree.items() if name.startswith("f:")}
    if path and not names:
        return [path]
    for name, below in names.items():
        found += _paths(child(below), (*path, name[2:])) if isinstance(below, Mapping) and len(path) < 64 else ()
    return found


def leaves(object_: Object, *, status: bool = False) -> dict[Path, object]:
    """The fields that can be owned, and their values: those of status, or all others."""
    return {
        path: value
        for path, value in walk(object_)
        if path
        and path[0] not in {"apiVersion", "kind"}
        and path[:2] not in _SYSTEM
        and path != ("metadata",)
        and (path[0] == "status") is status
    }


def updated(old: Object, new: Object, manager: Manager, now: str) -> dict[str, object]:
    """The new object, with what changed since the old one owned by its writer. `old` is empty for a creation."""
    known = owners(new if at(new, *MANAGED) is not None else old)
    status = manager.subresource == "status"
    before, after = leaves(old, status=status), leaves(new, status=status)
    changed = {path for path, value in after.items() if path not in before or not same(before[path], value)}
    lost = changed | (before.keys() - after.keys())
    for other, managed in list(known.items()):
        known[other] = Managed(managed.fields - lost, managed.api_version, managed.time)
    if changed:
        mine = known.get(manager)
        known[manager] = Managed((mine.fields if mine else frozenset()) | changed, text(new, "apiVersion"), now)
    return with_owners(new, known)


def apply(live: Object, config: Object, manager: Manager, now: str, *, force: bool) -> dict[str, object]:
    """The live object (empty: there is none yet) with what is applied, and the managers as they are then.

    Fields that this manager applied earlier and no longer names are removed unless somebody else has them too.

    Raises:
        StatusError: fields of other managers would change, and it is not forced (409).
    """
    status = manager.subresource == "status"
    wanted = leaves(config, status=status)
    present = dict(walk(live))
    known = owners(live)
    mine = known.pop(manager, None)
    conflicts = _conflicts(wanted, present, known)
    if conflicts and not force:
        raise apply_conflict([_cause(path, other) for path, other in conflicts])
    for path, other in conflicts:
        known[other] = Managed(known[other].fields - {path}, known[other].api_version, known[other].time)
    kept = set(wanted).union(*(managed.fields for managed in known.values()))
    result = dict(live) if live else {"apiVersion": config.get("apiVersion"), "kind": config.get("kind")}
    for path in (mine.fields if mine else frozenset()) - kept:
        result = _without(result, path)
    for path, value in wanted.items():
        if value != {} or not isinstance(at(result, *path), Mapping):
            result = put(result, path, value)
    fields = frozenset(wanted)
    if mine is None or mine.fields != fields or any(not same(present.get(path), value) for path, value in wanted.items()):
        mine = Managed(fields, text(config, "apiVersion"), now)
    return with_owners(result, {**known, manager: mine})


def _conflicts(wanted: Mapping[Path, object], present: Mapping[Path, object], known: Owners) -> list[tuple[Path, Manager]]:
    """Fields of others that an apply would change."""
    changed = [path for path, value in wanted.items() if not same(present.get(path), value)]
    return [(path, other) for path in changed for other, managed in known.items() if path in managed.fields]


def _cause(path: Path, other: Manager) -> Cause:
    using = f" using {other.operation}" if other.operation == UPDATE else ""
    return Cause(Because.CONFLICT, "." + ".".join(path), f'conflict with "{other.name}"{using}')


def _without(object_: Object, path: Path) -> dict[str, object]:
    """Without a field, and without the objects that are empty then."""
    result = drop(object_, path)
    while len(path) > 1 and at(result, *path[:-1]) == {}:
        path = path[:-1]
        result = drop(result, path)
    return result
