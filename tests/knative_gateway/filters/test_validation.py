"""The messages about filters for users: CloudEvents Subscriptions API 3.2.4, in the words of Knative."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters import validation
from knative_gateway.filters.cesql.expression import compile_expression
from knative_gateway.filters.dialects import compile_filters
from knative_gateway.filters.refusal import LIMITS, Limits
from knative_gateway.filters.validation import Problem, validate, validate_attributes
from tests.knative_gateway.filters.filtering import FILTERS, Filter

RULE = "Attribute name must start with a letter and can only contain lowercase alphanumeric"


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        (
            [{"exact": {"type": "x"}}, {"exact": {"type": "x"}, "prefix": {"type": "x"}}],
            Problem("filters[1]", "multiple dialects found, filters can have only one dialect set"),
        ),
        ([{"exact": {"Type": "x"}}], Problem("filters[0].exact[Type]", 'invalid key name "Type"', RULE)),
        ([{"prefix": {"": "x"}}], Problem("filters[0].prefix[]", 'invalid key name ""', RULE)),
        ([{"suffix": {"1st": "x"}}], Problem("filters[0].suffix[1st]", 'invalid key name "1st"', RULE)),
        ([{"exact": {"a-b": "x"}}], Problem("filters[0].exact[a-b]", 'invalid key name "a-b"', RULE)),
        ([{"exact": {"a\n": "x"}}], Problem("filters[0].exact[a\n]", 'invalid key name "a\n"', RULE)),
        (
            [{"exact": {"type": ""}}],
            Problem("filters[0].exact[type]", "invalid value: ", "the value must not be empty"),
        ),
        (
            [{"exact": {"type": 5}}],
            Problem("filters[0].exact[type]", "invalid value: 5", "expected a string"),
        ),
        (
            [{"exact": ["type"]}],
            Problem("filters[0].exact", "invalid value: ['type']", "expected attributes and their values"),
        ),
        (
            [{"cesql": "this is wrong"}],
            Problem(
                "filters[0].cesql",
                "invalid value: this is wrong",
                "parse error: syntax error: found 'is', expected an operator or the end, at character 6",
            ),
        ),
        (
            [{"sql": 5}],
            Problem("filters[0].sql", "invalid value: 5", "expected a CloudEvents SQL expression"),
        ),
        (
            [{"cesql": "NONE(1) = 1"}],
            Problem(
                "filters[0].cesql",
                "invalid value: NONE(1) = 1",
                "unknown function NONE/1 (name/number of arguments)",
            ),
        ),
        (
            [{"regex": {"type": "x"}}],
            Problem(
                "filters[0].regex",
                'unknown dialect "regex"',
                "supported are exact, prefix, suffix, all, any, not, cesql, sql",
            ),
        ),
        (
            [{"attributes": {"type": "x"}}],
            Problem(
                "filters[0].attributes",
                'unknown dialect "attributes"',
                "supported are exact, prefix, suffix, all, any, not, cesql, sql",
            ),
        ),
        (
            [{"any": [{"exact": {"type": "x"}}, {"not": {"exact": {"A": "x"}}}]}],
            Problem("filters[0].any[1].not.exact[A]", 'invalid key name "A"', RULE),
        ),
        (
            [{"all": {"exact": {"type": "x"}}}],
            Problem(
                "filters[0].all", "invalid value: {'exact': {'type': 'x'}}", "expected a list of filters"
            ),
        ),
        (
            [{"not": "x"}],
            Problem(
                "filters[0].not",
                "invalid value: x",
                "expected a filter, for example {exact: {type: example}}",
            ),
        ),
        (
            ["x"],
            Problem(
                "filters[0]", "invalid value: x", "expected a filter, for example {exact: {type: example}}"
            ),
        ),
        (
            {"exact": {"type": "x"}},
            Problem("filters", "invalid value: {'exact': {'type': 'x'}}", "expected a list of filters"),
        ),
        ("x", Problem("filters", "invalid value: x", "expected a list of filters")),
    ],
)
def test_a_problem_is_reported_with_its_field_and_the_expectation(filters: object, problem: Problem) -> None:
    """Subscriptions API 3.2.4: an unsupported dialect MUST be rejected with an error; names and values MUST
    NOT be empty; invalid expressions SHOULD be rejected."""
    assert validate(filters) == [problem]


def test_the_path_is_the_caller_s_and_the_words_are_in_one_text() -> None:
    (problem,) = validate([{"exact": {"A": "x"}}], "spec.filters")
    assert str(problem) == f'invalid key name "A": spec.filters[0].exact[A]\n{RULE}'
    (bare,) = validate([{"exact": {"a": "x"}, "cesql": "TRUE"}], "spec.filters")
    assert str(bare) == "multiple dialects found, filters can have only one dialect set: spec.filters[0]"


def test_all_problems_are_reported_at_once() -> None:
    found = validate(
        [{"exact": {"A": "x", "b": ""}}, {"cesql": "("}, {"any": [{"x": 1}, {"prefix": {"C": "x"}}]}]
    )
    assert [problem.field for problem in found] == [
        "filters[0].exact[A]",
        "filters[0].exact[b]",
        "filters[1].cesql",
        "filters[2].any[0].x",
        "filters[2].any[1].prefix[C]",
    ]


@pytest.mark.parametrize(
    "filters",
    [
        None,
        [],
        [{}],
        [{"exact": {}, "prefix": {"type": "x"}, "all": [], "not": None, "cesql": ""}],
        [{"exact": {"a": "x", "b2": "y"}}],
        [{"not": {"any": [{"all": [{"suffix": {"type": "x"}}]}]}}],
        [{"cesql": "EXISTS a AND LENGTH(b) > 3"}],
        [{"cesql": "1 + 1"}],
    ],
)
def test_usable_filters_have_no_problem(filters: object) -> None:
    assert validate(filters) == []


def test_the_older_filter_takes_empty_values_and_the_same_names() -> None:
    assert validate_attributes({"type": "", "source": "x"}) == []
    assert validate_attributes(None) == []
    assert validate_attributes({"Type": "x"}) == [
        Problem("filter.attributes[Type]", 'invalid key name "Type"', RULE)
    ]
    assert validate_attributes({"type": None}, "spec.filter.attributes") == [
        Problem("spec.filter.attributes[type]", "invalid value: None", "expected a string")
    ]
    assert [problem.message for problem in validate_attributes("x")] == ["invalid value: x"]


def test_filters_neither_nest_nor_grow_without_bound() -> None:
    deep: dict[str, object] = {"exact": {"type": "x"}}
    for _ in range(5000):
        deep = {"not": deep}
    assert [problem.message for problem in validate([deep])] == ["filters nest too deeply"]
    many = [{"any": [{"exact": {"type": "x"}}] * 5000}] * 50
    assert [problem.message for problem in validate(many)] == ["too many filters"]
    assert validate([{"exact": {"type": "x"}}] * 4, limits=Limits(filters=4)) == []


def test_the_expressions_of_a_trigger_are_bounded_together_and_the_rest_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = list[str]()

    def counted(text: str, *, limits: Limits) -> Any:
        compiled.append(text)
        return compile_expression(text, limits=limits)

    monkeypatch.setattr(validation, "compile_expression", counted)
    text = "type = 'a'"
    fit = LIMITS.characters_in_all // len(text)
    assert validate([{"cesql": text}] * min(fit, LIMITS.filters)) == []
    long = "type = '" + "a" * 4000 + "'"
    compiled.clear()
    problems = validate([{"any": [{"cesql": long}] * 100}])
    assert {(each.message, "16384" in each.details) for each in problems} == {("too many characters", True)}
    assert sum(map(len, compiled)) <= LIMITS.characters_in_all
    # An earlier version may have stored such a Trigger.
    assert compile_filters([{"any": [{"cesql": long}] * 10}]).test is not None


def test_a_long_value_is_not_repeated_whole() -> None:
    (problem,) = validate([{"cesql": "x" * 10_000}])
    assert len(problem.message) < 250


JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.sampled_from(("TRUE", "NONE()", "("))
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ("exact", "prefix", "all", "any", "not", "cesql", "sql", "x", "type", "A", "attributes")
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


@given(st.one_of(st.lists(JUNK, max_size=3), JUNK))
def test_any_filter_without_a_problem_can_be_compiled(filters: object) -> None:
    problems = validate(filters)
    if not problems:
        assert filters is None or isinstance(filters, list)
        compile_filters(filters or [])


@given(FILTERS)
def test_filters_that_mean_something_have_no_problem(filters: list[Filter]) -> None:
    assert validate(filters, attributes_too=True) == []
