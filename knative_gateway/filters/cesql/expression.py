"""CloudEvents SQL, version 1: an expression is compiled once and evaluated for each event.

`evaluate` never raises and never changes the event. It returns a value and at most one error, because the
first error ends the evaluation (CESQL 4.1). As a filter, an expression passes an event only if its value is
the Boolean true and no error occurred (CESQL 1.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from knative_gateway.filters.cesql.evaluate import Attributes, Run, closure
from knative_gateway.filters.cesql.functions import BUILT_IN, Functions
from knative_gateway.filters.cesql.parser import parse
from knative_gateway.filters.cesql.syntax import (
    Arithmetic,
    Attribute,
    Call,
    Compare,
    Constant,
    Exists,
    In,
    Like,
    Logic,
    Negative,
    Node,
    Not,
    Type,
)
from knative_gateway.filters.refusal import (
    LIMITS,
    ErrorKind,
    EvaluationError,
    Failed,
    Limits,
    ParseError,
    Primitive,
)
from knative_gateway.filters.work import NODE_STEPS, FilterWorkError, Work


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an evaluation."""

    value: Primitive
    errors: tuple[EvaluationError, ...] = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. Two expressions of the same text may differ."""

    tree: Node
    type: Type
    _run: Run
    _work: Work
    _steps: int
    """Steps for the nodes of the tree."""
    _alone: bool
    """Whether no other expression counts steps in `_work`."""

    def evaluate(self, attributes: Attributes) -> Result:
        """Return the value for an event with these attributes, and the errors."""
        self._begin()
        try:
            return Result(self._run(attributes))
        except Failed as failed:
            own = failed.value if failed.source is self.tree else None
            return Result(
                self.type.zero if own is None else own, (EvaluationError(failed.kind, failed.reason),)
            )
        except FilterWorkError as error:
            return Result(self.type.zero, (EvaluationError(ErrorKind.GENERIC, str(error)),))

    def matches(self, attributes: Attributes) -> bool:
        """Return whether an event with these attributes passes.

        Raises:
          FilterWorkError: the evaluation takes more steps than the limit.
        """
        self._begin()
        try:
            return self._run(attributes) is True
        except Failed:
            return False

    def _begin(self) -> None:
        if self._alone:
            self._work.begin()
        self._work.spend(self._steps)


def compile_expression(
    text: str, *, functions: Functions = BUILT_IN, limits: Limits = LIMITS, work: Work | None = None
) -> Expression:
    """Compile an expression.

    Without `work`, each evaluation has its own step limit. With `work`, several expressions share one limit,
    and the caller must call `work.begin()` before each event.

    Raises:
      ParseError: the expression is malformed or exceeds a limit.
    """
    tree = parse(text, limits)
    counting = Work() if work is None else work
    counting.used = True
    run, type_ = closure(tree, functions, counting)
    return Expression(tree, type_, run, counting, NODE_STEPS * sum(1 for _ in _nodes(tree)), work is None)


def evaluate(
    text: str, attributes: Attributes, *, functions: Functions = BUILT_IN, limits: Limits = LIMITS
) -> Result:
    """Compile and evaluate once. A malformed text gives false and an error of the kind PARSE."""
    try:
        expression = compile_expression(text, functions=functions, limits=limits)
    except ParseError as error:
        return Result(Type.BOOLEAN.zero, (EvaluationError(ErrorKind.PARSE, str(error)),))
    return expression.evaluate(attributes)


def missing_functions(expression: Expression, functions: Functions = BUILT_IN) -> list[str]:
    """Return the calls of unknown functions, each as NAME/number of arguments.

    An expression with such a call can be compiled, and fails when the call is evaluated.
    """
    calls = (node for node in _nodes(expression.tree) if isinstance(node, Call))
    missing = (
        f"{call.name}/{len(call.arguments)}"
        for call in calls
        if functions.find(call.name, len(call.arguments)) is None
    )
    return list(dict.fromkeys(missing))


def _nodes(tree: Node) -> Iterator[Node]:
    waiting: Final[list[Node]] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(_inner(node)))


def _inner(node: Node) -> tuple[Node, ...]:
    match node:
        case Constant() | Attribute() | Exists():
            return ()
        case Not(operand) | Negative(operand) | Like(operand):
            return (operand,)
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case Logic(first, rest):
            return (first, *(operand for _, operand in rest))
        case In(operand, members):
            return (operand, *members)
        case Call(_, arguments):
            return arguments
        case _:
            assert_never(node)
