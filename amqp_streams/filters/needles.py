"""Needles: bytes that every matching message contains. They are searched for before a message is decoded.

Law: a needle is necessary, never sufficient. In every encoding (string or symbol, short or long, array item
or described value) the byte before a text of n bytes is n modulo 256. So a message with an equal text
contains this byte and the text. Only IS NULL, NOT EXISTS and OR can be true although a field is NULL, so all
other predicates require the keys of their fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from amqp_streams.filters.evaluation.functions import function
from amqp_streams.filters.language.syntax import (
    And,
    Call,
    Compare,
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
    Or,
    Positive,
    Predicate,
)
from amqp_streams.filters.like import pattern_parts
from amqp_streams.filters.times import moment
from amqp_streams.wire.layout import APPLICATION_PROPERTIES, FOOTER, MESSAGE_ANNOTATIONS, PROPERTIES

_MAPS: Final = frozenset((MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER))
_STORED: Final = _MAPS | {PROPERTIES}
CLAUSES_MAX: Final = 4
"""The most clauses that are searched for in each message."""
NEEDLE_BYTES_MAX: Final = 64
"""The most bytes of a needle: in a short message, a search can take the product of both lengths."""
ALTERNATIVES_MAX: Final = 8
"""The most needles of a clause: searching for more costs more than the decoding that it saves."""

Clause: TypeAlias = tuple[bytes, ...]
"""Needles of which the message contains at least one."""


def text_needle(text: str) -> bytes:
    """Return the bytes that each message with this text as a value or key contains."""
    # The size modulo 256 stands before the text in both the short and the long encoding: see the law above.
    encoded = text.encode()
    return bytes((len(encoded) & 0xFF,)) + encoded


@dataclass(frozen=True, slots=True)
class Required:
    """Clauses that every matching message satisfies.

    `values` are searched for first: many messages of a log have the same keys, so `keys` exclude few.
    """

    values: tuple[Clause, ...] = ()
    keys: tuple[Clause, ...] = ()

    def both(self, other: "Required") -> "Required":
        """Return the clauses of both."""
        return Required(self.values + other.values, self.keys + other.keys)

    def most_selective(self) -> tuple[Clause, ...]:
        """Return at most CLAUSES_MAX clauses, without duplicates.

        Those with values before those with keys, few alternatives before many, long needles before short
        ones.
        """
        ordered = (*sorted(self.values, key=lambda clause: (len(clause), -len(clause[0]))), *self.keys)
        cut = (
            # The beginning of a needle is a needle too.
            tuple(dict.fromkeys(needle[:NEEDLE_BYTES_MAX] for needle in clause))
            for clause in ordered
            if all(clause)
        )
        return tuple(dict.fromkeys(cut))[:CLAUSES_MAX]


NOTHING_REQUIRED: Final = Required()


def value_needle(needle: bytes) -> Required:
    """Require bytes of a value. Requires nothing if `needle` is empty."""
    return Required(values=((needle,),)) if needle else Required()


def key_needle(section: int, name: str) -> Required:
    """Require the key of a field.

    Requires nothing in a list section: its fields have no names on the wire.
    """
    return Required(keys=((text_needle(name),),)) if section in _MAPS else Required()


def either(branches: Sequence[Required]) -> Required:
    """Return what is required if at least one branch holds: one clause with a needle of each branch.

    Requires nothing if a branch requires nothing, or if there are more than ALTERNATIVES_MAX needles.
    """
    chosen = [next(iter(branch.most_selective()), ()) for branch in branches]
    clause = tuple(dict.fromkeys(needle for each in chosen for needle in each))
    # A branch without a needle can hold for every message.
    if not all(chosen) or not 0 < len(clause) <= ALTERNATIVES_MAX:
        return Required()
    return (
        Required(values=(clause,)) if all(branch.values for branch in branches) else Required(keys=(clause,))
    )


def required(node: Predicate) -> Required:  # noqa: PLR0911 - a row a node
    """Return what a message contains if `node` is true for it."""
    match node:
        case And(operands=operands):
            whole = Required()
            for operand in operands:
                whole = whole.both(required(operand))
            return whole
        case Or(operands=operands):
            return either([required(operand) for operand in operands])
        case Compare(operator="=", left=left, right=right):
            return _equal(left, right).both(_equal(right, left)).both(_keys(left)).both(_keys(right))
        case In(operand=Field(section=section) as field, members=members, negated=False) if (
            section in _STORED
        ):
            return either([_equal(field, member) for member in members]).both(_keys(field))
        case Like(
            operand=Field(section=section) as field, pattern=Constant(value=str(pattern)), negated=False
        ) if section in _STORED:
            escape = node.escape.value if isinstance(node.escape, Constant) else ""
            return (_literal(pattern, escape or None) if isinstance(escape, str) else Required()).both(
                _keys(field)
            )
        case Exists(of=field):
            return key_needle(field.section, field.name)
        case IsNull(operand=operand, negated=True):
            return _keys(operand)
        # NOT of an unknown is unknown: the fields must exist here too.
        case Not(operand=Compare() | In() | Like() | Holds() as operand):
            return _definite(operand)
        case Compare() | In() | Like() | Holds():
            return _definite(node)
        case _:
            return Required()


def _definite(node: Compare | In | Like | Holds) -> Required:
    """Return what a message contains if the predicate is true or false for it (not unknown)."""
    match node:
        case Compare(left=left, right=right):
            return _keys(left).both(_keys(right))
        case In(operand=operand) | Like(operand=operand) | Holds(of=operand):
            return _keys(operand)


def _equal(field: Expression, other: Expression) -> Required:
    if (
        isinstance(field, Field)
        and field.section in _STORED
        and isinstance(other, Constant)
        and isinstance(other.value, str)
    ):
        # A date also equals a timestamp, whose bytes are different: such a text is not a needle.
        return (
            value_needle(text_needle(other.value))
            if other.value and moment(other.value) is None
            else Required()
        )
    return Required()


def _literal(pattern: str, escape: str | None) -> Required:
    """Require the longest piece of a pattern that has no wildcard."""
    pieces = [piece for part in pattern_parts(pattern, escape) or [] for piece in _runs(part)]
    return value_needle(max(pieces, key=len, default="").encode())


def _runs(part: list[str | None]) -> list[str]:
    runs = [""]
    for character in part:
        if character is None:
            runs.append("")
        else:
            runs[-1] += character
    return runs


def _keys(node: Expression) -> Required:
    """Require the keys of the fields whose NULL makes the whole expression NULL or FAILED."""
    match node:
        case Field(section=section, name=name):
            return key_needle(section, name)
        case Negative(operand=operand) | Positive(operand=operand):
            return _keys(operand)
        case Operation(left=left, right=right):
            return _keys(left).both(_keys(right))
        case Call(name=name, arguments=arguments) if function(name):
            whole = Required()
            for argument in arguments:
                whole = whole.both(_keys(argument))
            return whole
        case _:
            return Required()
