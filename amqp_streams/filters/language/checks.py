"""Checks of a filter text with correct grammar. Spec: FILTEX 2.2, 6.4; Event Streams 5.2.2.

Laws: an attach is refused only for a condition that cannot be evaluated for any message. In the subset of
Event Streams, an element that only FILTEX has is refused.
"""

from collections.abc import Sequence
from typing import TypeVar, overload

from amqp_streams import names
from amqp_streams.filters.language.lexer import Kind, Token
from amqp_streams.filters.language.syntax import (
    And,
    Call,
    Compare,
    Constant,
    Expression,
    Field,
    Holds,
    Like,
    Literally,
    Negative,
    Node,
    Operation,
    Or,
    Positive,
    Predicate,
)
from amqp_streams.filters.like import pattern_parts
from amqp_streams.filters.refusal import FilterError
from amqp_streams.filters.times import date_ms, moment
from amqp_streams.wire.layout import DELIVERY_ANNOTATIONS

_Checked = TypeVar("_Checked", bound=Node)


def check(node: _Checked) -> _Checked:
    """Check `node`, whose operands have been checked.

    Raises:
        FilterError: a constant has the wrong type for its operation.
    """
    match node:
        case Compare(left=left, right=right):
            # Both orders: the field may stand on either side.
            _comparable(left, right)
            _comparable(right, left)
        case Operation(operator=operator, left=left, right=right):
            for operand in (left, right):
                _is_operand(operand, text_too=operator == "+")
        case Negative(operand=operand) | Positive(operand=operand):
            _is_operand(operand, text_too=False)
        case Like():
            _check_pattern(node)
        case Call(name="DATE", arguments=(Constant(value=str(text)) as constant,)) if date_ms(text) is None:
            reason = f"{text[:64]!r} is not a valid ISO 8601 date, for example 2026-01-31T12:00:00Z"
            raise FilterError(reason, constant.position + 1)
        case _:
            pass
    return node


@overload
def check_subset(given: Sequence[Token]) -> None: ...
@overload
def check_subset(given: Predicate) -> None: ...
def check_subset(given: Sequence[Token] | Predicate) -> None:
    """Check a text, first its tokens and then its tree, against the grammar of Event Streams 5.2.2.

    Raises:
        FilterError: the text has an element that only FILTEX allows.
    """
    if isinstance(given, Sequence):
        for token in given:
            if token.text == "(" and token.kind is Kind.MARK:
                raise _beyond("parentheses", token.start)
        return
    match given:
        case And(operands=operands) | Or(operands=operands):
            for operand in operands:
                check_subset(operand)
        case Compare(left=left, right=right):
            for expression in (left, right):
                _check_subset_expression(expression)
        case Holds(of=Constant(value=bool())):
            pass
        case _:
            raise _beyond("conditions other than comparisons, AND, OR, TRUE and FALSE", given.position)


def _check_subset_expression(expression: Expression) -> None:
    match expression:
        case Field(section=section, path=()) if section == DELIVERY_ANNOTATIONS:
            pass
        case Field():
            raise _beyond("fields other than delivery annotations (d.name)", expression.position)
        case Constant(value=bool()) | Constant(value=None):
            raise _beyond("constants other than text and integers", expression.position)
        case Constant(value=str()) | Constant(value=int()):
            pass
        case _:
            raise _beyond("expressions other than fields, text and integers", expression.position)


def _beyond(what: str, position: int) -> FilterError:
    return FilterError(
        f"{names.FILTER_SQL} does not allow {what} (Event Streams 5.2.2): use {names.FILTEX_SQL}",
        position + 1,
    )


def _comparable(field: Expression, other: Expression) -> None:
    """Refuse a constant that is compared with a delivery annotation of the node and has another type.

    Such a condition would never be true.
    """
    if (
        not isinstance(field, Field)
        or field.section != DELIVERY_ANNOTATIONS
        or field.path
        or not isinstance(other, Constant)
    ):
        return
    if field.name in (names.OFFSET, names.SOURCE_PARTITION) and not isinstance(other.value, str):
        reason = f"{field.name} is a symbol: compare it with text in quotes"
        raise FilterError(reason, other.position + 1)
    if field.name == names.TIMESTAMP and not _is_moment(other.value):
        reason = (
            f"{names.TIMESTAMP} is a timestamp: compare it with milliseconds since 1970 or a date of ISO 8601"
            " in quotes"
        )
        raise FilterError(reason, other.position + 1)


def _is_moment(value: Literally) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and moment(value) is not None
    )


def _is_operand(operand: Expression, *, text_too: bool) -> None:
    if isinstance(operand, Constant):
        value = operand.value
        if isinstance(value, bool | bytes) or (isinstance(value, str) and not text_too):
            reason = "a constant of this type cannot be used in arithmetic"
            raise FilterError(reason, operand.position + 1)


def _check_pattern(like: Like) -> None:
    for part in (like.operand, like.pattern, like.escape):
        if isinstance(part, Constant) and part.value is not None and not isinstance(part.value, str):
            reason = "LIKE compares texts"
            raise FilterError(reason, part.position + 1)
    escape = like.escape.value if isinstance(like.escape, Constant) else None
    if isinstance(escape, str) and len(escape) != 1:
        reason = "ESCAPE must be followed by one character"
        raise FilterError(reason, (like.escape or like).position + 1)
    pattern = like.pattern.value if isinstance(like.pattern, Constant) else None
    if isinstance(escape, str) and isinstance(pattern, str) and pattern_parts(pattern, escape) is None:
        reason = "the pattern ends with the escape character"
        raise FilterError(reason, like.pattern.position + 1)
