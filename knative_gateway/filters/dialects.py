"""The filters of a Trigger as one test.

The dialects are `exact`, `prefix`, `suffix`, `all`, `any`, `not` and `cesql` (also `sql`). `attributes` is
the internal dialect for `spec.filter.attributes`; users cannot write it.

- Filters are ANDed. Without filters, every event passes.
- A dialect without content is ignored. `all`, `any` and `not` of ignored dialects are ignored too.
- A CESQL expression passes an event only if its value is the Boolean true and no error occurs.

Spec: Knative Eventing, TriggerFilter; CloudEvents Subscriptions API 3.2.4.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from knative_gateway.filters.attributes import Attributes, lookup
from knative_gateway.filters.cesql.expression import Expression, compile_expression
from knative_gateway.filters.refusal import LIMITS, FilterError
from knative_gateway.filters.validation import ATTRIBUTES, EXPRESSIONS, validate
from knative_gateway.filters.work import Work

_STORED: Final = replace(LIMITS, characters_in_all=sys.maxsize)
"""A stored Trigger may have more expressions than a new one: an earlier version accepted it."""

Test: TypeAlias = Callable[[Attributes], bool]
Filters: TypeAlias = Sequence[Mapping[str, object]]
Compile: TypeAlias = Callable[[str], Expression]


@dataclass(frozen=True, slots=True)
class CompiledFilters:
    """Compiled filters. `test` is None if every event passes. `work` counts the steps of the evaluation."""

    test: Test | None
    work: Work

    def matches(self, attributes: Attributes) -> bool:
        """Return whether an event with these context attributes passes.

        Raises:
          FilterWorkError: the evaluation takes more steps than the limit.
        """
        return self.test is None or self.test(attributes)


def trigger_filters(spec: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the filters of a valid Trigger's spec: `filters` if the list is not empty, else those of
    `filter`.
    """
    filters = spec.get("filters")
    if isinstance(filters, Sequence) and filters:
        return [each for each in filters if isinstance(each, Mapping)]
    older = spec.get("filter")
    wanted = older.get("attributes") if isinstance(older, Mapping) else None
    return [{ATTRIBUTES: wanted}] if wanted else []


def compile_filters(filters: Filters, work: Work | None = None) -> CompiledFilters:
    """Compile filters into one test.

    Without `work`, each evaluation has its own step limit. With `work`, several filters share one limit, and
    the caller must call `work.begin()` before each event.

    Raises:
      FilterError: the filters are not valid; `validate` returns all problems.
    """
    counting = Work() if work is None else work
    test = _all(filters, _checked(filters, counting))
    return CompiledFilters(
        _begun(test, counting) if test is not None and work is None and counting.used else test, counting
    )


def compile_each(filters: Filters, work: Work) -> list[tuple[Test | None, Expression | None]]:
    """Compile filters into a test for each, None if every event passes, and its expression if it has one.

    The caller must call `work.begin()` before each event.

    Raises:
      FilterError: the filters are not valid; `validate` returns all problems.
    """
    compiled = _checked(filters, work)
    return [(_dialect(each, compiled), _expression_of(each, compiled)) for each in filters]


def _expression_of(filter_: Mapping[str, object], compiled: Compile) -> Expression | None:
    texts = (content for name, content in filter_.items() if name in EXPRESSIONS and content)
    return next((compiled(text) for text in texts if isinstance(text, str)), None)


def _checked(filters: Filters, work: Work) -> Compile:
    """Check filters. Returns what gives their expressions: each is compiled once, to be checked and used."""
    expressions: dict[str, Expression] = {}

    def compiled(text: str) -> Expression:
        found = expressions.get(text)
        if found is None:
            found = expressions[text] = compile_expression(text, limits=_STORED, work=work)
        return found

    problems = validate(filters, attributes_too=True, limits=_STORED, compiled=compiled)
    if problems:
        raise FilterError(str(problems[0]))
    return compiled


def _begun(test: Test, work: Work) -> Test:
    def begun(attributes: Attributes) -> bool:
        work.begin()
        return test(attributes)

    return begun


def _dialect(filter_: Mapping[str, object], compiled: Compile) -> Test | None:
    for name, content in filter_.items():
        # Knative ignores a dialect without content, so such a filter must not exclude events.
        if content:
            return _COMPILED[name](content, compiled)
    return None


def _exact(content: object, _compiled: Compile) -> Test | None:
    return _each(content, _is)


def _prefix(content: object, _compiled: Compile) -> Test | None:
    return _each(content, lambda name, wanted: _affix(name, lambda text: text.startswith(wanted)))


def _suffix(content: object, _compiled: Compile) -> Test | None:
    return _each(content, lambda name, wanted: _affix(name, lambda text: text.endswith(wanted)))


def _attributes(content: object, _compiled: Compile) -> Test | None:
    """Spec: TriggerFilter: the attribute MUST be present; an empty string MUST match all values."""
    return _each(content, lambda name, wanted: _is(name, wanted) if wanted else _affix(name, _any_text))


def _any_text(_text: str) -> bool:
    return True


def _each(content: object, test: Callable[[str, str], Test]) -> Test | None:
    assert isinstance(content, Mapping), "validated"
    return _conjunction([test(name, wanted) for name, wanted in content.items()])


def _is(name: str, wanted: str) -> Test:
    text = lookup(name)
    return lambda attributes: text(attributes) == wanted


def _affix(name: str, test: Callable[[str], bool]) -> Test:
    text = lookup(name)

    def matches(attributes: Attributes) -> bool:
        value = text(attributes)
        return value is not None and test(value)

    return matches


def _all(content: object, compiled: Compile) -> Test | None:
    return _conjunction(_inner(content, compiled))


def _any(content: object, compiled: Compile) -> Test | None:
    tests = _inner(content, compiled)
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda attributes: any(test(attributes) for test in tests)


def _not(content: object, compiled: Compile) -> Test | None:
    assert isinstance(content, Mapping), "validated"
    test = _dialect(content, compiled)
    # An ignored dialect has no result that could be negated.
    return None if test is None else lambda attributes: not test(attributes)


def _cesql(content: object, compiled: Compile) -> Test | None:
    assert isinstance(content, str), "validated"
    return compiled(content).matches


def _inner(content: object, compiled: Compile) -> list[Test]:
    assert isinstance(content, Sequence), "validated"
    return [test for filter_ in content if (test := _dialect(filter_, compiled)) is not None]


def _conjunction(tests: list[Test]) -> Test | None:
    if len(tests) < 2:
        return tests[0] if tests else None

    def conjunction(attributes: Attributes) -> bool:
        for test in tests:  # noqa: SIM110  a generator expression takes as long as the tests themselves
            if not test(attributes):
                return False
        return True

    return conjunction


_COMPILED: Final[Mapping[str, Callable[[object, Compile], Test | None]]] = {
    "exact": _exact,
    "prefix": _prefix,
    "suffix": _suffix,
    "all": _all,
    "any": _any,
    "not": _not,
    "cesql": _cesql,
    "sql": _cesql,
    ATTRIBUTES: _attributes,
}
