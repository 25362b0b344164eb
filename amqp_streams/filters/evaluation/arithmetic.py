"""Arithmetic of filter values. Spec: FILTEX 6.3.1, 6.4.4.1.

Laws: integers are exact within 64 bits, signed or unsigned. A result that fits no type, and a division by
zero, are not-a-number, not a failure. If one operand is a float, the result is a float; otherwise, if one is
a decimal, the result is a decimal. A division of integers with a remainder gives a decimal (6.3); in JMS
selectors the fraction is dropped as in Java. A remainder has the sign of the dividend. A sum or difference
with a timestamp is a timestamp, and compares as one.
"""

from decimal import Context, Decimal, localcontext
from math import inf, isinf, isnan, nan
from typing import Final

from amqp_streams.filters.language.syntax import Operator
from amqp_streams.filters.values import FAILED, INTEGERS, KINDS, TEXT_MAX, Kind, Outcome
from amqp_streams.wire.types import LONG_MAX, LONG_MIN, Timestamp

_ULONG_MAX: Final = (1 << 64) - 1
_DECIMALS: Final = Context(prec=34, Emax=6144, Emin=-6143, traps=[])
_NUMERIC: Final = frozenset((Kind.NUMBER, Kind.TIME))


def calculate(operator: Operator, left: Outcome, right: Outcome) -> Outcome:  # noqa: PLR0911 - one for each pair of types
    """Return `left operator right`.

    NULL if an operand is NULL, FAILED if the types do not allow the operation.
    """
    if left is FAILED or right is FAILED or left is None or right is None:
        return FAILED if left is FAILED or right is FAILED else None
    # The usual case comes first, before the table of kinds.
    if type(left) in INTEGERS and type(right) in INTEGERS and operator != "%":
        return _integers(operator, int(left), int(right), moment=False)  # type: ignore[arg-type]  # integers both
    kinds = KINDS.get(type(left)), KINDS.get(type(right))
    if kinds == (Kind.TEXT, Kind.TEXT) and operator == "+":
        text = f"{left!s}{right!s}"
        # Repeated concatenation could otherwise create a text of any length.
        return text if len(text) <= TEXT_MAX else FAILED
    if kinds[0] not in _NUMERIC or kinds[1] not in _NUMERIC:
        return FAILED
    assert isinstance(left, int | float | Decimal)
    assert isinstance(right, int | float | Decimal)
    if operator == "%":
        return _remainder(left, right)
    if isinstance(left, float) or isinstance(right, float):
        return _floats(operator, float(left), float(right))
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _decimals(operator, Decimal(left), Decimal(right))
    return _integers(operator, int(left), int(right), moment=Kind.TIME in kinds and operator in "+-")


def negative(operand: Outcome) -> Outcome:
    """Return `-operand`; FAILED if it is not a number."""
    if operand is None or operand is FAILED:
        return operand
    if KINDS.get(type(operand)) is not Kind.NUMBER:
        return FAILED
    assert isinstance(operand, int | float | Decimal)
    if isinstance(operand, int):
        return _fitting(-int(operand))
    # `-Decimal` would round to the precision of the thread's context.
    return -float(operand) if isinstance(operand, float) else operand.copy_negate()


def positive(operand: Outcome) -> Outcome:
    """Return `operand`; FAILED if it is not a number."""
    known = operand is None or operand is FAILED or KINDS.get(type(operand)) is Kind.NUMBER
    return operand if known else FAILED


def _integers(operator: Operator, left: int, right: int, *, moment: bool) -> Outcome:
    match operator:
        case "+":
            number = left + right
        case "-":
            number = left - right
        case "*":
            number = left * right
        case _:
            if right == 0:
                return nan
            if operator != "div" and left % right:
                return _decimals(operator, Decimal(left), Decimal(right))
            # Integers in Python have no limit, so no operation can overflow before the check below.
            number = _quotient(left, right)
    if moment:
        return Timestamp(number) if LONG_MIN <= number <= LONG_MAX else nan
    return _fitting(number)


def _quotient(left: int, right: int) -> int:
    # Python's `//` rounds down; the standard and Java round towards zero.
    number = abs(left) // abs(right)
    return number if (left < 0) == (right < 0) else -number


def _fitting(number: int) -> int | float:
    return number if LONG_MIN <= number <= _ULONG_MAX else nan


def _floats(operator: Operator, left: float, right: float) -> float:
    match operator:
        case "+":
            number = left + right
        case "-":
            number = left - right
        case "*":
            number = left * right
        case _:
            if right == 0:
                return nan
            number = left / right
    # An infinity that an operand has is a value; one that the operation creates does not fit the type.
    return nan if isinf(number) and not isinf(left) and not isinf(right) else number


def _decimals(operator: Operator, left: Decimal, right: Decimal) -> Outcome:
    # The thread's context may have other limits and traps, which would raise.
    with localcontext(_DECIMALS):
        match operator:
            case "+":
                number = left + right
            case "-":
                number = left - right
            case "*":
                number = left * right
            case _:
                if right == 0:
                    return nan
                number = left / right
    overflow = number.is_infinite() and not left.is_infinite() and not right.is_infinite()
    return nan if overflow or number.is_nan() else number


def _remainder(left: float | Decimal, right: float | Decimal) -> Outcome:
    if not isinstance(right, int):
        return FAILED
    if right == 0 or left in (inf, -inf) or isnan(left):
        return nan
    whole, divisor = int(left), int(right)
    return _fitting(whole - divisor * _quotient(whole, divisor))
