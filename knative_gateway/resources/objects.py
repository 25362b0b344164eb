"""Reading and rebuilding JSON documents: the shape of every Kubernetes object here.

Law: nothing is changed in place; who sets a value gets a new document that shares what did not change.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from knative_gateway.ports import Key

Object = Mapping[str, object]
"""A JSON object: values are None, bool, int, float, str, lists and dicts of them."""

EMPTY: Final[Object] = {}


def at(value: object, *path: str) -> object:
    """What is at a path of names; None if it ends early."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def text(value: object, *path: str) -> str:
    """The string at a path; empty if there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: object, *path: str) -> int:
    """The integer at a path; 0 if there is none."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def child(value: object, *path: str) -> Object:
    """The object at a path; empty if there is none."""
    found = at(value, *path)
    return found if isinstance(found, Mapping) else EMPTY


def entries(value: object, *path: str) -> Sequence[object]:
    """The list at a path; empty if there is none."""
    found = at(value, *path)
    return found if isinstance(found, list | tuple) else ()


def annotation(object_: Object, name: str) -> str | None:
    """An annotation's value; None if it is not there."""
    found = at(object_, "metadata", "annotations", name)
    return found if isinstance(found, str) else None


def put(object_: Object, path: Sequence[str], value: object) -> dict[str, object]:
    """The document with another value at a path; objects on the way are made as needed."""
    name, rest = path[0], path[1:]
    return {**object_, name: put(child(object_, name), rest, value) if rest else value}


def drop(object_: Object, path: Sequence[str]) -> dict[str, object]:
    """The document without what is at a path."""
    name, rest = path[0], path[1:]
    if name not in object_:
        return dict(object_)
    if rest:
        below = object_[name]
        return {**object_, name: drop(below, rest)} if isinstance(below, Mapping) else dict(object_)
    return {key: value for key, value in object_.items() if key != name}


def walk(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every leaf of objects in objects: scalars, lists and empty objects, with their paths."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from walk(below, (*path, name))
    else:
        yield path, value


def same(one: object, other: object) -> bool:
    """JSON equality: 1 is 1.0, but never true."""
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
    """Under what name the store keeps an object."""
    return Key(
        group_of(text(object_, "apiVersion")),
        text(object_, "kind"),
        text(object_, "metadata", "namespace"),
        name_of(object_),
    )


def name_of(object_: Object) -> str:
    """`metadata.name`."""
    return text(object_, "metadata", "name")


def namespace_of(object_: Object) -> str:
    """`metadata.namespace`; empty for what has none."""
    return text(object_, "metadata", "namespace")


def uid_of(object_: Object) -> str:
    """`metadata.uid`."""
    return text(object_, "metadata", "uid")


def group_of(api_version: str) -> str:
    """The API group in an apiVersion; empty for the core group of Kubernetes (`v1`)."""
    return api_version.rpartition("/")[0]


def timestamp(now_ms: int) -> str:
    """A moment as Kubernetes writes it: RFC 3339, whole seconds, UTC. `now_ms`: since 1970."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_ms(written: str) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 text with a zone; None if it is none."""
    try:
        read = datetime.fromisoformat(written)
    except ValueError:
        return None
    return None if read.tzinfo is None else round(read.timestamp() * 1000)
