"""What a Trigger's filters may be: one dialect an object, names of attributes, expressions that can be parsed.

Spec: knative-eventing-test-spec, "TriggerFilter"; CloudEvents Subscriptions API, "Filter Dialects".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from knative_gateway.resources.refusals import Because, Cause
from knative_gateway.resources.schema import below

DEPTH_MAX: Final = 16
"""Filters within filters."""
FILTERS_MAX: Final = 1000
"""Of one Trigger, nested ones included."""
EXPRESSION_CHARACTERS_MAX: Final = 16_384
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]{1,128}")
_MAPS: Final = frozenset({"exact", "prefix", "suffix"})
_LISTS: Final = frozenset({"all", "any"})
_EXPRESSIONS: Final = frozenset({"cesql", "sql"})
DIALECTS: Final = _MAPS | _LISTS | _EXPRESSIONS | {"not"}

ExpressionCheck = Callable[[str], str | None]
"""What is wrong with a CloudEvents SQL expression; None if nothing is."""


def nothing_wrong(_expression: str) -> str | None:
    """Where no parser is given, every expression passes."""
    return None


def check_attributes(attributes: object, path: str) -> list[Cause]:
    """The names in `filter.attributes`."""
    return _names(attributes, path) if isinstance(attributes, Mapping) else []


def check_filters(filters: Sequence[object], path: str, wrong_with: ExpressionCheck = nothing_wrong) -> list[Cause]:
    """All that is wrong with `filters`."""
    causes: list[Cause] = []
    count = _check_all(filters, path, wrong_with, causes, 0)
    if count > FILTERS_MAX:
        causes.append(Cause(Because.TOO_LONG, path, f"at most {FILTERS_MAX} filters, nested ones included"))
    return causes


def _check_all(filters: Sequence[object], path: str, wrong_with: ExpressionCheck, causes: list[Cause], depth: int) -> int:
    if depth > DEPTH_MAX:
        causes.append(Cause(Because.INVALID, path, f"filters are nested more than {DEPTH_MAX} deep"))
        return 0
    return sum(_check_one(each, f"{path}[{index}]", wrong_with, causes, depth) for index, each in enumerate(filters))


def _check_one(filter_: object, path: str, wrong_with: ExpressionCheck, causes: list[Cause], depth: int) -> int:
    """Check one filter; how many there are, with those in it."""
    if not isinstance(filter_, Mapping):
        causes.append(Cause(Because.TYPE, path, "a filter is an object with one dialect"))
        return 1
    dialects = [name for name in filter_ if isinstance(name, str)]
    unknown = [name for name in dialects if name not in DIALECTS]
    causes += [Cause(Because.NOT_SUPPORTED, below(path, name), f"supported values: {', '.join(sorted(DIALECTS))}") for name in unknown]
    if len(dialects) > 1:
        causes.append(Cause(Because.INVALID, path, "multiple dialects found, filters can have only one dialect set"))
    inner = 0
    for name, value in filter_.items():
        where = f"{path}.{name}"
        if name in _MAPS:
            causes += _map(value, where)
        elif name in _LISTS and isinstance(value, list | tuple):
            inner += _check_all(value, where, wrong_with, causes, depth + 1)
        elif name == "not":
            inner += _check_all([value], where, wrong_with, causes, depth + 1)
        elif name in _EXPRESSIONS and isinstance(value, str):
            causes += _expression(value, where, wrong_with)
        elif name in DIALECTS:
            causes.append(Cause(Because.TYPE, where, "must be a list of filters" if name in _LISTS else "must be a text"))
    return 1 + inner


def _map(value: object, path: str) -> list[Cause]:
    if not isinstance(value, Mapping):
        return [Cause(Because.TYPE, path, "must be an object of attribute names and texts")]
    causes = _names(value, path)
    for name, text in value.items():
        if not isinstance(text, str) or not text:
            causes.append(Cause(Because.INVALID, below(path, str(name)), "must be a text that is not empty"))
    return causes


def _names(value: Mapping[object, object], path: str) -> list[Cause]:
    words = "an attribute name has lower-case letters and digits only"
    return [
        Cause(Because.INVALID, f"{path}[{name}]", f'invalid key name "{str(name)[:80]}": {words}')
        for name in value
        if not isinstance(name, str) or not _ATTRIBUTE.fullmatch(name)
    ]


def _expression(expression: str, path: str, wrong_with: ExpressionCheck) -> list[Cause]:
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        return [Cause(Because.TOO_LONG, path, f"at most {EXPRESSION_CHARACTERS_MAX} characters")]
    words = wrong_with(expression)
    return [] if words is None else [Cause(Because.INVALID, path, words)]
