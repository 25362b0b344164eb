"""Reads fields of a record and values inside them. Spec: FILTEX 6.4.4.4, 6.4.4.5.

Law: a missing value is NULL, except for EXISTS. Lists and arrays count from 0; a map has no items and a list
no keys.
"""

from collections.abc import Callable
from typing import TypeAlias

from amqp_streams.filters.language.syntax import Expression, Field, Key
from amqp_streams.filters.record import Found, Record, with_default
from amqp_streams.filters.values import (
    FAILED,
    KINDS,
    MISSING,
    Failed,
    Kind,
    Missing,
    Outcome,
    is_compound,
    simple,
)
from amqp_streams.wire.types import Array, Value

Evaluation: TypeAlias = Callable[[Record], Outcome]
Evaluator: TypeAlias = Callable[[Expression], Evaluation]
"""Compiles the expression of an index in a path."""


def field_value(node: Field, evaluation: Evaluator) -> Evaluation:
    """Compile the access to a field whose value is used in an expression.

    Lists, maps and arrays are FAILED (6.4.4.4).
    """
    raw = resolved(node, evaluation) if node.path else with_default(node.section, node.name)

    def value(record: Record) -> Outcome:
        found = raw(record)
        # Hot path: nearly every value is simple.
        if found.__class__ in KINDS:
            return found  # type: ignore[return-value]  # a simple value
        if isinstance(found, Missing) or found is None:
            return None
        if isinstance(found, Failed):
            return FAILED
        plain = simple(found)
        return FAILED if is_compound(plain) else plain

    return value


def resolved(node: Field, evaluation: Evaluator) -> Callable[[Record], Found]:
    """Compile the access to a field, or to a value inside it along its path. The value may have any type."""
    raw = with_default(node.section, node.name)
    if not node.path:
        return raw
    # Compiled once, like everything that does not depend on the record.
    steps = [step.name if isinstance(step, Key) else evaluation(step.at) for step in node.path]

    def found(record: Record) -> Found:
        value = raw(record)
        for step in steps:
            if isinstance(value, Missing | Failed):
                return value
            value = _entry(value, step) if isinstance(step, str) else _item(value, step(record))
        return value

    return found


def _entry(value: Value, key: str) -> Found:
    inner = simple(value)
    return inner.get(key, MISSING) if isinstance(inner, dict) else MISSING


def _item(value: Value, at: Outcome) -> Found:
    if at is None or at is FAILED:
        return MISSING if at is None else FAILED
    if KINDS.get(type(at)) is not Kind.NUMBER or not isinstance(at, int):
        return FAILED
    inner = simple(value)
    items = inner.items if isinstance(inner, Array) else inner
    # Not `items[at]` alone: Python would count a negative index from the end.
    return items[at] if isinstance(items, list | tuple) and 0 <= at < len(items) else MISSING
