"""Reading and rebuilding JSON documents, the form of every Kubernetes object here.

Nothing is changed in place: a function that sets a value returns a new document, which shares the unchanged
parts with the old one.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from knative_gateway.ports import Key

Object = Mapping[str, object]
"""A JSON object. Its values are None, bool, int, float, str, and lists and dicts of these."""

EMPTY: Final[Object] = {}


def at(value: object, *path: str) -> object:
    """Return the value at a path of names, or None if the path does not exist."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def text(value: object, *path: str) -> str:
    """Return the string at a path; empty if the value is missing or is not a string."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: object, *path: str) -> int:
    """Return the integer at a path; 0 if the value is missing or is not an integer."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def child(value: object, *path: str) -> Object:
    """Return the object at a path; empty if the value is missing or is not an object."""
    found = at(value, *path)
    return found if isinstance(found, Mapping) else EMPTY


def entries(value: object, *path: str) -> Sequence[object]:
    """Return the list at a path; empty if the value is missing or is not a list."""
    found = at(value, *path)
    return found if isinstance(found, list | tuple) else ()


def annotation(object_: Object, name: str) -> str | None:
    """Return the value of an annotation, or None."""
    found = at(object_, "metadata", "annotations", name)
    return found if isinstance(found, str) else None


def put(object_: Object, path: Sequence[str], value: object) -> dict[str, object]:
    """Return the document with `value` at a path. Missing objects along the path are created."""
    name, rest = path[0], path[1:]
    return {**object_, name: put(child(object_, name), rest, value) if rest else value}


def drop(object_: Object, path: Sequence[str]) -> dict[str, object]:
    """Return the document without the value at a path."""
    name, rest = path[0], path[1:]
    if name not in object_:
        return dict(object_)
    if rest:
        below = object_[name]
        return {**object_, name: drop(below, rest)} if isinstance(below, Mapping) else dict(object_)
    return {key: value for key, value in object_.items() if key != name}


def walk(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every leaf of nested objects with its path: scalars, lists and empty objects."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from walk(below, (*path, name))
    else:
        yield path, value


def same(one: object, other: object) -> bool:
    """Compare two values as JSON: 1 equals 1.0 and does not equal true."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            same(left, right) for left, right in zip(one, other, strict=True)
        )
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def key_of(object_: Object) -> Key:
    """Return the key under which the store keeps an object."""
    return Key(
        group_of(text(object_, "apiVersion")),
        text(object_, "kind"),
        text(object_, "metadata", "namespace"),
        name_of(object_),
    )


def name_of(object_: Object) -> str:
    return text(object_, "metadata", "name")


def namespace_of(object_: Object) -> str:
    """Return `metadata.namespace`; empty for an object of a cluster-scoped kind."""
    return text(object_, "metadata", "namespace")


def uid_of(object_: Object) -> str:
    return text(object_, "metadata", "uid")


def group_of(api_version: str) -> str:
    """Return the API group in an apiVersion; empty for the core group of Kubernetes (`v1`)."""
    return api_version.rpartition("/")[0]


def timestamp(now_ms: int) -> str:
    """Return a time in the format of Kubernetes: RFC 3339, whole seconds, UTC. `now_ms`: milliseconds since
    1970.
    """
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_ms(written: str) -> int | None:
    """Return the milliseconds since 1970 of an RFC 3339 time with a time zone; None if `written` is
    not one.
    """
    try:
        read = datetime.fromisoformat(written)
    except ValueError:
        return None
    return None if read.tzinfo is None else round(read.timestamp() * 1000)
