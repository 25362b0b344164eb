"""Compiles a tree to closures that evaluate a record. Spec: FILTEX 6.4.

Law: the tree is compiled once, at attach. A closure decodes only the fields that it reads.
"""

import operator
from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

from amqp_streams import names
from amqp_streams.filters.evaluation.access import Evaluation, field_value, resolved
from amqp_streams.filters.evaluation.arithmetic import calculate, negative, positive
from amqp_streams.filters.evaluation.functions import Function, function
from amqp_streams.filters.language.syntax import (
    And,
    Call,
    Compare,
    Comparison,
    Constant,
    Exists,
    Expression,
    Field,
    Holds,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Operation,
    Operator,
    Or,
    Positive,
    Predicate,
)
from amqp_streams.filters.like import COMPILE_STEPS, PATTERN_MAX, Matcher, matcher
from amqp_streams.filters.record import Record, once
from amqp_streams.filters.times import moment
from amqp_streams.filters.values import (
    FAILED,
    INTEGERS,
    KINDS,
    MISSING,
    TESTS,
    Kind,
    Outcome,
    Truth,
    compare,
    disjunction,
    negation,
)
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS
from amqp_streams.wire.types import Symbol, Timestamp

Condition: TypeAlias = Callable[[Record], Truth]

FLIPPED: Final[dict[Comparison, Comparison]] = {
    "=": "=",
    "<>": "<>",
    ">": "<",
    ">=": "<=",
    "<": ">",
    "<=": ">=",
}
"""For each comparison, the one to use after its sides were swapped."""


def condition(node: Predicate, unlike: Truth) -> Condition:  # noqa: PLR0911 - a row a node
    """Compile a predicate to a function that returns whether it is true for a record.

    `unlike`: the result of comparing values of different types.
    """
    match node:
        case Compare():
            return _comparison(node, unlike)
        case And(operands=operands):
            return _all([condition(operand, unlike) for operand in operands])
        case Or(operands=operands):
            return _any([condition(operand, unlike) for operand in operands])
        case Not(operand=operand):
            inner = condition(operand, unlike)
            return lambda record: negation(inner(record))
        case In():
            return _negatable(_membership(node, unlike), node.negated)
        case Like():
            return _negatable(_likeness(node), node.negated)
        case IsNull():
            return _negatable(_nullness(node), node.negated)
        case Exists(of=of):
            return _existence(of)
        case Holds(of=of):
            value = evaluation(of)
            return lambda record: _as_truth(value(record))
        case _:
            assert_never(node)


def evaluation(node: Expression) -> Evaluation:  # noqa: PLR0911 - a row a node
    """Compile an expression to a function that returns its value for a record.

    Lists, maps and arrays are FAILED (6.4.4.4).
    """
    match node:
        case Constant(value=value):
            return lambda _record: value
        case Field():
            return field_value(node, evaluation)
        case Negative(operand=operand):
            inner = evaluation(operand)
            return lambda record: negative(inner(record))
        case Positive(operand=operand):
            inner = evaluation(operand)
            return lambda record: positive(inner(record))
        case Operation(operator=sign, left=left, right=right):
            return _calculation(sign, evaluation(left), evaluation(right))
        case Call(name="UTC"):
            return lambda record: None if record.now_ms is None else Timestamp(record.now_ms)
        case Call(name=name, arguments=arguments):
            called = function(name)
            if called is None:
                return lambda _record: None
            return _called(called, [evaluation(argument) for argument in arguments])
        case _:
            assert_never(node)


def _calculation(sign: Operator, one: Evaluation, other: Evaluation) -> Evaluation:
    # Only `+` can have texts as operands, whose length counts as work.
    if sign != "+":
        return lambda record: calculate(sign, one(record), other(record))

    def total(record: Record) -> Outcome:
        left, right = one(record), other(record)
        return calculate(sign, left, right) if _affordable(record, left, right) else FAILED

    return total


def _called(known: Function, values: list[Evaluation]) -> Evaluation:
    def result(record: Record) -> Outcome:
        arguments = [value(record) for value in values]
        return known(arguments) if _affordable(record, *arguments) else FAILED

    return result


def _affordable(record: Record, *values: Outcome) -> bool:
    """Whether the record's work budget allows examining all of these texts."""
    return record.spend(sum(len(value) for value in values if isinstance(value, str | bytes)))


def _all(conditions: list[Condition]) -> Condition:
    def holds(record: Record) -> Truth:
        result: Truth = True
        for each in conditions:
            truth = each(record)
            if truth is False:
                return False
            # The loop continues: a later FALSE decides more than an unknown.
            if truth is not True and result is not FAILED:
                result = truth
        return result

    return holds


def _any(conditions: list[Condition]) -> Condition:
    def holds(record: Record) -> Truth:
        result: Truth = False
        for each in conditions:
            truth = each(record)
            if truth is True:
                return True
            # The loop continues: a later TRUE decides more than an unknown.
            if truth is not False and result is not FAILED:
                result = truth
        return result

    return holds


def _negatable(inner: Condition, negated: bool) -> Condition:
    return (lambda record: negation(inner(record))) if negated else inner


def _as_truth(value: Outcome) -> Truth:
    return value if value is None or value is FAILED or isinstance(value, bool) else FAILED


# -- comparisons


