"""Trees -> text, with parentheses around everything: for the law that parsing a printed tree returns the
tree.
"""

# ruff: noqa: PLR0911, PLR0912 - a row for each node

import math
from decimal import Decimal

from amqp_streams.filters.language.syntax import (
    And,
    Call,
    Compare,
    Constant,
    Exists,
    Field,
    Holds,
    In,
    Index,
    IsNull,
    Key,
    Like,
    Negative,
    Node,
    Not,
    Operation,
    Or,
    Positive,
)

LETTERS = {0x70: "h", 0x71: "d", 0x72: "m", 0x73: "p", 0x74: "a", 0x78: "f"}


def printed(node: Node) -> str:
    match node:
        case Constant(value=value):
            return constant(value)
        case Field(section=section, name=name, path=path):
            return f"{LETTERS[section]}.{identifier(name)}" + "".join(map(step, path))
        case Call(name=name, arguments=arguments):
            return f"{name}({', '.join(map(printed, arguments))})"
        case Negative(operand=operand):
            return f"-({printed(operand)})"
        case Positive(operand=operand):
            return f"+({printed(operand)})"
        case (
            Operation(operator=sign, left=left, right=right) | Compare(operator=sign, left=left, right=right)
        ):
            return f"({printed(left)} {sign} {printed(right)})"
        case IsNull(operand=operand, negated=negated):
            return f"({printed(operand)} IS {'NOT ' * negated}NULL)"
        case In(operand=operand, members=members, negated=negated):
            return f"({printed(operand)} {'NOT ' * negated}IN ({', '.join(map(printed, members))}))"
        case Like(operand=operand, pattern=pattern, escape=escape, negated=negated):
            return (
                f"({printed(operand)} {'NOT ' * negated}LIKE"
                f" {printed(pattern)}{f' ESCAPE {printed(escape)}' if escape else ''})"
            )
        case Exists(of=of):
            return f"EXISTS({printed(of)})"
        case Holds(of=of):
            return printed(of)
        case Not(operand=operand):
            return f"(NOT {printed(operand)})"
        case And(operands=operands):
            return f"({' AND '.join(map(printed, operands))})"
        case Or(operands=operands):
            return f"({' OR '.join(map(printed, operands))})"
    raise AssertionError(node)


def identifier(name: str) -> str:
    return "[" + name.replace("[", "[[").replace("]", "]]") + "]"


def step(of: Key | Index) -> str:
    return f".{identifier(of.name)}" if isinstance(of, Key) else f"[ {printed(of.at)} ]"


def constant(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, float):
        if math.isinf(value) or math.isnan(value):
            return "INF" if math.isinf(value) else "NAN"
        written = repr(value)
        return written if "e" in written else f"{written}E0"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
