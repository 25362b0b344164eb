"""Checking a document against the OpenAPI v3 schema of its kind: types, bounds, required and unknown fields,
defaults.

The same code checks the built-in kinds and the kinds that stored CustomResourceDefinitions declare. Fields
that the schema does not define are removed (pruned) and reported, unless the schema has
`x-kubernetes-preserve-unknown-fields`.

Spec: Kubernetes, "structural schemas".
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import re2

from knative_gateway.resources.objects import Object, at, child, entries, moment_ms, same, text
from knative_gateway.resources.refusals import Because, Cause
from knative_gateway.resources.schema.fields import LIST_TYPE
from knative_gateway.resources.schema.fields import items as items_of

DEPTH_MAX: Final = 64
"""Levels of nested objects. Deeper documents are refused, because the check is recursive."""
CAUSES_MAX: Final = 100
"""Errors that are reported for one document."""

KEEP_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_CHOICES: Final = frozenset({"enum", "allOf", "anyOf", "oneOf", "not"})
_INTEGER_BITS: Final = {"int32": 31, "int64": 63}
_SHOWN_BITS_MAX: Final = 256
_WORDS: Final = {
    Mapping: "object",
    list: "array",
    tuple: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
}


@dataclass(slots=True)
class Checked:
    """The result of a check: the document without unknown fields, the errors, and the paths of the unknown
    fields.
    """

    value: object = None
    causes: list[Cause] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add(self, because: Because, path: str, words: str) -> None:
        """Report an error. After CAUSES_MAX errors, further errors are dropped."""
        if len(self.causes) < CAUSES_MAX:
            self.causes.append(Cause(because, path, words))


def check(schema: Object, value: object, path: str = "") -> Checked:
    """Check `value`, remove unknown fields and fill in the schema's defaults.

    `value` itself is not changed.
    """
    checked = Checked()
    checked.value = _check(schema, value, path, checked, 0)
    return checked


def below(path: str, name: str) -> str:
    """Return the path of a field in an object, with the name in brackets if it contains dots or other
    symbols.
    """
    if not re.fullmatch(r"[A-Za-z0-9_$-]+", name):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def _check(schema: Object, value: object, path: str, checked: Checked, depth: int) -> object:
    if depth > DEPTH_MAX:
        checked.add(Because.INVALID, path, f"objects are nested more than {DEPTH_MAX} deep")
        return None
    if value is None:
        if not schema.get("nullable"):
            checked.add(Because.TYPE, path, f"null: expected {schema.get('type', 'a value')}")
        return None
    if not _is_of_type(schema, value):
        expected = "integer or string" if schema.get(INT_OR_STRING) else schema["type"]
        checked.add(Because.TYPE, path, f"{shown(value)}: must be of type {expected}, not {_word(value)}")
        return value
    kept: object = value
    if isinstance(value, str):
        _check_string(schema, value, path, checked)
    elif isinstance(value, Mapping):
        kept = _check_object(schema, value, path, checked, depth)
    elif isinstance(value, list | tuple):
        kept = _check_array(schema, value, path, checked, depth)
    elif not isinstance(value, bool) and isinstance(value, int | float):
        _check_number(schema, value, path, checked)
    if not _CHOICES.isdisjoint(schema):
        _check_choices(schema, value, path, checked, depth)
    return kept


def _is_of_type(schema: Object, value: object) -> bool:
    if schema.get(INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    types = _TYPES.get(text(schema, "type"))
    if types is None:
        return True
    if isinstance(value, bool):
        return bool in types
    # JSON does not distinguish 1.0 from 1.
    if isinstance(value, float) and value.is_integer() and int in types:
        return True
    return isinstance(value, types)


def _word(value: object) -> str:
    return next(
        (
            word
            for type_, word in _WORDS.items()
            if isinstance(value, type_) and (type_ is bool or not isinstance(value, bool))
        ),
        "null",
    )


def shown(value: object) -> str:
    """Return a value as text for a message: shortened, and quoted if it is a string."""
    if isinstance(value, str):
        return f'"{value[:80]}…"' if len(value) > 80 else f'"{value}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX:
        # Python raises ValueError when it converts an integer of more than 4300 digits to text
        return "the integer"
    return _word(value) if isinstance(value, Mapping | list | tuple) else str(value)


def _check_object(
    schema: Object, value: Mapping[str, object], path: str, checked: Checked, depth: int
) -> dict[str, object]:
    properties = child(schema, "properties")
    others = schema.get("additionalProperties")
    keep = (
        bool(schema.get(KEEP_UNKNOWN))
        or (others is True)
        or (not properties and others is None and "type" not in schema)
    )
    kept: dict[str, object] = {}
    for name, each in value.items():
        known = properties.get(name)
        where = below(path, name)
        if isinstance(known, Mapping):
            if each is None and not known.get("nullable"):
                continue  # as in Kubernetes: where null is not allowed, it means that the field is absent
            kept[name] = _check(known, each, where, checked, depth + 1)
        elif isinstance(others, Mapping):
            kept[name] = _check(others, each, where, checked, depth + 1)
        elif keep:
            kept[name] = each
        else:
            # Reported apart from the errors: the request decides whether an unknown field is an error, a
            # warning, or ignored.
            checked.unknown.append(where)
    for name, known in properties.items():
        if name not in kept and isinstance(known, Mapping) and "default" in known:
            kept[name] = _check(known, known["default"], below(path, name), checked, depth + 1)
    for needed in entries(schema, "required"):
        if isinstance(needed, str) and needed not in kept:
            checked.add(Because.REQUIRED, below(path, needed), "")
    _check_count(schema, len(value), ("minProperties", "maxProperties"), path, checked)
    return kept


def _check_array(
    schema: Object, value: Sequence[object], path: str, checked: Checked, depth: int
) -> list[object]:
    _check_count(schema, len(value), ("minItems", "maxItems"), path, checked)
    items = schema.get("items")
    kept = (
        [_check(items, each, f"{path}[{index}]", checked, depth + 1) for index, each in enumerate(value)]
        if isinstance(items, Mapping)
        else value
    )
    if schema.get("uniqueItems") and len({json.dumps(each, sort_keys=True) for each in value}) < len(value):
        checked.add(Because.INVALID, path, "items must be unique")
    kept = list(kept)
    # A set of objects is allowed by the schema but compared as a whole, so its items have no keys to check.
    whole = schema.get(LIST_TYPE) == "map" or not any(isinstance(each, Mapping) for each in kept)
    if schema.get(LIST_TYPE) in {"map", "set"} and whole and items_of(kept, schema) is None:
        checked.add(Because.INVALID, path, "every item must have its keys, and no keys may be repeated")
    return kept


def _check_count(schema: Object, count: int, bounds: tuple[str, str], path: str, checked: Checked) -> None:
    lowest, highest = (schema.get(bound) for bound in bounds)
    if isinstance(lowest, int) and count < lowest:
        checked.add(Because.INVALID, path, f"must have at least {lowest} items")
    if isinstance(highest, int) and count > highest:
        checked.add(Because.TOO_LONG, path, f"must have at most {highest} items")


def _check_string(schema: Object, value: str, path: str, checked: Checked) -> None:
    lowest, highest, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if isinstance(lowest, int) and len(value) < lowest:
        checked.add(Because.INVALID, path, f"{shown(value)}: must be at least {lowest} characters long")
    if isinstance(highest, int) and len(value) > highest:
        checked.add(Because.TOO_LONG, path, f"must have at most {highest} characters")
    if isinstance(pattern, str) and not _matches(pattern, value):
        checked.add(Because.INVALID, path, f"{shown(value)}: must match {pattern!r}")
    if schema.get("format") == "date-time" and moment_ms(value) is None:
        checked.add(Because.INVALID, path, f"{shown(value)}: must be an RFC 3339 time")


def _matches(pattern: str, value: str) -> bool:
    compiled = _compiled(pattern)
    try:
        return compiled is None or compiled.search(value) is not None
    except UnicodeEncodeError:  # half of a surrogate pair is not a character
        return False


@lru_cache(256)
def _compiled(pattern: str) -> Any:
    """Compile a pattern with RE2, as Kubernetes does. Returns None if the pattern is not valid.

    RE2 matches in linear time, so a pattern of a stored definition cannot block the event loop.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError):
        return None  # the author of an object cannot repair the schema's pattern, so the pattern is ignored


