"""Strategic merge patches of core kinds, which kubectl sends for ConfigMaps, Namespaces and Services.

They are merge patches with directives; some lists are merged by a key.

Spec: Kubernetes, "strategic merge patch".
"""

from collections.abc import Mapping
from typing import Final

from knative_gateway.resources.objects import same
from knative_gateway.resources.refusals import bad_request

MERGE_KEYS: Final = {"ports": "port", "ownerReferences": "uid", "conditions": "type"}
"""The lists of objects that are merged, and the key that identifies an object in each of them."""
PRIMITIVE_LISTS: Final = frozenset({"finalizers"})
"""The lists of texts that are merged as sets."""
DEPTH_MAX: Final = 64
_PATCH: Final = "$patch"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_RETAIN: Final = "$retainKeys"


def strategic_patch(target: object, patch: object, depth: int = 0) -> object:
    """Return the document after a strategic merge patch.

    Raises:
      StatusError: the patch is nested too deep, or has an unknown directive (400).
    """
    if not isinstance(patch, Mapping):
        return patch
    if depth > DEPTH_MAX:
        raise bad_request(f"the patch is nested more than {DEPTH_MAX} deep")
    merged = dict(target) if isinstance(target, Mapping) else {}
    match patch.get(_PATCH, "merge"):
        case "replace":
            return {name: value for name, value in patch.items() if name != _PATCH}
        case "delete":
            return {}
        case "merge":
            pass
        case other:
            raise bad_request(f"unknown directive $patch: {other!r}"[:200])
    retained = patch.get(_RETAIN)
    if isinstance(retained, list):
        merged = {name: value for name, value in merged.items() if name in retained}
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            merged[field] = [each for each in _list(merged.get(field)) if each not in _list(value)]
        elif not name.startswith("$"):
            _set(merged, name, value, depth)
    for name, value in patch.items():
        # In a second pass: the order applies to the list after all of its changes.
        if name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            merged[field] = _ordered(_list(merged.get(field)), _list(value), MERGE_KEYS.get(field))
    return merged


def _set(merged: dict[str, object], name: str, value: object, depth: int) -> None:
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, list) and name in MERGE_KEYS:
        merged[name] = _merged_list(_list(merged.get(name)), value, MERGE_KEYS[name], depth)
    elif isinstance(value, list) and name in PRIMITIVE_LISTS:
        present = _list(merged.get(name))
        merged[name] = [*present, *(each for each in value if each not in present)]
    else:
        merged[name] = strategic_patch(merged.get(name), value, depth + 1)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _merged_list(present: list[object], patches: list[object], key: str, depth: int) -> list[object]:
    result = list(present)
    for patch in patches:
        if not isinstance(patch, Mapping):
            raise bad_request("a list that is merged has objects only")
        if patch.get(_PATCH) == "replace" and key not in patch:
            return [each for each in patches if each is not patch]
        found = [index for index, each in enumerate(result) if _key(each, key) == patch.get(key)]
        if patch.get(_PATCH) == "delete":
            result = [each for index, each in enumerate(result) if index not in found]
        elif found:
            result[found[0]] = strategic_patch(result[found[0]], patch, depth + 1)
        else:
            result.append(strategic_patch({}, patch, depth + 1))
    return result


def _key(value: object, key: str | None) -> object:
    return value.get(key) if key is not None and isinstance(value, Mapping) else value


def _ordered(values: list[object], order: list[object], key: str | None) -> list[object]:
    """Sort values by `order`; values that `order` does not name follow in their old order."""
    wanted = [_key(each, key) for each in order]

    def rank(value: object) -> int:
        return next((index for index, each in enumerate(wanted) if same(each, _key(value, key))), len(wanted))

    return sorted(values, key=rank)
