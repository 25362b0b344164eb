"""CESQL text -> tree, by operator precedence (a Pratt parser).

From the highest precedence to the lowest: function call; NOT and minus; LIKE; IN; products; sums;
comparisons; AND, OR and XOR, which have the same precedence and group from left to right. The depth is
limited, so no text exhausts the stack.

Spec: CESQL 2 and 3.6.
"""

import re
from typing import Final

from knative_gateway.filters.cesql.lexer import Kind, Token, tokens
from knative_gateway.filters.cesql.syntax import (
    Arithmetic,
    Attribute,
    Call,
    Compare,
    Comparison,
    Connective,
    Constant,
    Exists,
    In,
    Like,
    Logic,
    Negative,
    Node,
    Not,
    Operator,
)
from knative_gateway.filters.refusal import LIMITS, Limits, ParseError

INTEGER_MIN: Final = -(2**31)
INTEGER_MAX: Final = 2**31 - 1

_CONNECTIVES: Final[dict[str, Connective]] = {"AND": "AND", "OR": "OR", "XOR": "XOR"}
_COMPARISONS: Final[dict[str, Comparison]] = {
    "=": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_SUMS: Final[dict[str, Operator]] = {"+": "+", "-": "-"}
_PRODUCTS: Final[dict[str, Operator]] = {"*": "*", "/": "/", "%": "%"}
_ANY_POWER: Final = 0
_IN_POWER: Final = 5
_LIKE_POWER: Final = 6
_UNARY_POWER: Final = 7
_POWERS: Final = {
    **dict.fromkeys(_CONNECTIVES, 1),
    **dict.fromkeys(_COMPARISONS, 2),
    **dict.fromkeys(_SUMS, 3),
    **dict.fromkeys(_PRODUCTS, 4),
    "IN": _IN_POWER,
    "LIKE": _LIKE_POWER,
}
_ATTRIBUTE_NAME: Final = re.compile(r"[A-Za-z0-9]+")
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z][A-Za-z_]*")
_INTEGER_DIGITS_MAX: Final = len(str(INTEGER_MAX))


def parse(text: str, limits: Limits = LIMITS) -> Node:
    """Return the tree of an expression.

    Raises:
      ParseError: the expression is malformed or exceeds a limit. The error has the position.
    """
    return _Parser(tokens(text, limits), limits).whole()


