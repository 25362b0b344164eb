"""Errors of filters: evaluation errors as values, malformed texts as exceptions; and the limits of a filter.

`Failed` never leaves this package: `cesql.Expression` converts it to a value.

Spec: CESQL 3.3.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from knative_gateway.errors import GatewayError

Primitive: TypeAlias = str | int | bool
"""A value of CESQL: String, Integer (32 bits, signed) or Boolean."""


class ErrorKind(StrEnum):
    """The kinds of errors in CESQL 3.3, with the names of its conformance suite."""

    PARSE = "parse"
    MATH = "math"
    CAST = "cast"
    MISSING_ATTRIBUTE = "missingAttribute"
    MISSING_FUNCTION = "missingFunction"
    FUNCTION_EVALUATION = "functionEvaluation"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """One error of an evaluation."""

    kind: ErrorKind
    reason: str


class ParseError(GatewayError):
    """A CESQL text is malformed or exceeds a limit. `position` is the number of the character, from 1."""

    def __init__(self, reason: str, position: int) -> None:
        self.reason: Final = reason
        self.position: Final = position
        super().__init__(f"parse error: syntax error: {reason}, at character {position}")


class FilterError(GatewayError):
    """The filters are not valid. The message names the first problem that `validation.validate` returns."""


class Failed(Exception):  # noqa: N818  a result of an evaluation, not an error of the program
    """The evaluation stops here (CESQL 4.1, fail fast). Internal to this package.

    `value` is what the failed operator or function returns in addition to the error; None stands for the zero
    value of its type. `source` is its node. If that node is the whole expression, the expression returns
    `value`; otherwise it returns the zero value of its own type.
    """

    def __init__(self, kind: ErrorKind, reason: str, value: Primitive | None = None) -> None:
        self.kind: Final = kind
        self.reason: Final = reason
        self.value: Final = value
        self.source: object = None
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one Trigger's filters. They limit the time for each event.

    `characters` and `tokens` apply to one CESQL text, `characters_in_all` to all of them together: 8,192
    characters are read and compiled in up to 50 ms. `depth` applies to nested parentheses, functions and
    operators, and to nested `all`, `any` and `not`. `filters` counts all dialect objects, including nested
    ones.
    """

    characters: int = 8192
    characters_in_all: int = 16_384
    tokens: int = 2048
    depth: int = 64
    filters: int = 1024


LIMITS: Final = Limits()
