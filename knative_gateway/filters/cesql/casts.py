"""Casts between the types of CESQL, and the conversion of attribute values to these types.

A cast that is not possible raises `Failed` with the kind CAST. Casts do not raise anything else.

Spec: CESQL 3.2, 3.7.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final

from knative_gateway.filters.cesql.parser import INTEGER_MAX, INTEGER_MIN
from knative_gateway.filters.cesql.syntax import Type
from knative_gateway.filters.refusal import ErrorKind, Failed, Primitive

BOOLEAN_LENGTH_MAX: Final = len("false")
INTEGER_LENGTH_MAX: Final = 1 << 14
"""Characters of a text that is cast to Integer, including leading zeros."""

# The possessive quantifier never tries shorter matches: an event chooses the text.
_INTEGER: Final = re.compile(r"([+-]?)([0-9]++)", re.ASCII)
_DIGITS_MAX: Final = 10


def as_string(value: Primitive) -> str:
    """Every value can be cast to String."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        # Before the integers, because bool is a subclass of int in Python.
        return "true" if value else "false"
    return str(value)


def as_integer(value: Primitive) -> int:
    """Cast a Boolean to 1 or 0, and a String from decimal digits with an optional sign.

    Raises:
      Failed: the String is not a 32-bit integer.
    """
    if isinstance(value, str):
        written = _INTEGER.fullmatch(value) if len(value) <= INTEGER_LENGTH_MAX else None
        # Leading zeros are stripped first: they are valid, and int() of thousands of them is slow.
        if written and len(digits := written[2].lstrip("0")) <= _DIGITS_MAX:
            number = int(written[1] + (digits or "0"))
            if INTEGER_MIN <= number <= INTEGER_MAX:
                return number
        raise Failed(ErrorKind.CAST, f"{value[:80]!r} is not an integer of 32 bits")
    return int(value)


def as_boolean(value: Primitive) -> bool:
    """Cast an Integer to whether it is not 0, and a String from `true` or `false` in any case.

    Raises:
      Failed: the String is neither.
    """
    if isinstance(value, str):
        written = value[: BOOLEAN_LENGTH_MAX + 1].lower()
        if written in ("true", "false"):
            return written == "true"
        raise Failed(ErrorKind.CAST, f"{value[:80]!r} is neither true nor false")
    return bool(value)


def unchanged(value: Primitive) -> Primitive:
    """The cast to Any."""
    return value


CASTS: Final[Mapping[Type, Callable[[Primitive], Primitive]]] = {
    Type.STRING: as_string,
    Type.INTEGER: as_integer,
    Type.BOOLEAN: as_boolean,
    Type.ANY: unchanged,
}


def type_of(value: Primitive) -> Type:
    return (
        Type.STRING if isinstance(value, str) else Type.BOOLEAN if isinstance(value, bool) else Type.INTEGER
    )


def primitive(value: object) -> Primitive:
    """Convert an attribute's value to a CESQL value.

    A value that is not a String, a Boolean or a 32-bit Integer becomes its canonical text. Spec: CESQL 3.2.
    """
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if INTEGER_MIN <= value <= INTEGER_MAX else str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return str(value)


def canonical(value: object) -> str:
    """Return the canonical CloudEvents text of an attribute's value."""
    return value if isinstance(value, str) else as_string(primitive(value))
