"""Tree -> closures over the attributes of an event.

The first error ends an evaluation with `Failed` (CESQL 4.1). The only other exception is `FilterWorkError`.
Operands that cannot change the result are not evaluated and cannot fail: the right side of AND and OR if the
left side decides, and the members of IN after the equal one.

Spec: CESQL 3.2 to 3.7.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import add, ge, gt, le, lt, mul, sub
from typing import Final, NamedTuple, TypeAlias, assert_never

from knative_gateway.filters.cesql.casts import (
    BOOLEAN_LENGTH_MAX,
    CASTS,
    as_boolean,
    as_integer,
    as_string,
    primitive,
    type_of,
)
from knative_gateway.filters.cesql.functions import Functions, checked
from knative_gateway.filters.cesql.like import matcher
from knative_gateway.filters.cesql.parser import INTEGER_MAX, INTEGER_MIN
from knative_gateway.filters.cesql.syntax import (
    Arithmetic,
    Attribute,
    Call,
    Compare,
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
    Type,
)
from knative_gateway.filters.refusal import ErrorKind, Failed, Primitive
from knative_gateway.filters.work import Work

Attributes: TypeAlias = Mapping[str, object]
"""Context attributes by their lower-case names. Values have the types of `cloudevents.event.Value`."""

Run: TypeAlias = Callable[[Attributes], Primitive]
Test: TypeAlias = Callable[[Attributes], bool]

REQUIRED: Final = frozenset(("id", "source", "specversion", "type"))
"""Attributes that every event has. Spec: CESQL 3.4.4."""


class Compiled(NamedTuple):
    """A closure and the type of its result, as far as the type is known without an event."""

    run: Run
    type: Type


_ORDERS: Final[Mapping[str, Callable[[int, int], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def closure(node: Node, functions: Functions, work: Work) -> Compiled:
    """Return a closure that evaluates the expression.

    The closure raises Failed, or FilterWorkError when the steps of `work` are used up.
    """
    run: Run
    match node:
        case Call():
            return _call(node, functions, work)
        case Constant(value):
            run, type_ = _constant(value), type_of(value)
        case Attribute(name):
            run, type_ = _attribute(name), Type.ANY
        case Exists(name):
            run, type_ = _exists(name), Type.BOOLEAN
        case Not(operand):
            run, type_ = _not(node, closure(operand, functions, work)), Type.BOOLEAN
        case Negative(operand):
            run, type_ = _negative(closure(operand, functions, work).run), Type.INTEGER
        case Compare():
            run, type_ = _compare(node, functions, work), Type.BOOLEAN
        case Arithmetic(operator, left, right):
            run, type_ = (
                _arithmetic(
                    operator, closure(left, functions, work).run, closure(right, functions, work).run
                ),
                Type.INTEGER,
            )
        case Logic(first, rest):
            operands = [
                _boolean(closure(each, functions, work)) for each in (first, *(right for _, right in rest))
            ]
            run, type_ = _logic([connective for connective, _ in rest], operands), Type.BOOLEAN
        case Like(operand, pattern):
            run, type_ = _like(_string(closure(operand, functions, work)), pattern, work), Type.BOOLEAN
        case In(operand, members):
            run, type_ = _in(closure(operand, functions, work).run, members, functions, work), Type.BOOLEAN
        case _:
            assert_never(node)
    return Compiled(run, type_)


def _constant(value: Primitive) -> Run:
    return lambda _attributes: value


def _exists(name: str) -> Test:
    return (
        (lambda _attributes: True)
        if name in REQUIRED
        else (lambda attributes: attributes.get(name) is not None)
    )


def _attribute(name: str) -> Run:
    # Made once: a missing attribute is the usual case for many events, and formatting the text would cost
    # more than the comparison.
    reason = f"the event has no attribute {name}"

    def attribute(attributes: Attributes) -> Primitive:
        value = attributes.get(name)
        if value.__class__ is str:
            return value
        if value is None:
            raise Failed(ErrorKind.MISSING_ATTRIBUTE, reason)
        return primitive(value)

    return attribute


# -- operands of a type


def _string(operand: Compiled) -> Callable[[Attributes], str]:
    run = operand.run
    return lambda attributes: as_string(run(attributes))


def _boolean(operand: Compiled) -> Test:
    run = operand.run
    # Known without an event, so the cast is left out for each event.
    if operand.type is Type.BOOLEAN:
        return run  # type: ignore[return-value]  # the type of the operand is known to be Boolean
    return lambda attributes: as_boolean(run(attributes))


# -- operators


def _not(node: Not, operand: Compiled) -> Test:
    """An operand that cannot be cast to Boolean counts as false: the result is true, with an error.

    The conformance suite requires this for an Integer other than 0 too, although the table in 3.7 casts it to
    true. A filter does not pass in either case.
    """
    run = operand.run

    def negation(attributes: Attributes) -> bool:
        value = run(attributes)
        if value is True or value is False:
            return not value
        if isinstance(value, str) and (written := value[: BOOLEAN_LENGTH_MAX + 1].lower()) in (
            "true",
            "false",
        ):
            return written == "false"
        if value == 0:
            return True
        failed = Failed(ErrorKind.CAST, f"NOT of {str(value)[:80]!r}", value=True)
        failed.source = node
        raise failed

    return negation


def _negative(operand: Run) -> Run:
    return _arithmetic("-", _constant(0), operand)


def _compare(node: Compare, functions: Functions, work: Work) -> Test:
    left, right = closure(node.left, functions, work), closure(node.right, functions, work)
    order = _ORDERS.get(node.comparison)
    if order is not None:
        return _ordered(order, left.run, right.run)
    equal = _equal(node, left, right)
    return equal if node.comparison == "=" else lambda attributes: not equal(attributes)


def _ordered(order: Callable[[int, int], bool], left: Run, right: Run) -> Test:
    def ordered(attributes: Attributes) -> bool:
        one, other = left(attributes), right(attributes)
        return order(as_integer(one), as_integer(other))

    return ordered


def _equal(node: Compare, left: Compiled, right: Compiled) -> Test:
    """CESQL 3.7: the left operand is cast to the type of the right one."""
    if isinstance(node.left, Attribute) and isinstance(node.right, Constant):
        return _equal_to(left.run, node.left.name, node.right.value)

    def equal(attributes: Attributes) -> bool:
        one, other = left.run(attributes), right.run(attributes)
        return one == other if one.__class__ is other.__class__ else CASTS[type_of(other)](one) == other

    return equal


def _equal_to(attribute: Run, name: str, wanted: Primitive) -> Test:
    """The fast path for `attribute = literal`, the most frequent comparison."""
    cast = CASTS[type_of(wanted)]
    if not isinstance(wanted, str):
        return lambda attributes: cast(attribute(attributes)) == wanted

    def equal(attributes: Attributes) -> bool:
        value = attributes.get(name)
        return value == wanted if value.__class__ is str else as_string(attribute(attributes)) == wanted

    return equal


def _arithmetic(operator: Operator, left: Run, right: Run) -> Run:
    """CESQL 3.2: a missing attribute takes precedence over a wrong type, so both operands are evaluated
    before either is cast.
    """
    calculate = _CALCULATIONS[operator]

    def arithmetic(attributes: Attributes) -> Primitive:
        one, other = left(attributes), right(attributes)
        result = calculate(as_integer(one), as_integer(other))
        if not INTEGER_MIN <= result <= INTEGER_MAX:
            raise Failed(ErrorKind.MATH, f"{result} does not fit 32 bits")
        return result

    return arithmetic


def _quotient(dividend: int, divisor: int) -> int:
    """Divide and round towards 0, unlike Python's `//`."""
    if divisor == 0:
        raise Failed(ErrorKind.MATH, "division by zero")
    whole = abs(dividend) // abs(divisor)
    return whole if (dividend < 0) == (divisor < 0) else -whole


