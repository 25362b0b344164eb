"""A second reading of FILTEX 6.4: an interpreter that walks the tree with every section decoded.

Slow and plain.
"""

# ruff: noqa: PLR0911 - a row for each node

import re
from collections.abc import Mapping
from typing import Any

from amqp_streams.filters.evaluation.arithmetic import calculate, negative, positive
from amqp_streams.filters.evaluation.functions import function
from amqp_streams.filters.language.syntax import (
    And,
    Call,
    Compare,
    Constant,
    Exists,
    Field,
    Holds,
    In,
    IsNull,
    Key,
    Like,
    Negative,
    Node,
    Not,
    Operation,
    Or,
    Positive,
)
from amqp_streams.filters.values import FAILED, KINDS, TESTS, Kind, Truth, compare, simple
from amqp_streams.wire.types import Array, Symbol, Timestamp, Value
from tests.amqp_streams.filters.messages import NOW_MS, Sample

HEADER = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
HEADER_DEFAULTS: dict[str, Value] = {
    "durable": False,
    "priority": 4,
    "first-acquirer": False,
    "delivery-count": 0,
}
PROPERTIES = [
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
]
ABSENT = object()


def holds(node: Node, sample: Sample) -> Truth:
    match node:
        case And(operands=operands):
            truths = [holds(each, sample) for each in operands]
            return False if False in [t for t in truths if t is not FAILED] else _worst(truths, True)
        case Or(operands=operands):
            truths = [holds(each, sample) for each in operands]
            return True if any(t is True for t in truths) else _worst(truths, False)
        case Not(operand=operand):
            return _not(holds(operand, sample))
        case Compare(operator=sign, left=left, right=right):
            return compare(TESTS[sign], value(left, sample), value(right, sample))
        case In(operand=operand, members=members, negated=negated):
            found = value(operand, sample)
            truths = [compare(TESTS["="], found, value(member, sample)) for member in members]
            result = True if any(t is True for t in truths) else _worst(truths, False)
            return _not(result) if negated else result
        case IsNull(operand=operand, negated=negated):
            found = within(operand, sample) if isinstance(operand, Field) else value(operand, sample)
            if found is FAILED:
                return FAILED
            return (found is None or found is ABSENT) is not negated
        case Exists(of=field):
            found = within(field, sample) if field.path else section(field, sample, {})
            return FAILED if found is FAILED else found is not ABSENT
        case Holds(of=of):
            found = value(of, sample)
            return found if found is None or isinstance(found, bool) else FAILED
        case Like(operand=operand, pattern=pattern, escape=escape, negated=negated):
            result = like(
                value(operand, sample), value(pattern, sample), value(escape, sample) if escape else ""
            )
            return _not(result) if negated else result
    raise AssertionError(node)


def _worst(truths: list, otherwise: bool) -> Truth:
    return (
        FAILED if any(t is FAILED for t in truths) else None if any(t is None for t in truths) else otherwise
    )


def _not(truth: Truth) -> Truth:
    return truth if truth is None or truth is FAILED else not truth


def like(found: Any, pattern: Any, escape: Any) -> Truth:
    if pattern is FAILED or escape is FAILED:
        return FAILED
    if pattern is None or escape is None:
        return None
    if KINDS.get(type(pattern)) is not Kind.TEXT or KINDS.get(type(escape)) is not Kind.TEXT:
        return FAILED
    if found is None or KINDS.get(type(found)) is not Kind.TEXT:
        return None if found is None else FAILED
    parts = (
        re.findall(f"{re.escape(escape)}(.)|(.)", pattern, re.DOTALL)
        if escape
        else [("", c) for c in pattern]
    )
    expression = "".join(
        re.escape(plain) if plain else {"%": ".*?", "_": "."}.get(c, re.escape(c)) for plain, c in parts
    )
    return re.fullmatch(expression, found, re.DOTALL) is not None


def value(node: Node, sample: Sample) -> Any:
    match node:
        case Constant(value=constant):
            return constant
        case Field():
            found = within(node, sample)
            if found is ABSENT or found is None:
                return None
            return (
                FAILED if found is FAILED or isinstance(simple(found), list | dict | Array) else simple(found)
            )
        case Negative(operand=operand):
            return negative(value(operand, sample))
        case Positive(operand=operand):
            return positive(value(operand, sample))
        case Operation(operator=sign, left=left, right=right):
            return calculate(sign, value(left, sample), value(right, sample))
        case Call(name="UTC"):
            return Timestamp(NOW_MS)
        case Call(name=name, arguments=arguments):
            known = function(name)
            return known([value(each, sample) for each in arguments]) if known else None
    raise AssertionError(node)


def within(node: Field, sample: Sample) -> Any:
    found = section(node, sample)
    for step in node.path:
        if found is ABSENT or found is FAILED:
            return found
        inner = simple(found)
        if isinstance(step, Key):
            found = inner.get(step.name, ABSENT) if isinstance(inner, dict) else ABSENT
            continue
        at = value(step.at, sample)
        if at is None:
            return ABSENT
        if at is FAILED or KINDS.get(type(at)) is not Kind.NUMBER or not isinstance(at, int):
            return FAILED
        items = inner.items if isinstance(inner, Array) else inner
        found = items[at] if isinstance(items, list | tuple) and 0 <= at < len(items) else ABSENT
    return found


def section(node: Field, sample: Sample, defaults: Mapping[str, Value] = HEADER_DEFAULTS) -> Any:
    if node.section == 0x70:
        found = dict(zip(HEADER, sample.header or [], strict=False)).get(node.name)
        found = defaults.get(node.name) if found is None else found
        return ABSENT if found is None else found
    if node.section == 0x73:
        found = dict(zip(PROPERTIES, sample.properties or [], strict=False)).get(node.name)
        return ABSENT if found is None else found
    if node.section == 0x71:
        return {
            "event-streams-offset": Symbol(f"{sample.number:016d}"),
            "event-streams-timestamp": Timestamp(sample.timestamp_ms),
            "event-streams-source-partition": Symbol("3"),
        }.get(node.name, ABSENT)
    entries = {0x72: sample.message_annotations, 0x74: sample.application_properties, 0x78: sample.footer}[
        node.section
    ]
    return (entries or {}).get(node.name, ABSENT)
