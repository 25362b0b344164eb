"""Patches of JSON documents: merge patch (RFC 7386) and JSON patch (RFC 6902). Server-side apply: `applying`.

A patch that fails changes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from knative_gateway.resources.documents.bounds import Budget, TooMuchError
from knative_gateway.resources.objects import Object, same
from knative_gateway.resources.refusals import StatusError, bad_request

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
STRATEGIC: Final = "application/strategic-merge-patch+json"
OPERATIONS_MAX: Final = 10_000
"""Operations of one JSON patch, as in Kubernetes."""
ADDED_VALUES_MAX: Final = 50_000
"""Values that all operations of one JSON patch add, replace and copy. Without a limit, copies of copies grow
exponentially, and each operation at the beginning of a long list moves all of its items.
"""
DEPTH_MAX: Final = 64
_SHOWN_CHARACTERS: Final = 200
"""Characters of a path that a message shows."""


def merge_patch(target: object, patch: object, depth: int = 0) -> object:
    """Return the document after a merge patch: null removes a field, objects are merged, other values
    replace.

    Raises:
      StatusError: the patch is nested too deep (400).
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
    """Return the document after a list of operations.

    Raises:
      StatusError: 400 if an operation is malformed, 422 if one does not fit the document or a test fails, 413
      if
        the operations add and copy too much.
    """
    if not isinstance(operations, list) or not all(isinstance(each, Mapping) for each in operations):
        raise bad_request("a JSON patch is a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise bad_request(f"a JSON patch has at most {OPERATIONS_MAX} operations")
    # The operations change the copy in place. Copying for each operation would cost the size of the document
    # 10,000 times.
    document = _copied(target)
    added = Budget(ADDED_VALUES_MAX)
    for index, operation in enumerate(operations):
        try:
            document = _operate(document, operation, added)
        except LookupError as error:
            message = f"operation {index} of the JSON patch cannot be applied: {error.args[0]}"
            raise StatusError(422, "Invalid", message) from None
        except TooMuchError:
            raise StatusError(
                413, "RequestEntityTooLarge", f"operation {index} of the JSON patch adds too much"
            ) from None
    return document


def _operate(document: Any, operation: Mapping[str, object], added: Budget) -> Any:
    """Apply one operation to `document`, which is a private copy and may be changed in place."""
    path = _pointer(operation, "path")
    match operation.get("op"):
        case "add":
            return _add(document, path, _copied(_value(operation), added))
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            return _replace(document, path, _copied(_value(operation), added))
        case "move":
            source = _pointer(operation, "from")
            # RFC 6902, 4.4.
            if path[: len(source)] == source and len(path) > len(source):
                raise LookupError("a value cannot be moved into itself")
            return _add(*_moved(document, source, path))
        case "copy":
            return _add(document, path, _copied(_find(document, _pointer(operation, "from")), added))
        case "test":
            if not same(_find(document, path), _value(operation)):
                raise LookupError(f"testing {_shown(str(operation['path']))} failed")
            return document
        case other:
            raise bad_request(f"unknown operation {other!r} of a JSON patch"[:200])


def _moved(document: Any, source: Sequence[str], path: Sequence[str]) -> tuple[Any, Sequence[str], Any]:
    rest, value = _remove(document, source)
    return rest, path, value


def _copied(value: object, spent_from: Budget | None = None) -> Any:
    if spent_from is not None:
        spent_from.spend(value)
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list | tuple) else value


def _shown(step: str) -> str:
    return step if len(step) <= _SHOWN_CHARACTERS else f"{step[:_SHOWN_CHARACTERS]}…"


def _value(operation: Mapping[str, object]) -> object:
    if "value" not in operation:
        raise bad_request(f"operation {operation.get('op')} of a JSON patch needs a value")
    return operation["value"]


def _pointer(operation: Mapping[str, object], name: str) -> list[str]:
    """Return the steps of a JSON pointer (RFC 6901)."""
    written = operation.get(name)
    if (
        not isinstance(written, str)
        or (written and not written.startswith("/"))
        or re.search("~(?![01])", written)
    ):
        raise bad_request(f"operation {operation.get('op')} of a JSON patch: {name} must be a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in written.split("/")[1:]]


def _find(document: Any, path: Sequence[str]) -> Any:
    for step in path:
        if isinstance(document, dict):
            if step not in document:
                raise LookupError(f"{_shown(step)!r} does not exist")
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(document, step, end=len(document))]
        else:
            raise LookupError(f"{_shown(step)!r} has no members")
    return document


def _index(array: Sequence[object], step: str, *, end: int) -> int:
    # RFC 6901, 4: an index has no leading zeros and no sign.
    if not re.fullmatch("0|[1-9][0-9]{0,9}", step) or int(step) >= end:
        raise LookupError(f"{_shown(step)!r} is not an index of a list of {len(array)}")
    return int(step)


def _add(document: Any, path: Sequence[str], value: object) -> Any:
    if not path:
        return value
    *parent_path, step = path
    parent = _find(document, parent_path)
    if isinstance(parent, dict):
        parent[step] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if step == "-" else _index(parent, step, end=len(parent) + 1), value)
    else:
        raise LookupError(f"{_shown(step)!r} cannot be added: its parent is not an object or a list")
    return document


def _replace(document: Any, path: Sequence[str], value: object) -> Any:
    if not path:
        return value
    *parent_path, step = path
    _find(document, path)
    parent = _find(document, parent_path)
    # `_find` above has checked that the value exists: `replace` must not create it (RFC 6902, 4.3).
    parent[int(step) if isinstance(parent, list) else step] = value
    return document


def _remove(document: Any, path: Sequence[str]) -> tuple[Any, Any]:
    """Return the document without the value at `path`, and that value."""
    if not path:
        return None, document
    *parent_path, step = path
    _find(document, path)
    parent = _find(document, parent_path)
    return document, parent.pop(int(step) if isinstance(parent, list) else step)
