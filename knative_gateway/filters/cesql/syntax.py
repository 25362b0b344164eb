"""The tree of a CESQL expression.

Attribute names are in lower case and function names in upper case, however they were written. `x NOT LIKE p`
is `Not(Like(x, p))`, and `x NOT IN (…)` is `Not(In(…))`.

Spec: CESQL 2 and 3.1.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from knative_gateway.filters.refusal import Primitive


class Type(Enum):
    """The type of a value or parameter. ANY is the type of parameters, and of attributes before an event is
    known.
    """

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    ANY = "Any"

    @property
    def zero(self) -> Primitive:
        """The value that stands for a missing value of this type; for ANY it is false.

        Spec: CESQL 3.1, 3.2.
        """
        return "" if self is Type.STRING else 0 if self is Type.INTEGER else False


Comparison: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Operator: TypeAlias = Literal["+", "-", "*", "/", "%"]
Connective: TypeAlias = Literal["AND", "OR", "XOR"]


@dataclass(frozen=True, slots=True)
class Constant:
    value: Primitive


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of an attribute of the event."""

    name: str


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether the event has the attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Negative:
    """`-operand`."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison such as `left = right`. `<>` is stored as `!=`."""

    comparison: Comparison
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right`."""

    operator: Operator
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Logic:
    """`first AND … OR …`, evaluated from left to right.

    The list is flat, so that a long chain does not nest.
    """

    first: "Node"
    rest: "tuple[tuple[Connective, Node], ...]"


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern`."""

    operand: "Node"
    pattern: str


@dataclass(frozen=True, slots=True)
class In:
    """`operand IN (members)`."""

    operand: "Node"
    members: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function."""

    name: str
    arguments: "tuple[Node, ...]"


Node: TypeAlias = (
    Constant | Attribute | Exists | Not | Negative | Compare | Arithmetic | Logic | Like | In | Call
)