class _Parser:
    __slots__ = ("_at", "_depth", "_limits", "_tokens")

    def __init__(self, found: list[Token], limits: Limits) -> None:
        self._tokens = found
        self._limits = limits
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        tree = self._expression(_ANY_POWER)
        if self._next.kind is not Kind.END:
            raise self._unexpected("an operator or the end")
        return tree

    # -- operators

    def _expression(self, power: int) -> Node:
        """Parse an operand and the operators after it that bind more closely than `power`."""
        # Restored at the end: operands next to each other do not add up.
        before = self._depth
        self._deeper()
        left = self._operand()
        while (binds := self._infix_power()) > power:
            # The three connectives have one precedence, so a chain of them becomes one node and does not
            # count as depth.
            if binds == _POWERS["AND"]:
                left = self._logic(left)
                continue
            self._deeper()
            left = self._infix(left, binds)
        self._depth = before
        return left

    def _infix_power(self) -> int:
        token = self._next
        if token.kind is Kind.KEYWORD and token.text == "NOT":
            token = self._tokens[self._at + 1]
            return (
                _POWERS.get(token.text, _ANY_POWER)
                if token.kind is Kind.KEYWORD and token.text in ("LIKE", "IN")
                else _ANY_POWER
            )
        return _POWERS.get(token.text, _ANY_POWER) if token.kind in (Kind.KEYWORD, Kind.MARK) else _ANY_POWER

    def _logic(self, first: Node) -> Node:
        # From left to right, as in CESQL 3.6. The grammar file and the Go implementation group from the right
        # (docs/decisions/0008-cloudevents-sql.md).
        rest: list[tuple[Connective, Node]] = []
        while self._next.kind is Kind.KEYWORD and self._next.text in _CONNECTIVES:
            connective = _CONNECTIVES[self._advance().text]
            rest.append((connective, self._expression(_POWERS[connective])))
        return Logic(first, tuple(rest))

    def _infix(self, left: Node, power: int) -> Node:
        negated = self._take("NOT")
        token = self._advance()
        if token.text == "LIKE":
            test: Node = Like(left, self._pattern())
            return Not(test) if negated else test
        if token.text == "IN":
            test = In(left, self._members())
            return Not(test) if negated else test
        right = self._expression(power)
        comparison = _COMPARISONS.get(token.text)
        if comparison:
            return Compare(comparison, left, right)
        return Arithmetic((_SUMS | _PRODUCTS)[token.text], left, right)

    def _pattern(self) -> str:
        """CESQL 3.4.3: the pattern MUST be a string literal, otherwise the parser MUST return a
        parse error.
        """
        if self._next.kind is not Kind.STRING:
            raise self._unexpected("a string literal, the pattern of LIKE")
        return self._advance().text

    def _members(self) -> tuple[Node, ...]:
        self._expect("(")
        members = [self._expression(_ANY_POWER)]
        while self._take(","):
            members.append(self._expression(_ANY_POWER))
        self._expect(")")
        return tuple(members)

    # -- operands

    def _operand(self) -> Node:
        token = self._next
        match token.kind:
            case Kind.STRING:
                return Constant(self._advance().text)
            case Kind.INTEGER:
                return Constant(self._integer(self._advance(), negative=False))
            case Kind.NAME:
                return self._named(self._advance())
            case Kind.KEYWORD:
                return self._keyword(token)
            case Kind.MARK:
                return self._marked(token)
            case Kind.END:
                raise self._unexpected("an attribute, a literal, a function or a parenthesis")

    def _keyword(self, token: Token) -> Node:
        if token.text in ("TRUE", "FALSE"):
            self._advance()
            return Constant(token.text == "TRUE")
        if self._take("NOT"):
            return Not(self._expression(_UNARY_POWER))
        if self._take("EXISTS"):
            if self._next.kind is not Kind.NAME and self._next.kind is not Kind.INTEGER:
                raise self._unexpected("the name of an attribute")
            return Exists(self._attribute_name(self._advance()))
        raise self._unexpected("an attribute, a literal, a function or a parenthesis")

    def _marked(self, token: Token) -> Node:
        if self._take("("):
            inner = self._expression(_ANY_POWER)
            self._expect(")")
            return inner
        digits = self._tokens[self._at + 1]
        # A sign directly before digits is a part of the literal: -2147483648 is valid, and the negation of
        # 2147483648 is not.
        if token.text in _SUMS and digits.kind is Kind.INTEGER and digits.start == token.end:
            self._at += 2
            return Constant(self._integer(digits, negative=token.text == "-"))
        if self._take("-"):
            return Negative(self._expression(_UNARY_POWER))
        raise self._unexpected("an attribute, a literal, a function or a parenthesis")

    def _named(self, token: Token) -> Node:
        if not (self._next.kind is Kind.MARK and self._next.text == "("):
            return Attribute(self._attribute_name(token))
        if _FUNCTION_NAME.fullmatch(token.text) is None:
            reason = f"{token.text} is not a valid function name: names consist of letters and _"
            raise ParseError(reason, token.start + 1)
        self._advance()
        if self._take(")"):
            return Call(token.text.upper(), ())
        self._at -= 1
        return Call(token.text.upper(), self._members())

    @staticmethod
    def _attribute_name(token: Token) -> str:
        if _ATTRIBUTE_NAME.fullmatch(token.text) is None:
            reason = f"{token.text} is not a valid attribute name: names consist of letters and digits"
            raise ParseError(reason, token.start + 1)
        return token.text.lower()

    @staticmethod
    def _integer(token: Token, *, negative: bool) -> int:
        """CESQL 2.2: integer literals MUST be valid 32 bit signed integer values."""
        digits = token.text.lstrip("0") or "0"
        # One digit more than allowed shows the overflow. int() of all digits would be slow.
        value = int(digits[: _INTEGER_DIGITS_MAX + 1]) * (-1 if negative else 1)
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            reason = f"{token.text[:40]} does not fit 32 bits"
            raise ParseError(reason, token.start + 1)
        return value

    # -- tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _advance(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _take(self, text: str) -> bool:
        taken = self._next.kind in (Kind.MARK, Kind.KEYWORD) and self._next.text == text
        if taken:
            self._at += 1
        return taken

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f"{text!r}")

    def _unexpected(self, wanted: str) -> ParseError:
        token = self._next
        found = Kind.END.value if token.kind is Kind.END else repr(token.text[:40])
        return ParseError(f"found {found}, expected {wanted}", token.start + 1)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > self._limits.depth:
            reason = f"the expression nests deeper than {self._limits.depth}"
            raise ParseError(reason, self._next.start + 1)
