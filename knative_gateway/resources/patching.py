"""Patches of JSON documents: merge patch (RFC 7386) and JSON patch (RFC 6902). Server-side apply: `applying`.

All or nothing: a patch that cannot be carried out whole changes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from knative_gateway.resources.objects import Object, same
from knative_gateway.resources.refusals import StatusError, bad_request

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
STRATEGIC: Final = "application/strategic-merge-patch+json"
OPERATIONS_MAX: Final = 10_000
"""Of one JSON patch, as in Kubernetes."""
DEPTH_MAX: Final = 64


def merge_patch(target: object, patch: object, depth: int = 0) -> object:
    """The document with a merge patch: null removes, objects are merged, all else replaces.

    Raises:
        StatusError: nested too deep (400).
    """
    if not isinstance(patch, Mapping):
        return patch
    if depth > DEPTH_MAX:
        raise bad_request(f"the patch is nested more than {DEPTH_MAX} deep")
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value, depth + 1)
    return merged


def json_patch(target: Object, operations: object) -> object:
    """The document after a list of operations.

    Raises:
        StatusError: an operation that cannot be read (400), that does not fit, or a test that fails (422).
    """
    if not isinstance(operations, list) or not all(isinstance(each, Mapping) for each in operations):
        raise bad_request("a JSON patch is a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise bad_request(f"a JSON patch has at most {OPERATIONS_MAX} operations")
    document: object = target
    for index, operation in enumerate(operations):
        try:
            document = _operate(document, operation)
        except LookupError as error:
            message = f"operation {index} of the JSON patch does not fit: {error.args[0]}"
            raise StatusError(422, "Invalid", message) from None
    return document


def _operate(document: object, operation: Mapping[str, object]) -> object:
    path = _pointer(operation, "path")
    match operation.get("op"):
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            return _remove(document, path)
        case "replace":
            _find(document, path)
            return _add(_remove(document, path), path, _value(operation)) if path else _value(operation)
        case "move":
            source = _pointer(operation, "from")
            if path[: len(source)] == source and len(path) > len(source):
                raise LookupError("a value cannot be moved into itself")
            return _add(_remove(document, source), path, _find(document, source))
        case "copy":
            return _add(document, path, _find(document, _pointer(operation, "from")))
        case "test":
            if not same(_find(document, path), _value(operation)):
                raise LookupError(f"testing {operation['path']} failed")
            return document
        case other:
            raise bad_request(f"a JSON patch has no operation {other!r}"[:200])


def _value(operation: Mapping[str, object]) -> object:
    if "value" not in operation:
        raise bad_request(f"operation {operation.get('op')} of a JSON patch needs a value")
    return operation["value"]


def _pointer(operation: Mapping[str, object], name: str) -> list[str]:
    """The steps of a JSON pointer (RFC 6901)."""
    written = operation.get(name)
    if not isinstance(written, str) or (written and not written.startswith("/")) or re.search("~(?![01])", written):
        raise bad_request(f"operation {operation.get('op')} of a JSON patch: {name} must be a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in written.split("/")[1:]]


def _find(document: object, path: Sequence[str]) -> object:
    for step in path:
        if isinstance(document, Mapping):
            if step not in document:
                raise LookupError(f"there is no {step!r}")
            document = document[step]
        elif isinstance(document, list | tuple):
            document = document[_index(document, step, end=len(document))]
        else:
            raise LookupError(f"there is nothing below {step!r}")
    return document


def _index(array: Sequence[object], step: str, *, end: int) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,9}", step) or int(step) >= end:
        raise LookupError(f"{step!r} is no index of a list of {len(array)}")
    return int(step)


def _add(document: object, path: Sequence[str], value: object) -> object:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, Mapping):
        return {**document, step: _add(_find(document, [step]), rest, value) if rest else value}
    if isinstance(document, list | tuple):
        if not rest:
            index = len(document) if step == "-" else _index(document, step, end=len(document) + 1)
            return [*document[:index], value, *document[index:]]
        index = _index(document, step, end=len(document))
        return [*document[:index], _add(document[index], rest, value), *document[index + 1 :]]
    raise LookupError(f"there is nothing to add {step!r} to")


def _remove(document: object, path: Sequence[str]) -> object:
    if not path:
        return None
    step, rest = path[0], path[1:]
    below = _find(document, [step])
    if isinstance(document, Mapping):
        if rest:
            return {**document, step: _remove(below, rest)}
        return {name: value for name, value in document.items() if name != step}
    assert isinstance(document, list | tuple)  # _find takes steps of these two only
    index = int(step)
    return [*document[:index], *([_remove(below, rest)] if rest else []), *document[index + 1 :]]
