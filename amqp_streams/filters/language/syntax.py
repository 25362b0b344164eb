"""The tree of a filter text. Spec: FILTEX 6.4; Event Streams 5.2.2; Jakarta Messaging 3.8 (selectors).

Law: the meaning of a tree does not depend on its dialect: `Expression`s have values, `Predicate`s are true,
false or unknown. Equality ignores the position of a node in the text.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Literal, TypeAlias


class Dialect(Enum):
    """The grammar of a text: FILTEX 6, the subset of Event Streams 5.2.2, or a JMS selector."""

    SQL = "sql"
    EVENT_STREAMS = "event-streams-sql"
    SELECTOR = "selector"


Literally: TypeAlias = bool | int | float | Decimal | str | bytes | None
Comparison: TypeAlias = Literal["=", "<>", ">", ">=", "<", "<="]
Operator: TypeAlias = Literal["+", "-", "*", "/", "div", "%"]
"""`div` is the `/` of selectors, which drops the fraction of integers, as in Java."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the text. The parser creates no negative numbers: a sign is an operation."""

    value: Literally
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Key:
    """`.name`: the value of a map under this key."""

    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """`[expression]`: the item of a list or array, counted from 0."""

    at: "Expression"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a section, or a value inside the field, to which `path` leads.

    `section`: the descriptor code, as in `wire.layout`.
    """

    section: int
    name: str
    path: "tuple[Key | Index, ...]" = ()
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function. The name of a known function is in capitals; other names are as written."""

    name: str
    arguments: "tuple[Expression, ...]"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Negative:
    """`-operand`."""

    operand: "Expression"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Positive:
    """`+operand`: the same number; the operand must be a number."""

    operand: "Expression"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """An arithmetic operation, or the concatenation of two texts with `+`."""

    operator: Operator
    left: "Expression"
    right: "Expression"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """`left = right` and other comparisons; `!=` is stored as `<>`."""

    operator: Comparison
    left: "Expression"
    right: "Expression"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS [NOT] NULL`."""

    operand: "Expression"
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """`operand [NOT] IN (members)`."""

    operand: "Expression"
    members: "tuple[Expression, ...]"
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Like:
    """`operand [NOT] LIKE pattern [ESCAPE escape]`."""

    operand: "Expression"
    pattern: "Expression"
    escape: "Expression | None" = None
    negated: bool = False
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """`EXISTS(field)`."""

    of: Field
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Holds:
    """An expression that is used as a predicate. It fails if its value is not a boolean."""

    of: "Expression"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`."""

    operand: "Predicate"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """Two or more predicates that must all hold."""

    operands: "tuple[Predicate, ...]"
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more predicates of which at least one must hold."""

    operands: "tuple[Predicate, ...]"
    position: int = field(default=0, compare=False)


Expression: TypeAlias = Constant | Field | Call | Negative | Positive | Operation
Predicate: TypeAlias = Compare | IsNull | In | Like | Exists | Holds | Not | And | Or
Node: TypeAlias = Expression | Predicate
