"""What can go wrong with a filter: errors of CESQL as values, a text that cannot be read as an exception, and
how much of one is taken.

Spec: CESQL 3.3. An error of an evaluation never leaves this package as an exception: `cesql.Expression` makes
a value of it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from knative_gateway.errors import GatewayError

Primitive: TypeAlias = str | int | bool
"""A value of CESQL: String, Integer (32 bits, signed) or Boolean."""


class ErrorKind(StrEnum):
    """The kinds of CESQL 3.3, in the words of its conformance suite."""

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
    """A CESQL text is malformed or beyond a limit.

    `position`: the number of the character at which the error was found, from 1.
    """

    def __init__(self, reason: str, position: int) -> None:
        self.reason: Final = reason
        self.position: Final = position
        super().__init__(f"parse error: syntax error: {reason}, at character {position}")


class FilterError(GatewayError):
    """Filters that `validation.validate` has problems with were compiled all the same.

    The message names the first problem.
    """


class Failed(Exception):  # noqa: N818  it is a result on its way, not an error of the program
    """An evaluation stops here (CESQL 4.1, fail fast). Inside this package only.

    `value` is what the operator or function that failed returns beside the error, None for its type's zero
    value; `source` is its node, so that the whole expression returns `value` if that node is all there is,
    and the zero value of its own type otherwise.
    """

    def __init__(self, kind: ErrorKind, reason: str, value: Primitive | None = None) -> None:
        self.kind: Final = kind
        self.reason: Final = reason
        self.value: Final = value
        self.source: object = None
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one Trigger may ask for, so that no filter costs more than a bounded time for each event.

    `characters`, `tokens`: of one CESQL text. `depth`: of parentheses, functions and operators within each
    other, and of `all`, `any` and `not` within each other. `filters`: dialect objects in all, the inner ones
    included.
    """

    characters: int = 8192
    tokens: int = 2048
    depth: int = 64
    filters: int = 1024


LIMITS: Final = Limits()