def _remainder(dividend: int, divisor: int) -> int:
    """Return the remainder with the sign of the dividend, unlike Python's `%`."""
    return dividend - divisor * _quotient(dividend, divisor)


_CALCULATIONS: Final[Mapping[Operator, Callable[[int, int], int]]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": _quotient,
    "%": _remainder,
}


def _logic(connectives: Sequence[Connective], operands: Sequence[Test]) -> Test:
    """Evaluate from left to right: AND, OR and XOR have the same precedence. Spec: CESQL 3.6."""
    if all(connective == "AND" for connective in connectives):
        return _until(operands, stop=False)
    if all(connective == "OR" for connective in connectives):
        return _until(operands, stop=True)
    first, steps = operands[0], list(zip(connectives, operands[1:], strict=True))

    def logic(attributes: Attributes) -> bool:
        value = first(attributes)
        for connective, operand in steps:
            if connective == "XOR":
                # XOR needs both sides, so its right side is always evaluated.
                value = value != operand(attributes)
            elif value is (connective == "AND"):
                value = operand(attributes)
        return value

    return logic


def _until(operands: Sequence[Test], *, stop: bool) -> Test:
    """The fast path for a chain of one connective: the first operand equal to `stop` decides."""

    def chain(attributes: Attributes) -> bool:
        for operand in operands:
            if operand(attributes) is stop:
                return stop
        return not stop

    return chain


def _like(operand: Callable[[Attributes], str], pattern: str, work: Work) -> Test:
    matches = matcher(pattern, work.spend)
    return lambda attributes: matches(operand(attributes))


def _in(operand: Run, members: Sequence[Node], functions: Functions, work: Work) -> Test:
    """CESQL 3.4.5: the members are cast to the type of the left operand."""
    runs = [closure(member, functions, work).run for member in members]

    def among(value: Primitive, attributes: Attributes) -> bool:
        cast = CASTS[type_of(value)]
        return any(cast(run(attributes)) == value for run in runs)

    literals = [member.value for member in members if isinstance(member, Constant)]
    if len(literals) < len(members):
        return lambda attributes: among(operand(attributes), attributes)
    texts = frozenset(map(as_string, literals))

    def contained(attributes: Attributes) -> bool:
        """Every literal can be cast to String, so one set lookup decides for a String operand."""
        value = operand(attributes)
        return value in texts if value.__class__ is str else among(value, attributes)

    return contained


def _call(node: Call, functions: Functions, work: Work) -> Compiled:
    function = functions.find(node.name, len(node.arguments))
    if function is None:
        return Compiled(_missing(node), Type.BOOLEAN)
    run = checked(function)
    types = function.types(len(node.arguments))
    arguments = [
        (CASTS[type_], closure(argument, functions, work).run)
        for type_, argument in zip(types, node.arguments, strict=True)
    ]

    def call(attributes: Attributes) -> Primitive:
        values = [cast(argument(attributes)) for cast, argument in arguments]
        for value in values:
            if value.__class__ is str:
                # Functions take time in proportion to their texts, which the sender of the event chooses.
                work.spend(len(value))
        try:
            return run(*values)
        except Failed as failed:
            failed.source = node
            raise

    return Compiled(call, function.returns)


def _missing(node: Call) -> Run:
    def missing(_attributes: Attributes) -> Primitive:
        raise Failed(
            ErrorKind.MISSING_FUNCTION, f"unknown function {node.name} with {len(node.arguments)} arguments"
        )

    return missing
