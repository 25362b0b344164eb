"""Validation of a Trigger's filters, with messages for users.

The messages have the wording of Knative's admission. Validation never raises: the result is a list of
problems, and an empty list means that the filters can be compiled.

Spec: Knative Eventing, TriggerFilter; CloudEvents Subscriptions API 3.2.4.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from knative_gateway.filters.cesql.expression import Expression, compile_expression, missing_functions
from knative_gateway.filters.refusal import LIMITS, Limits, ParseError

ATTRIBUTES: Final = "attributes"
MAPS: Final = ("exact", "prefix", "suffix")
LISTS: Final = ("all", "any")
EXPRESSIONS: Final = ("cesql", "sql")
DIALECTS: Final = (*MAPS, *LISTS, "not", *EXPRESSIONS)

_NAME: Final = re.compile(r"[a-z][a-z0-9]*")
_NAME_RULE: Final = "Attribute name must start with a letter and can only contain lowercase alphanumeric"


@dataclass(frozen=True, slots=True)
class Problem:
    """One error. `field` is the path, for example `spec.filters[0].exact[Type]`; `details` may be empty."""

    field: str
    message: str
    details: str = ""

    def __str__(self) -> str:
        return (
            f"{self.message}: {self.field}\n{self.details}"
            if self.details
            else f"{self.message}: {self.field}"
        )


def validate(
    filters: object,
    path: str = "filters",
    *,
    attributes_too: bool = False,
    limits: Limits = LIMITS,
    compiled: Callable[[str], Expression] | None = None,
) -> list[Problem]:
    """Return the problems of `spec.filters`.

    `attributes_too`: also allow the internal dialect that `trigger_filters` creates for `spec.filter`.
    `compiled`: gives the expression of a text for the same limits, for callers that need it afterwards.
    """
    compiled = compiled or partial(compile_expression, limits=limits)
    return list(_Validation(limits, attributes_too, compiled).list(filters, path, 1))


def validate_attributes(attributes: object, path: str = "filter.attributes") -> list[Problem]:
    """Return the problems of `spec.filter.attributes`. An empty value is allowed."""
    return list(_map(attributes, path, empty_too=True))


class _Validation:
    __slots__ = ("_characters", "_compiled", "_count", "_dialects", "_limits")

    def __init__(self, limits: Limits, attributes_too: bool, compiled: Callable[[str], Expression]) -> None:
        self._limits = limits
        self._compiled = compiled
        self._dialects = (*DIALECTS, ATTRIBUTES) if attributes_too else DIALECTS
        self._count = 0
        self._characters = 0

    def list(self, filters: object, path: str, depth: int) -> Iterator[Problem]:
        if filters is None:
            return
        if not isinstance(filters, Sequence) or isinstance(filters, str | bytes):
            yield Problem(path, f"invalid value: {_shown(filters)}", "expected a list of filters")
            return
        for index, each in enumerate(filters):
            yield from self.one(each, f"{path}[{index}]", depth)
            if self._count > self._limits.filters:
                return

    def one(self, filter_: object, path: str, depth: int) -> Iterator[Problem]:
        self._count += 1
        if self._count == self._limits.filters + 1:
            yield Problem(path, "too many filters", f"at most {self._limits.filters} are allowed")
        if self._count > self._limits.filters:
            return
        if not isinstance(filter_, Mapping):
            yield Problem(
                path,
                f"invalid value: {_shown(filter_)}",
                "expected a filter, for example {exact: {type: example}}",
            )
            return
        if depth > self._limits.depth:
            yield Problem(path, "filters nest too deeply", f"at most {self._limits.depth} levels are allowed")
            return
        unknown = [str(name) for name in filter_ if name not in self._dialects]
        for name in unknown:
            yield Problem(
                f"{path}.{name}", f'unknown dialect "{name}"', f"supported are {', '.join(DIALECTS)}"
            )
        found = [name for name in self._dialects if filter_.get(name)]
        if len(found) > 1:
            yield Problem(path, "multiple dialects found, filters can have only one dialect set")
        for name in found:
            yield from self._content(name, filter_[name], f"{path}.{name}", depth)

    def _content(self, name: str, content: object, path: str, depth: int) -> Iterator[Problem]:
        if name in LISTS:
            yield from self.list(content, path, depth + 1)
        elif name == "not":
            yield from self.one(content, path, depth + 1)
        elif name in EXPRESSIONS:
            yield from self._expression(content, path)
        else:
            yield from _map(content, path, empty_too=name == ATTRIBUTES)

    def _expression(self, content: object, path: str) -> Iterator[Problem]:
        if not isinstance(content, str):
            yield Problem(path, f"invalid value: {_shown(content)}", "expected a CloudEvents SQL expression")
            return
        self._characters += len(content)
        most = self._limits.characters_in_all
        if len(content) <= self._limits.characters and self._characters > most:
            yield Problem(
                path, "too many characters", f"at most {most} are allowed in all expressions together"
            )
            return
        try:
            missing = missing_functions(self._compiled(content))
        except ParseError as error:
            yield Problem(path, f"invalid value: {_shown(content)}", str(error))
            return
        if missing:
            yield Problem(
                path,
                f"invalid value: {_shown(content)}",
                f"unknown function {', '.join(missing)} (name/number of arguments)",
            )


def _map(content: object, path: str, *, empty_too: bool) -> Iterator[Problem]:
    if content is None:
        return
    if not isinstance(content, Mapping):
        yield Problem(path, f"invalid value: {_shown(content)}", "expected attributes and their values")
        return
    for name, value in content.items():
        where = f"{path}[{name}]"
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            yield Problem(where, f'invalid key name "{name}"', _NAME_RULE)
        elif not isinstance(value, str):
            yield Problem(where, f"invalid value: {_shown(value)}", "expected a string")
        elif not value and not empty_too:
            yield Problem(where, "invalid value: ", "the value must not be empty")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
