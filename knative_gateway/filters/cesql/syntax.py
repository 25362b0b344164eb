"""The tree of a CESQL expression. Spec: CESQL 2 and 3.1.

Laws: names of attributes are in lower case, of functions in upper case, whatever was written; `x NOT LIKE p`
is `Not(Like(x, p))`, and `x NOT IN (…)` likewise.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from knative_gateway.filters.refusal import Primitive


class Type(Enum):
    """The type of a value or parameter;

    ANY is a parameter's only, or an attribute's as long as there is no event.
    """

    STRING = "String"
    INTEGER = "Integer"
    BOOLEAN = "Boolean"
    ANY = "Any"

    @property
    def zero(self) -> Primitive:
        """What stands for a value that there is not; of a type that is not known, Boolean's.

        Spec: CESQL 3.1, 3.2.
        """
        return "" if self is Type.STRING else 0 if self is Type.INTEGER else False


Comparison: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
Operator: TypeAlias = Literal["+", "-", "*", "/", "%"]
Connective: TypeAlias = Literal["AND", "OR", "XOR"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

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
    """`left = right` and its kin; `<>` is written `!=`."""

    comparison: Comparison
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two operands and what is done to them."""

    operator: Operator
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Logic:
    """`first AND … OR …`, from left to right: the three have the same precedence.

    Flat, so that long ones do not nest.
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
    """A function and its arguments."""

    name: str
    arguments: "tuple[Node, ...]"


Node: TypeAlias = (
    Constant | Attribute | Exists | Not | Negative | Compare | Arithmetic | Logic | Like | In | Call
)
