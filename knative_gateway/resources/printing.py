"""Objects as the Table that kubectl prints.

Spec: Kubernetes, meta.k8s.io/v1 Table. Ages have the format of Kubernetes' `duration.HumanDuration`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from knative_gateway.resources.jsonpath import find
from knative_gateway.resources.kinds import Column, Kind
from knative_gateway.resources.objects import Object, child, moment_ms, name_of

UNKNOWN: Final = "<unknown>"
_NAME: Final = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name of the object",
    "priority": 0,
}
_COUNT: Final = ("count(", ")")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 31_536_000}
_AGES: Final = (
    (120, "s", ""),
    (600, "m", "s"),
    (10_800, "m", ""),
    (28_800, "h", "m"),
    (172_800, "h", ""),
    (691_200, "d", "h"),
    (63_072_000, "d", ""),
    (252_288_000, "y", "d"),
)
"""Upper bound of an age in seconds (exclusive), and the two units in which it is shown."""


def table(
    kind: Kind,
    objects: Iterable[Object],
    *,
    now_ms: int,
    version: str = "",
    include: str = "Metadata",
    more: Object | None = None,
) -> dict[str, object]:
    """Return the Table of a list of objects.

    `include` is what the client asked for: Metadata, Object or None. `more` is merged into the Table's
    metadata.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {**({"resourceVersion": version} if version else {}), **(more or {})},
        "columnDefinitions": column_definitions(kind.columns),
        "rows": [row(kind, object_, now_ms=now_ms, include=include) for object_ in objects],
    }


def column_definitions(columns: Sequence[Column]) -> list[dict[str, object]]:
    """Return the column definitions, beginning with the name."""
    heads: list[dict[str, object]] = [dict(_NAME)]
    for column in columns:
        head = {"name": column.name, "type": column.type, "format": column.format}
        heads.append(
            {**head, "description": column.description or f"from {column.path}", "priority": column.priority}
        )
    return heads


def row(kind: Kind, object_: Object, *, now_ms: int, include: str = "Metadata") -> dict[str, object]:
    made: dict[str, object] = {
        "cells": [name_of(object_), *(cell(column, object_, now_ms) for column in kind.columns)]
    }
    if include == "Object":
        made["object"] = object_
    elif include != "None":
        made["object"] = partial(object_)
    return made


def partial(object_: Object) -> dict[str, object]:
    """Return the PartialObjectMetadata of an object: its metadata only."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(child(object_, "metadata")),
    }


def cell(column: Column, object_: Object, now_ms: int) -> object:
    """Return the value of one cell, or None if the object does not have one."""
    if column.path.startswith(_COUNT[0]):
        found = find(object_, column.path[len(_COUNT[0]) : -len(_COUNT[1])])
        return len(found[0]) if found and isinstance(found[0], dict | list) else 0
    # Two paths joined by "/" are not JSONPath: this is our form for a column such as "trigger/orders".
    if "/." in column.path:
        return "/".join(
            str(value) for path in column.path.split("/") for value in find(object_, path)
        ).lower()
    values = [value for value in find(object_, column.path) if value is not None]
    if column.type == "date":
        return age(values[0] if values else None, now_ms)
    if not values:
        return None
    if column.type in {"integer", "number", "boolean"}:
        return values[0]
    return ",".join(_written(value) for value in values)


def _written(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def age(since: object, now_ms: int) -> str:
    """Return the time since a timestamp in kubectl's format, or UNKNOWN if `since` is not a timestamp."""
    moment = moment_ms(since) if isinstance(since, str) else None
    return UNKNOWN if moment is None else human((now_ms - moment) // 1000)


def human(seconds: int) -> str:
    """Return a duration in its one or two largest units, as kubectl shows it."""
    if seconds < -1:
        return "<invalid>"
    for below_s, large, small in _AGES:
        if seconds < below_s:
            return _two(max(seconds, 0), large, small)
    return _two(seconds, "y", "")


def _two(seconds: int, large: str, small: str) -> str:
    count, rest = divmod(seconds, _SECONDS[large])
    lesser = rest // _SECONDS[small] if small else 0
    return f"{count}{large}{lesser}{small}" if lesser else f"{count}{large}"
