"""The values of filter texts, and their comparison. Spec: FILTEX 2.1, 6.2, 6.3, 6.4.2.3.

    value     NULL is None; numbers are int, float, Decimal; a failed computation is FAILED
    truth     True, False, None (unknown), FAILED (unknown because of a failure; for groups of filters)

Laws: a comparison with NULL or not-a-number is unknown. A comparison of different types fails (in a selector
it is false). A failure is a value and never an exception: an operation on FAILED is FAILED, except that AND
with a FALSE operand is FALSE and OR with a TRUE operand is TRUE.
"""

import operator
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias
from uuid import UUID

from amqp_streams.filters.language.syntax import Comparison
from amqp_streams.filters.times import moment
from amqp_streams.wire.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)


class Failed(Enum):
    """A value or truth that could not be computed."""

    FAILED = "failed"


class Missing(Enum):
    """A field that the message does not have (a NULL in the message is None)."""

    MISSING = "missing"


TEXT_MAX: Final = 64 << 10
"""The most characters of a text that a concatenation or function creates. A longer result is FAILED."""

FAILED: Final = Failed.FAILED
MISSING: Final = Missing.MISSING

Outcome: TypeAlias = "Value | Decimal | Failed"
Truth: TypeAlias = bool | Failed | None
Test: TypeAlias = Callable[[Any, Any], bool]


class Kind(Enum):
    """Groups of types whose values can be compared.

    A list, a map or an array has no kind, and every comparison with it fails.
    """

    NUMBER = "number"
    TEXT = "text"
    TIME = "timestamp"
    BOOLEAN = "boolean"
    BINARY = "binary"
    UUID = "uuid"
    CHAR = "char"


INTEGERS: Final = frozenset((int, UByte, UShort, UInt, ULong, Byte, Short, Int))
KINDS: Final[dict[type, Kind]] = {
    **dict.fromkeys((*INTEGERS, float, Float, Decimal), Kind.NUMBER),
    **dict.fromkeys((str, Symbol), Kind.TEXT),
    Timestamp: Kind.TIME,
    bool: Kind.BOOLEAN,
    bytes: Kind.BINARY,
    UUID: Kind.UUID,
    Char: Kind.CHAR,
}

TESTS: Final[dict[Comparison, Test]] = {
    "=": operator.eq,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def compare(test: Test, left: Outcome, right: Outcome, unlike: Truth = FAILED) -> Truth:
    """Compare two values. Returns `unlike` if their types cannot be compared."""
    # First: FAILED and None have no kind.
    if left is FAILED or right is FAILED or left is None or right is None:
        return FAILED if left is FAILED or right is FAILED else None
    kind, other = KINDS.get(type(left)), KINDS.get(type(right))
    if kind is Kind.NUMBER is other:
        return _compare_numbers(test, left, right)
    if kind is other and kind is not None:
        return test(left, right)
    if kind is Kind.TIME or other is Kind.TIME:
        return _compare_moments(test, left, right, unlike)
    return unlike


def _compare_numbers(test: Test, left: object, right: object) -> Truth:
    if left != left or right != right:  # noqa: PLR0124 - only not-a-number differs from itself
        return None
    if isinstance(left, Decimal):
        return test(left, _exact(right))
    if isinstance(right, Decimal):
        return test(_exact(left), right)
    # Both as doubles, as FILTEX 6.4.2.3 requires: Python would compare exactly, and 2^53 + 1 would differ
    # from
    # 2^53 as a double.
    if isinstance(left, float) is not isinstance(right, float):
        return test(float(left), float(right))  # type: ignore[arg-type]  # numbers both
    return test(left, right)


def _exact(number: object) -> Decimal:
    """Return the shortest decimal that rounds to the number as a double or a 32-bit float.

    So the float 0.1 equals the decimal 0.1, although its binary value is not exactly 0.1.
    """
    if isinstance(number, Float):
        # Nine digits always identify a 32-bit float, and the fewest that do are what a person wrote.
        for digits in range(6, 10):
            written = f"{float(number):.{digits}g}"
            if Float(float(written)) == number:
                return Decimal(written)
    if isinstance(number, float):
        return Decimal(repr(float(number)))
    return number if isinstance(number, Decimal) else Decimal(int(number))  # type: ignore[call-overload]  # an integer


def _compare_moments(test: Test, left: object, right: object, unlike: Truth) -> Truth:
    left_ms, right_ms = _milliseconds(left), _milliseconds(right)
    return unlike if left_ms is None or right_ms is None else test(left_ms, right_ms)


def _milliseconds(value: object) -> int | None:
    # A boolean is an integer in Python.
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    return moment(value) if isinstance(value, str) and type(value) is not Char else None


def conjunction(left: Truth, right: Truth) -> Truth:
    """Return `left AND right`."""
    if left is False or right is False:
        return False
    if left is FAILED or right is FAILED:
        return FAILED
    return None if left is None or right is None else True


def disjunction(left: Truth, right: Truth) -> Truth:
    """Return `left OR right`."""
    if left is True or right is True:
        return True
    if left is FAILED or right is FAILED:
        return FAILED
    return None if left is None or right is None else False


def negation(truth: Truth) -> Truth:
    """Return `NOT truth`. The negation of unknown and of FAILED is the same value."""
    return not truth if truth is True or truth is False else truth


def simple(value: Value) -> Outcome:
    """Return a value of a message as expressions use it: without descriptors, with decimals as numbers."""
    while isinstance(value, Described):
        value = value.value
    return decimal(value) if isinstance(value, Decimal32 | Decimal64 | Decimal128) else value


# By the size of the encoding in bytes: bits of the exponent, its bias, most digits (IEEE 754-2008, table
# 3.6).
_DECIMALS: Final = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}


def decimal(encoded: bytes) -> Decimal:
    """Decode a decimal of AMQP (IEEE 754-2008, binary integer form).

    Every not-a-number becomes a quiet one: Python raises for a signalling one.
    """
    width, bias, digits = _DECIMALS[len(encoded)]
    bits = int.from_bytes(encoded)
    top = 8 * len(encoded) - 1
    sign = bits >> top
    special = (bits >> (top - 5)) & 0x1F
    if special >= 0x1E:
        return Decimal("NaN") if special == 0x1F else Decimal("-Infinity" if sign else "Infinity")
    # The two first bits of the combination field say which of two layouts follows.
    tail = top - width - 2
    if special >> 3 == 3:
        exponent, significand = bits >> tail, (4 << tail) | (bits & ((1 << tail) - 1))
    else:
        exponent, significand = bits >> (tail + 2), bits & ((1 << (tail + 2)) - 1)
    exponent = (exponent & ((1 << width) - 1)) - bias
    if significand >= 10**digits:
        significand = 0  # not canonical: IEEE 754-2008, 3.5.2 reads it as zero
    return Decimal((sign, tuple(map(int, str(significand))), exponent))


def is_compound(value: Outcome) -> bool:
    """Whether `value` contains other values. An expression must not have such a value (FILTEX 6.4.4.4)."""

    return isinstance(value, list | dict | Array)
