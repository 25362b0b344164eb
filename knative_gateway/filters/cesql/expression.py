"""CloudEvents SQL, version 1: an expression compiled once and evaluated for each event. Spec: CESQL.

Laws: evaluation never raises and never changes the event: it gives a value and the errors, of which there is
at most one, for the first ends it (4.1). As a filter an expression passes an event only if its value is the
Boolean true and there is no error (1.2).
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
    """What an evaluation gives."""

    value: Primitive
    errors: tuple[EvaluationError, ...] = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was read. Equal texts need not give equal ones."""

    tree: Node
    type: Type
    _run: Run
    _work: Work
    _steps: int
    """Of its nodes."""
    _alone: bool
    """Nobody else counts the steps of `_work`."""

    def evaluate(self, attributes: Attributes) -> Result:
        """Its value for an event with these attributes, and the errors."""
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
        """Whether an event with these attributes passes.

        Raises:
            FilterWorkError: it takes more steps than it may.
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
    """Read an expression. `work`: where its steps are counted, with those of others, by an owner that calls
    `begin`.

    Raises:
        ParseError: it is malformed or beyond a limit.
    """
    tree = parse(text, limits)
    counting = Work() if work is None else work
    counting.used = True
    run, type_ = closure(tree, functions, counting)
    return Expression(tree, type_, run, counting, NODE_STEPS * sum(1 for _ in _nodes(tree)), work is None)


def evaluate(
    text: str, attributes: Attributes, *, functions: Functions = BUILT_IN, limits: Limits = LIMITS
) -> Result:
    """Read and evaluate once; a text that cannot be read is false and an error of kind PARSE."""
    try:
        expression = compile_expression(text, functions=functions, limits=limits)
    except ParseError as error:
        return Result(Type.BOOLEAN.zero, (EvaluationError(ErrorKind.PARSE, str(error)),))
    return expression.evaluate(attributes)


def missing_functions(expression: Expression, functions: Functions = BUILT_IN) -> list[str]:
    """Calls of functions that there are none of, each as NAME/number of arguments: such an expression fails
    where it is evaluated.
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