def _comparison(node: Compare, unlike: Truth) -> Condition:
    left, right, sign = node.left, node.right, node.operator
    if isinstance(left, Constant) and not isinstance(right, Constant):
        # One form for the special cases below.
        left, right, sign = right, left, FLIPPED[sign]
    if isinstance(left, Field) and isinstance(right, Constant) and isinstance(right.value, str):
        if is_annotation(left, names.OFFSET) and right.value in (names.OFFSET_EARLIEST, names.OFFSET_LATEST):
            return _reserved_offset(sign, right.value)
        return _with_text(sign, evaluation(left), right.value, unlike)
    if isinstance(right, Constant) and type(right.value) is int:
        return _with_integer(sign, evaluation(left), right.value, unlike)
    test, one, other = TESTS[sign], evaluation(left), evaluation(right)

    def holds(record: Record) -> Truth:
        found, wanted = one(record), other(record)
        return compare(test, found, wanted, unlike) if _affordable(record, found, wanted) else FAILED

    return holds


def is_annotation(node: Expression, name: str) -> bool:
    """Whether `node` is the delivery annotation `name` itself."""
    return (
        isinstance(node, Field)
        and node.section == DELIVERY_ANNOTATIONS
        and node.name == name
        and not node.path
    )


def _with_text(sign: Comparison, value: Evaluation, text: str, unlike: Truth) -> Condition:
    test = TESTS[sign]

    def holds(record: Record) -> Truth:
        found = value(record)
        # Hot path: the types are known, so nothing is looked up.
        if found.__class__ is str or found.__class__ is Symbol:
            return test(found, text)
        return compare(test, found, text, unlike)

    return holds


def _with_integer(sign: Comparison, value: Evaluation, number: int, unlike: Truth) -> Condition:
    test = TESTS[sign]

    def holds(record: Record) -> Truth:
        found = value(record)
        # Hot path: the types are known, so nothing is looked up.
        if found.__class__ in INTEGERS:
            return test(found, number)
        return compare(test, found, number, unlike)

    return holds


def _reserved_offset(sign: Comparison, word: str) -> Condition:
    """`@earliest` is smaller than each offset, `@latest` greater than each at the attach.

    Neither equals one (5.1.1).
    """
    if word == names.OFFSET_EARLIEST:
        greater = sign in (">", ">=", "<>")
        return lambda _record: greater
    match sign:
        case ">" | ">=":
            return lambda record: record.number >= record.latest
        case "<" | "<=":
            return lambda record: record.number < record.latest
        case _:
            return lambda _record: sign == "<>"


# -- other predicates


def _membership(node: In, unlike: Truth) -> Condition:
    value = evaluation(node.operand)
    texts = {
        member.value
        for member in node.members
        if isinstance(member, Constant) and isinstance(member.value, str)
    }
    if len(texts) == len(node.members) and not any(moment(text) is not None for text in texts):
        # A set instead of a comparison for each member. Dates are excluded: they also equal timestamps.
        return _one_of(value, frozenset(texts), unlike)
    members = [evaluation(member) for member in node.members]

    def holds(record: Record) -> Truth:
        found = value(record)
        result: Truth = False
        for member in members:
            if not _affordable(record, found):
                return FAILED
            result = disjunction(result, compare(operator.eq, found, member(record), unlike))
            if result is True:
                return True
        return result

    return holds


def _one_of(value: Evaluation, texts: frozenset[str], unlike: Truth) -> Condition:
    def holds(record: Record) -> Truth:
        found = value(record)
        if KINDS.get(type(found)) is Kind.TEXT:
            return found in texts
        return None if found is None else FAILED if found is FAILED else unlike

    return holds


def _likeness(node: Like) -> Condition:
    value = evaluation(node.operand)
    if isinstance(node.pattern, Constant) and (node.escape is None or isinstance(node.escape, Constant)):
        escape = node.escape.value if node.escape else ""
        if node.pattern.value is None or escape is None:
            return lambda _record: None
        assert isinstance(node.pattern.value, str)
        # The pattern is constant, so it is compiled once and not for each record.
        fixed = matcher(node.pattern.value, str(escape) or None)
        assert fixed is not None, "checked with the text"
        return lambda record: _matches(record, value(record), fixed)
    pattern, escaping = evaluation(node.pattern), evaluation(node.escape) if node.escape else None

    def holds(record: Record) -> Truth:
        given = pattern(record), escaping(record) if escaping else ""
        if FAILED in given:
            return FAILED
        if None in given:
            return None
        if any(KINDS.get(type(part)) is not Kind.TEXT for part in given):
            return FAILED
        # The pattern comes from the message, and so does the cost of compiling it.
        written, escape = str(given[0]), str(given[1])
        if (
            len(written) > PATTERN_MAX
            or (escaping and len(escape) != 1)
            or not record.spend(len(written) * COMPILE_STEPS)
        ):
            return FAILED
        made = matcher(written, escape or None)
        return FAILED if made is None else _matches(record, value(record), made)

    return holds


def _matches(record: Record, found: Outcome, fixed: Matcher) -> Truth:
    if KINDS.get(type(found)) is Kind.TEXT:
        text = str(found)
        return fixed.matches(text) if record.spend(fixed.steps(text)) else FAILED
    return None if found is None else FAILED


def _nullness(node: IsNull) -> Condition:
    if isinstance(node.operand, Field):  # also of a list, map or array
        raw = resolved(node.operand, evaluation)
        return lambda record: (
            FAILED if (found := raw(record)) is FAILED else found is None or found is MISSING
        )
    value = evaluation(node.operand)
    return lambda record: FAILED if (found := value(record)) is FAILED else found is None


def _existence(of: Field) -> Condition:
    raw = resolved(of, evaluation) if of.path else once(of.section, of.name)
    return lambda record: FAILED if (found := raw(record)) is FAILED else found is not MISSING
