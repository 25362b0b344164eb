"""Bytes that a message has somewhere, if a filter lets it through: looked for before anything is decoded.

Law: necessary, never sufficient. A text of n bytes is encoded as its length, of which the last byte is n modulo 256, and its bytes, be
it string or symbol, short or long, an item of an array or described; so these bytes are where a text is equal. A field that is NULL
makes nothing true but IS NULL, NOT EXISTS and what OR saves: so its key is there.
"""

from collections.abc import Iterable
from typing import Final

from amqp_streams.filters.functions import function
from amqp_streams.filters.like import pattern_parts
from amqp_streams.filters.syntax import (
    And,
    Call,
    Compare,
    Constant,
    Exists,
    Expression,
    Field,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Operation,
    Positive,
    Predicate,
    Test,
)
from amqp_streams.filters.times import moment
from amqp_streams.wire.layout import APPLICATION_PROPERTIES, FOOTER, MESSAGE_ANNOTATIONS, PROPERTIES

_MAPS: Final = frozenset((MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER))
_STORED: Final = _MAPS | {PROPERTIES}
NEEDLES_MAX: Final = 4
"""More of them than this cost more than the decoding they save."""


def text_needle(text: str) -> bytes:
    """What is in every message that has this text as a value or key."""
    encoded = text.encode()
    return bytes((len(encoded) & 0xFF,)) + encoded


def key_needle(section: int, name: str) -> tuple[bytes, ...]:
    """What is in every message that has this field: nothing for lists, whose fields have no names on the wire."""
    return (text_needle(name),) if section in _MAPS else ()


def most_telling(needles: Iterable[bytes]) -> tuple[bytes, ...]:
    """The best of them, values before keys as they were given, none that another one contains."""
    kept: list[bytes] = []
    for needle in needles:
        if needle and not any(needle in other for other in kept):
            kept.append(needle)
    return tuple(kept[:NEEDLES_MAX])


def required(node: Predicate) -> tuple[list[bytes], list[bytes]]:  # noqa: PLR0911 - a row a node
    """Values and keys that a message has if `node` is true of it."""
    match node:
        case And(operands=operands):
            pairs = [required(operand) for operand in operands]
            return [value for values, _ in pairs for value in values], [key for _, keys in pairs for key in keys]
        case Compare(operator="=", left=left, right=right):
            return _equal(left, right) + _equal(right, left), _keys(left) + _keys(right)
        case Like(operand=Field(section=section) as field, pattern=Constant(value=str(pattern)), negated=False) if section in _STORED:
            escape = node.escape.value if isinstance(node.escape, Constant) else None
            if node.escape is None or isinstance(escape, str):
                return _literals(pattern, escape if isinstance(escape, str) else None), _keys(field)
        case Exists(of=field):
            return [], list(key_needle(field.section, field.name))
        case Test(of=expression):
            return [], _keys(expression)
        case IsNull(operand=operand, negated=True):
            return [], _keys(operand)
        case Not(operand=Compare() | In() | Like() | Test() as operand):
            return [], _definite(operand)
        case Compare() | In() | Like():
            return [], _definite(node)
        case _:
            pass
    return [], []


def _definite(node: Compare | In | Like | Test) -> list[bytes]:
    """Keys without which the predicate is neither true nor false."""
    match node:
        case Compare(left=left, right=right):
            return _keys(left) + _keys(right)
        case In(operand=operand) | Like(operand=operand):
            return _keys(operand)
        case Test(of=of):
            return _keys(of)


def _equal(field: Expression, other: Expression) -> list[bytes]:
    if isinstance(field, Field) and field.section in _STORED and isinstance(other, Constant) and isinstance(other.value, str):
        # A text that is a date equals a timestamp, too.
        return [text_needle(other.value)] if other.value and moment(other.value) is None else []
    return []


def _literals(pattern: str, escape: str | None) -> list[bytes]:
    pieces: list[str] = []
    for part in pattern_parts(pattern, escape) or []:
        pieces += "".join("\0" if character is None else character for character in part).split("\0")
    longest = max(pieces, key=len, default="")
    return [longest.encode()] if longest else []


def _keys(node: Expression) -> list[bytes]:
    """Keys of the fields whose NULL makes the whole expression NULL or fail."""
    match node:
        case Field(section=section, name=name):
            return list(key_needle(section, name))
        case Negative(operand=operand) | Positive(operand=operand):
            return _keys(operand)
        case Operation(left=left, right=right):
            return _keys(left) + _keys(right)
        case Call(name=name, arguments=arguments) if function(name):
            return [key for argument in arguments for key in _keys(argument)]
        case _:
            return []
