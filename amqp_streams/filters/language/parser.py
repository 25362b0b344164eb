"""Text -> tree, for all three dialects. Spec: FILTEX 6.4; Event Streams 5.2.2; Jakarta Messaging 3.8.1.

Laws: NOT binds closer than AND, and AND closer than OR. Comparisons do not chain. A predicate is not an
expression and an expression is not a predicate, except that a field or a function may be a predicate. The
depth of nesting is limited: each level uses the interpreter's stack.
"""

from typing import Final

from amqp_streams.filters.fields import field_name
from amqp_streams.filters.language.checks import check, check_subset
from amqp_streams.filters.language.lexer import Kind, Token, tokens
from amqp_streams.filters.language.selector import compared, selector_field
from amqp_streams.filters.language.syntax import (
    And,
    Call,
    Compare,
    Comparison,
    Constant,
    Dialect,
    Exists,
    Expression,
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
    Operator,
    Or,
    Positive,
    Predicate,
)
from amqp_streams.filters.language.tokens import Cursor
from amqp_streams.filters.refusal import FilterError, Limits
from amqp_streams.wire.layout import APPLICATION_PROPERTIES, NAMES

ARGUMENT_COUNTS: Final = {
    "LOWER": (1, 2),
    "UPPER": (1, 2),
    "LEFT": (2, 2),
    "RIGHT": (2, 2),
    "SUBSTRING": (3, 3),
    "UTC": (0, 0),
    "DATE": (1, 1),
}
_CONSTANT_WORDS: Final = {
    "NULL": None,
    "TRUE": True,
    "FALSE": False,
    "INF": float("inf"),
    "NAN": float("nan"),
}
_COMPARISONS: Final[dict[str, Comparison]] = {
    "=": "=",
    "<>": "<>",
    ">": ">",
    ">=": ">=",
    "<": "<",
    "<=": "<=",
}
_SUMS: Final[dict[str, Operator]] = {"+": "+", "-": "-"}
_PRODUCTS: Final[dict[str, Operator]] = {"*": "*", "/": "/", "%": "%"}


def parse(text: str, dialect: Dialect, limits: Limits) -> Predicate:
    """Parse a filter text.

    Raises:
        FilterError: the text is malformed, can never be evaluated, or exceeds `limits`. The error has a
            position.
    """
    reader = _Reader(text, tokens(text, dialect, limits), dialect, limits)
    return reader.whole()


