"""The filters of a Trigger as one test: `exact`, `prefix`, `suffix`, `all`, `any`, `not`, `cesql` (also
`sql`), and `attributes`.

Spec: Knative Eventing, TriggerFilter; CloudEvents Subscriptions API 3.2.4. `attributes` is what
`spec.filter.attributes` becomes, no dialect that a user may write.

Laws: filters are ANDed. A dialect without content is not a filter: it is left out of what it stands in, and
`all`, `any`, `not` of nothing are none themselves; no filter at all passes every event. A CESQL expression
passes only by the Boolean true and no error.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from knative_gateway.filters.attributes import Attributes, lookup
from knative_gateway.filters.cesql.expression import compile_expression
from knative_gateway.filters.refusal import FilterError
from knative_gateway.filters.validation import ATTRIBUTES, validate
from knative_gateway.filters.work import Work

Test: TypeAlias = Callable[[Attributes], bool]
Filters: TypeAlias = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class CompiledFilters:
    """Filters ready to use.

    `test` None: there is none, every event passes. `work`: where its steps are counted.
    """

    test: Test | None
    work: Work

    def matches(self, attributes: Attributes) -> bool:
        """Whether an event with these context attributes passes.

        Raises:
            FilterWorkError: that takes more steps than it may.
        """
        return self.test is None or self.test(attributes)


def trigger_filters(spec: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The filters that a valid Trigger's spec means:

    `filters` if there are any, otherwise those of `filter`.
    """
    filters = spec.get("filters")
    if isinstance(filters, Sequence) and filters:
        return [each for each in filters if isinstance(each, Mapping)]
    older = spec.get("filter")
    wanted = older.get("attributes") if isinstance(older, Mapping) else None
    return [{ATTRIBUTES: wanted}] if wanted else []


def compile_filters(filters: Filters, work: Work | None = None) -> CompiledFilters:
    """All of them as one. `work`: where steps are counted, with those of others, by an owner that calls
    `begin`.

    Raises:
        FilterError: `validate` has problems with them.
    """
    problems = validate(filters, attributes_too=True)
    if problems:
        raise FilterError(str(problems[0]))
    counting = Work() if work is None else work
    test = _all(filters, counting)
    return CompiledFilters(
        _begun(test, counting) if test is not None and work is None and counting.used else test, counting
    )


def _begun(test: Test, work: Work) -> Test:
    def begun(attributes: Attributes) -> bool:
        work.begin()
        return test(attributes)

    return begun


def _dialect(filter_: Mapping[str, object], work: Work) -> Test | None:
    for name, content in filter_.items():
        if content:
            return _COMPILED[name](content, work)
    return None


def _exact(content: object, _work: Work) -> Test | None:
    return _each(content, _is)


def _prefix(content: object, _work: Work) -> Test | None:
    return _each(content, lambda name, wanted: _affix(name, lambda text: text.startswith(wanted)))


def _suffix(content: object, _work: Work) -> Test | None:
    return _each(content, lambda name, wanted: _affix(name, lambda text: text.endswith(wanted)))


def _attributes(content: object, _work: Work) -> Test | None:
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


def _all(content: object, work: Work) -> Test | None:
    return _conjunction(_inner(content, work))


def _any(content: object, work: Work) -> Test | None:
    tests = _inner(content, work)
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda attributes: any(test(attributes) for test in tests)


def _not(content: object, work: Work) -> Test | None:
    assert isinstance(content, Mapping), "validated"
    test = _dialect(content, work)
    return None if test is None else lambda attributes: not test(attributes)


def _cesql(content: object, work: Work) -> Test | None:
    assert isinstance(content, str), "validated"
    return compile_expression(content, work=work).matches


def _inner(content: object, work: Work) -> list[Test]:
    assert isinstance(content, Sequence), "validated"
    return [test for filter_ in content if (test := _dialect(filter_, work)) is not None]


def _conjunction(tests: list[Test]) -> Test | None:
    if len(tests) < 2:
        return tests[0] if tests else None

    def conjunction(attributes: Attributes) -> bool:
        for test in tests:  # noqa: SIM110  a generator would take as long as the tests do
            if not test(attributes):
                return False
        return True

    return conjunction


_COMPILED: Final[Mapping[str, Callable[[object, Work], Test | None]]] = {
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
