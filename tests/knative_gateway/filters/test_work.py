"""The limit on the work of filters for one event, counted in steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters import FilterWorkError, Index, compile_expression, compile_filters
from knative_gateway.filters import index as index_module
from knative_gateway.filters.cesql.expression import evaluate
from knative_gateway.filters.cesql.like import matcher
from knative_gateway.filters.refusal import ErrorKind
from knative_gateway.filters.work import STEPS_MAX, TEXT_MAX, Work

EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def test_steps_are_counted_from_the_beginning_of_each_evaluation() -> None:
    work = Work(10)
    work.begin()
    work.spend(10)
    assert work.spent == 10
    with pytest.raises(FilterWorkError, match="more than 10 steps"):
        work.spend(1)
    work.begin()
    assert work.spent == 0


@pytest.mark.parametrize("expression", ["LENGTH(CONCAT({})) > 5", "LENGTH(CONCAT_WS('-', {})) > 5"])
def test_a_text_that_is_too_long_is_never_made(expression: str) -> None:
    """An expression of 8,192 characters may name an attribute a thousand times."""
    text = expression.format(", ".join(["subject"] * 900))
    short = {**EVENT, "subject": "x" * ((TEXT_MAX - 900) // 900)}
    assert compile_expression(text).matches(short)
    result = evaluate(text, {**EVENT, "subject": "x" * 1000})
    assert [error.kind for error in result.errors] == [ErrorKind.FUNCTION_EVALUATION]
    assert not compile_expression(text).matches({**EVENT, "subject": "x" * 1000})


def test_an_expression_that_looks_at_a_long_text_too_often_is_given_up() -> None:
    text = " OR ".join(f"LOWER(subject) = '{number}'" for number in range(200))
    expression = compile_expression(text)
    assert expression.matches({**EVENT, "subject": "199"})
    with pytest.raises(FilterWorkError):
        expression.matches({**EVENT, "subject": "x" * 10_000})
    assert expression.matches({**EVENT, "subject": "199"}), "the next event has all its steps"
    result = evaluate(text, {**EVENT, "subject": "x" * 10_000})
    assert (result.value, [error.kind for error in result.errors]) == (False, [ErrorKind.GENERIC])


def test_the_filters_of_a_trigger_share_their_steps() -> None:
    filters = [{"cesql": f"LENGTH(subject) > {number}"} for number in range(1000)]
    compiled = compile_filters(filters)
    assert compiled.matches({**EVENT, "subject": "x" * 1001})
    assert 0 < compiled.work.spent <= STEPS_MAX
    with pytest.raises(FilterWorkError):
        compiled.matches({**EVENT, "subject": "x" * 10_000})


def test_filters_without_expressions_take_no_steps() -> None:
    compiled = compile_filters([{"exact": {"type": "t"}}])
    assert compiled.matches(EVENT)
    assert compiled.work.spent == 0


def test_all_subscribers_of_an_index_share_what_may_be_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "STEPS_MAX", 1000)
    index = Index([(number, [{"cesql": f"LENGTH(subject) > {number}"}]) for number in range(10)])
    assert index.matching({**EVENT, "subject": "xx"}) == [0, 1]
    assert 0 < index.spent < 1000
    with pytest.raises(FilterWorkError):
        index.matching({**EVENT, "subject": "x" * 100})


class Counted:
    """Steps as a matcher takes them."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise FilterWorkError


def test_a_pattern_that_nearly_matches_everywhere_is_given_up() -> None:
    """Text times pattern: 64 kB times 2,000 characters would be 130 million comparisons."""
    counted = Counted()
    matches = matcher("%" + "a_" * 1000 + "b%", counted)
    with pytest.raises(FilterWorkError):
        matches("a" * 65_536)
    assert counted.steps < STEPS_MAX + 3000


def test_a_pattern_that_rarely_begins_takes_about_the_length_of_the_text() -> None:
    counted = Counted()
    matches = matcher("%b_needle%", counted)
    assert not matches("haystack " * 10_000)
    assert matches("haystack " * 10_000 + "b needle, and more")
    assert counted.steps < 200_000


@given(st.text("ab", max_size=30), st.text("ab_%", max_size=12))
def test_counting_changes_nothing(text: str, pattern: str) -> None:
    assert matcher(pattern, Counted())(text) is matcher(pattern)(text)