class _Reader(Cursor):
    __slots__ = ()

    def whole(self) -> Predicate:
        if self.dialect is Dialect.EVENT_STREAMS:
            # Parentheses are not in the tree, so the check sees the tokens first.
            check_subset(self.tokens)
        predicate = _predicate(self._or())
        if self.next.kind is not Kind.END:
            raise self.unexpected("the end or AND, OR")
        if self.dialect is Dialect.EVENT_STREAMS:
            check_subset(predicate)
        return predicate

    # -- predicates

    def _or(self) -> Node:
        first = self._and()
        if not self.is_("OR"):
            return first
        operands = [_predicate(first)]
        while self.take("OR"):
            operands.append(_predicate(self._and()))
        return Or(tuple(operands), first.position)

    def _and(self) -> Node:
        first = self._not()
        if not self.is_("AND"):
            return first
        operands = [_predicate(first)]
        while self.take("AND"):
            operands.append(_predicate(self._not()))
        return And(tuple(operands), first.position)

    def _not(self) -> Node:
        start = self.next.start
        if not self.take("NOT"):
            return self._comparison()
        self.deeper(start)
        operand = _predicate(self._not())
        # Only after success: an error ends the whole text.
        self.depth -= 1
        return Not(operand, start)

    def _comparison(self) -> Node:
        left = self._sum()
        start = self.next.start
        comparison = _COMPARISONS.get(self.next.text) if self.next.kind is Kind.MARK else None
        if comparison:
            self.advance()
            one, other = _expression(left), _expression(self._sum())
            if self.dialect is Dialect.SELECTOR:
                one, other = compared(other, one), compared(one, other)
            return check(Compare(comparison, one, other, start))
        if self.take("IS"):
            negated = self.take("NOT")
            self.expect("NULL")
            return IsNull(_expression(left), negated, start)
        negated = self.take("NOT")
        if self.take("LIKE"):
            pattern = _expression(self._sum())
            escape = _expression(self._sum()) if self.take("ESCAPE") else None
            return check(Like(_expression(left), pattern, escape, negated, start))
        if self.take("IN"):
            return In(_expression(left), self._members(), negated, start)
        # BETWEEN is a reserved word of selectors only. In the other dialects it is a name.
        if self.dialect is Dialect.SELECTOR and self.take("BETWEEN"):
            return self._between(_expression(left), start, negated)
        if negated:
            raise self.unexpected("LIKE or IN")
        return left

    def _between(self, operand: Expression, start: int, negated: bool) -> Predicate:
        low = _expression(self._sum())
        self.expect("AND")
        high = _expression(self._sum())
        # The operand is in the tree twice. It has no side effects, and a field is read at most once for each
        # record.
        between = And(
            (check(Compare(">=", operand, low, start)), check(Compare("<=", operand, high, start))), start
        )
        return Not(between, start) if negated else between

    def _members(self) -> tuple[Expression, ...]:
        self.expect("(")
        members = [_expression(self._sum())]
        while self.take(","):
            members.append(_expression(self._sum()))
        self.expect(")")
        return tuple(members)

    # -- expressions

    def _sum(self) -> Node:
        left = self._product()
        while self.next.kind is Kind.MARK and self.next.text in _SUMS:
            token = self.advance()
            left = check(
                Operation(_SUMS[token.text], _expression(left), _expression(self._product()), token.start)
            )
        return left

    def _product(self) -> Node:
        left = self._signed()
        while self.next.kind is Kind.MARK and self.next.text in _PRODUCTS:
            token = self.advance()
            operator = _PRODUCTS[token.text]
            # Selectors divide integers as Java does, without a fraction.
            if operator == "/" and self.dialect is Dialect.SELECTOR:
                operator = "div"
            left = check(Operation(operator, _expression(left), _expression(self._signed()), token.start))
        return left

    def _signed(self) -> Node:
        start = self.next.start
        if self.next.kind is not Kind.MARK or self.next.text not in _SUMS:
            return self._primary()
        negative = self.advance().text == "-"
        self.deeper(start)
        operand = _expression(self._signed())
        self.depth -= 1
        return check(Negative(operand, start) if negative else Positive(operand, start))

    def _primary(self) -> Node:
        token = self.next
        if token.kind is Kind.CONSTANT:
            self.advance()
            return Constant(token.value, token.start)
        if token.kind is Kind.KEYWORD and token.text in _CONSTANT_WORDS:
            self.advance()
            return Constant(_CONSTANT_WORDS[token.text], token.start)
        if token.kind is Kind.KEYWORD and token.text == "EXISTS":
            return self._exists()
        if token.kind is Kind.MARK and token.text == "(":
            self.advance()
            self.deeper(token.start)
            inner = self._or()
            self.depth -= 1
            self.expect(")")
            return inner
        if token.kind in (Kind.NAME, Kind.DELIMITED):
            return self._name()
        raise self.unexpected("a value, a field or a condition")

    def _exists(self) -> Exists:
        start = self.advance().start
        self.expect("(")
        if self.next.kind not in (Kind.NAME, Kind.DELIMITED):
            raise self.unexpected("a field")
        field = self._field(self.advance())
        self.expect(")")
        return Exists(field, start)

    def _name(self) -> Expression:
        token = self.advance()
        if self.dialect is Dialect.SELECTOR:
            return selector_field(token.text, token.start)
        if token.kind is Kind.NAME:
            if self.is_("("):
                return self._call(token.text, token.start)
            # A function with a prefix, `name:name(…)`. A colon has no other meaning in this position.
            if self.is_(":") and self.after_next.kind is Kind.NAME:
                self.advance()
                name = self.advance().text
                if self.is_("("):
                    return self._call(f"{token.text}:{name}", token.start)
                raise self.unexpected("the arguments of a function")
        return self._field(token)

    def _call(self, written: str, start: int) -> Call:
        self.expect("(")
        self.deeper(start)
        arguments: list[Expression] = []
        if not self.is_(")"):
            arguments.append(_expression(self._sum()))
            while self.take(","):
                arguments.append(_expression(self._sum()))
        self.expect(")")
        self.depth -= 1
        # Names of known functions ignore case; other names are as written.
        name = written.upper() if written.upper() in ARGUMENT_COUNTS else written
        low, high = ARGUMENT_COUNTS.get(name, (0, len(arguments)))
        if not low <= len(arguments) <= high:
            reason = (
                f"{name} takes {low if low == high else f'{low} or {high}'} arguments, not {len(arguments)}"
            )
            raise FilterError(reason, start + 1)
        return check(Call(name, tuple(arguments), start))

    # -- fields

    def _field(self, first: Token) -> Field:
        section = self.section(first) if first.kind is Kind.NAME else None
        if section is None:
            return Field(APPLICATION_PROPERTIES, first.text, self._path(), first.start)
        self.expect(".")
        if self.next.kind not in (Kind.NAME, Kind.DELIMITED):
            raise self.unexpected(f"a field of {NAMES[section]}")
        token = self.advance()
        # A name in brackets is taken as it is.
        written = token.text
        if token.kind is Kind.NAME and section != APPLICATION_PROPERTIES:
            written = self.hyphenated(token, section)
        name = field_name(section, written)
        if name is None:
            reason = f"{NAMES[section]} has no field {written[:64]!r}"
            raise FilterError(reason, token.start + 1)
        return Field(section, name, self._path(), first.start)

    def _path(self) -> tuple[Key | Index, ...]:
        steps: list[Key | Index] = []
        while True:
            start = self.next.start
            if self.take("."):
                if self.next.kind not in (Kind.NAME, Kind.DELIMITED):
                    raise self.unexpected("a key")
                steps.append(Key(self.advance().text))
            elif self.take("["):
                self.deeper(start)
                steps.append(Index(_expression(self._sum())))
                self.depth -= 1
                self.expect("]")
            else:
                return tuple(steps)


def _expression(node: Node) -> Expression:
    if isinstance(node, Constant | Field | Call | Negative | Positive | Operation):
        return node
    reason = "expected a value, found a condition"
    raise FilterError(reason, node.position + 1)


def _predicate(node: Node) -> Predicate:
    if isinstance(node, Field | Call) or (
        isinstance(node, Constant) and (node.value is None or isinstance(node.value, bool))
    ):
        return Holds(node, node.position)
    if isinstance(node, Constant | Negative | Positive | Operation):
        reason = "expected a condition, found a value that is not a boolean"
        raise FilterError(reason, node.position + 1)
    return node