def _check_number(schema: Object, value: float, path: str, checked: Checked) -> None:
    # Integers without a format are 64-bit, as in Kubernetes. Go clients could not decode larger ones.
    bits = _INTEGER_BITS.get(text(schema, "format")) or (63 if schema.get("type") == "integer" else None)
    if bits is not None and not -(1 << bits) <= value < 1 << bits:
        checked.add(Because.INVALID, path, f"{shown(value)}: must fit in {schema.get('format', 'int64')}")
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if isinstance(lowest, int | float) and (
        value < lowest or (schema.get("exclusiveMinimum") is True and value == lowest)
    ):
        checked.add(
            Because.INVALID,
            path,
            f"{shown(value)}: must be"
            f" {'greater than' if schema.get('exclusiveMinimum') is True else 'at least'} {lowest}",
        )
    if isinstance(highest, int | float) and (
        value > highest or (schema.get("exclusiveMaximum") is True and value == highest)
    ):
        checked.add(
            Because.INVALID,
            path,
            f"{shown(value)}: must be {'less than' if schema.get('exclusiveMaximum') is True else 'at most'}"
            f" {highest}",
        )
    step = schema.get("multipleOf")
    if isinstance(step, int) and step > 0 and value % step:
        checked.add(Because.INVALID, path, f"{shown(value)}: must be a multiple of {step}")


