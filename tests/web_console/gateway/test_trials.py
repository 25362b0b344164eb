"""Filters that a person tries, and the results, as the page shows them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.gateway.trials import (
    ATTRIBUTES_MAX,
    EVENTS_MAX,
    FILTERS_MAX,
    FiltersError,
    Row,
    filters_of,
    options_of,
    pointer_of,
    rows_of,
)

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["events", "attributes", "reason", "offset", "type"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ({}, {"events": 20}),
        ({"filters": " a = 'b' ", "events": "5"}, {"events": 5, "filters": [{"cesql": "a = 'b'"}]}),
        ({"filters": '[{"exact": {"type": "x"}}]'}, {"events": 20, "filters": [{"exact": {"type": "x"}}]}),
        ({"filters": '{"not": {}}', "events": "9999"}, {"events": 100, "filters": [{"not": {}}]}),
        ({"events": "-1", "partition": " 3 "}, {"events": 20, "partition": 3}),
    ],
)
def test_a_form_is_an_expression_or_json_or_empty(form: dict[str, str], options: dict[str, object]) -> None:
    assert options_of(form) == options


@pytest.mark.parametrize(
    ("form", "words", "pointer"),
    [
        ({"filters": '[\n  {"exact": }\n]'}, "at line 2, column 13", '  {"exact": }\n            ^'),
        ({"filters": "[" * 16_000}, "too many levels", ""),
        ({"filters": "[" + "1" * 5000 + "]"}, "too long", ""),
        ({"filters": "x" * (FILTERS_MAX + 1)}, "at most 16,384 characters", ""),
        ({"partition": "<b>"}, "is not the number of a partition", ""),
    ],
)
def test_a_form_that_is_not_valid_says_where(form: dict[str, str], words: str, pointer: str) -> None:
    with pytest.raises(FiltersError, match=words) as refused:
        options_of(form)
    assert refused.value.pointer == pointer


def test_the_position_of_an_error_is_shown_below_the_expression() -> None:
    words = "filters are invalid: filters[0].cesql: … syntax error: found '>', at character 4"
    assert pointer_of("a >> 1", words) == "a >> 1\n   ^"
    assert pointer_of("a >> 1", "no position") == ""
    assert pointer_of('[{"cesql": "a >> 1"}]', words) == ""
    assert pointer_of("ab", "at character 999999") == "ab\n  ^"
    long = "x" * 500
    assert pointer_of(long, "at character 300") == f"{'x' * 80}\n{' ' * 40}^"


def test_rows_are_the_newest_first_and_bounded() -> None:
    attributes = {"type": "t", "source": "/s", "id": "1"} | {f"a{number}": "v" for number in range(60)}
    events = [
        {
            "partition": 0,
            "offset": number,
            "at_ms": 5,
            "attributes": attributes,
            "matches": True,
            "reason": "",
        }
        for number in range(EVENTS_MAX + 20)
    ]
    rows = rows_of({"events": events})
    assert len(rows) == EVENTS_MAX
    assert (rows[0].position, rows[0].type, rows[0].source, rows[0].id) == ("0:99", "t", "/s", "1")
    assert len(rows[0].attributes) == ATTRIBUTES_MAX


@given(st.dictionaries(st.just("events"), _VALUES))
def test_any_answer_can_be_shown(answer: dict[str, Any]) -> None:
    assert all(isinstance(row, Row) for row in rows_of(answer))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"filters": [{"cesql": "a = 1"}]}, "a = 1"),
        ({"filters": [{"exact": {"a": "1"}}]}, '[\n  {\n    "exact": {\n      "a": "1"\n    }\n  }\n]'),
        ({"filter": {"attributes": {"type": "x"}}}, ""),
        ({"filters": "odd"}, ""),
        (None, ""),
    ],
)
def test_the_form_begins_with_the_filters_of_the_trigger(spec: object, text: str) -> None:
    assert filters_of({"spec": spec}) == text