def _check_choices(schema: Object, value: object, path: str, checked: Checked, depth: int) -> None:
    allowed = schema.get("enum")
    if isinstance(allowed, list | tuple) and not any(same(value, each) for each in allowed):
        checked.add(
            Because.NOT_SUPPORTED,
            path,
            f"{shown(value)}: supported values: {', '.join(shown(each) for each in allowed)}",
        )
    for each in _schemas(schema, "allOf"):
        checked.causes += _judged(each, value, path, depth)
    options = _schemas(schema, "anyOf")
    if options and all(_judged(each, value, path, depth) for each in options):
        checked.add(Because.INVALID, path, "must validate at least one schema of anyOf")
    options = _schemas(schema, "oneOf")
    if options and sum(not _judged(each, value, path, depth) for each in options) != 1:
        checked.add(Because.INVALID, path, "must validate one and only one schema of oneOf")
    refused = at(schema, "not")
    if isinstance(refused, Mapping) and not _judged(refused, value, path, depth):
        checked.add(Because.INVALID, path, "must not validate the schema of not")


def _schemas(schema: Object, name: str) -> list[Object]:
    return [each for each in entries(schema, name) if isinstance(each, Mapping)]


def _judged(schema: Object, value: object, path: str, depth: int) -> list[Cause]:
    """Return the errors by a schema of allOf, anyOf, oneOf or not.

    Such a schema only validates: fields that it does not define are not unknown because of that.
    """
    checked = Checked()
    _check(schema, value, path, checked, depth + 1)
    return checked.causes


def defined(schema: Object, path: Sequence[str]) -> Iterator[Object]:
    """Yield the schemas along a path of names, until a name is not defined."""
    for name in path:
        found = at(schema, "properties", name)
        if not isinstance(found, Mapping):
            return
        schema = found
        yield schema


def is_known(schema: Object, path: Sequence[str]) -> bool:
    """Return whether the schema allows a field at this path."""
    along = [schema, *defined(schema, path)]
    last = along[-1]
    return len(along) > len(path) or bool(last.get(KEEP_UNKNOWN)) or bool(last.get("additionalProperties"))
