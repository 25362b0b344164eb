"""The dialects of a Trigger's filters:

Knative Eventing, TriggerFilter; CloudEvents Subscriptions API 3.2.4.
"""

import pytest
from hypothesis import given

from knative_gateway.filters.dialects import compile_filters, trigger_filters
from knative_gateway.filters.refusal import FilterError
from tests.knative_gateway.filters.filtering import EVENTS, FILTERS, Filter, meaning

EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "https://example.com/source",
    "type": "com.example.created",
    "subject": "",
    "count": 5,
    "flag": True,
    "dataschema": "/schema",
}
CREATED = {"exact": {"type": "com.example.created"}}
DELETED = {"exact": {"type": "com.example.deleted"}}
NOTHING: list[Filter] = [
    {},
    {"exact": {}},
    {"prefix": {}},
    {"suffix": {}},
    {"all": []},
    {"any": []},
    {"not": {}},
    {"cesql": ""},
    {"exact": None},
]


def passes(*filters: Filter) -> bool:
    return compile_filters(filters).matches(EVENT)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"type": "com.example.created"}, True),
        ({"type": "com.example.created", "id": "1"}, True),
        ({"type": "com.example.created", "id": "2"}, False),
        ({"type": "Com.Example.Created"}, False),
        ({"type": "com.example"}, False),
        ({"absent": "x"}, False),
        ({"type": ""}, True),
        ({"subject": ""}, True),
        ({"absent": ""}, False),
        ({"type": "", "absent": ""}, False),
        ({"count": "5"}, True),
        ({"flag": "true"}, True),
        ({"schemaurl": "/schema"}, True),
    ],
)
def test_filter_attributes_match_exactly_and_all_of_them(attributes: dict[str, str], expected: bool) -> None:
    """TriggerFilter: each key MUST be compared; all keys MUST match; the attribute MUST be present; a
    non-empty value MUST be an exact (case-sensitive) match; an empty string MUST match all attribute
    values."""
    assert passes(*trigger_filters({"filter": {"attributes": attributes}})) is expected


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        (CREATED, True),
        (DELETED, False),
        ({"exact": {"type": "com.example.created", "absent": "x"}}, False),
        ({"prefix": {"type": "com.example."}}, True),
        ({"prefix": {"type": "Com."}}, False),
        ({"prefix": {"type": "com.", "id": "1"}}, True),
        ({"prefix": {"type": "com.", "absent": "x"}}, False),
        ({"suffix": {"type": ".created"}}, True),
        ({"suffix": {"type": ".created", "source": ".com"}}, False),
        ({"suffix": {"count": "5"}}, True),
        ({"all": [CREATED, {"prefix": {"id": "1"}}]}, True),
        ({"all": [CREATED, DELETED]}, False),
        ({"any": [DELETED, CREATED]}, True),
        ({"any": [DELETED]}, False),
        ({"not": DELETED}, True),
        ({"not": CREATED}, False),
        ({"not": {"exact": {"absent": "x"}}}, True),
        ({"not": {"not": CREATED}}, True),
        ({"cesql": "type LIKE 'com.%' AND count > 4"}, True),
        ({"sql": "count > 5"}, False),
    ],
)
def test_a_dialect_passes_what_it_says(filter_: Filter, expected: bool) -> None:
    """Subscriptions API 3.2.4.1: exact, prefix, suffix of all attributes given; all, any, not of nested
    filters; sql.
    """
    assert passes(filter_) is expected


def test_all_filters_of_a_trigger_must_pass() -> None:
    """Subscriptions API 3.2.4: if any of the filter expressions evaluates to false, the event MUST NOT be
    sent.
    """
    assert passes(CREATED, {"prefix": {"id": "1"}})
    assert not passes(CREATED, {"prefix": {"id": "2"}})


@pytest.mark.parametrize("expression", ["count + 1", "'true'", "absent = 'x'", "NOT 10", "1 / 0 = 0"])
def test_an_expression_that_fails_or_is_not_a_boolean_passes_nothing(expression: str) -> None:
    """CESQL 1.2. The negation by `not` is that of false, and not an error."""
    assert not passes({"cesql": expression})
    assert passes({"not": {"cesql": expression}})


@pytest.mark.parametrize("nothing", NOTHING)
def test_a_dialect_without_content_is_not_a_filter(nothing: Filter) -> None:
    assert passes(nothing)
    assert passes({"not": nothing})
    assert passes({"any": [nothing]})
    assert passes({"all": [nothing, CREATED]})
    assert not passes({"all": [nothing, DELETED]})
    assert not passes({"any": [nothing, DELETED]})
    assert compile_filters([nothing]).test is None


def test_no_filters_pass_every_event() -> None:
    assert passes()
    assert passes(*trigger_filters({}))
    assert passes(*trigger_filters({"filter": {}}))
    assert passes(*trigger_filters({"filter": None, "filters": None}))


def test_filters_replace_the_older_filter_unless_they_are_empty() -> None:
    older = {"attributes": {"type": "com.example.deleted"}}
    assert trigger_filters({"filter": older, "filters": [CREATED]}) == [CREATED]
    assert trigger_filters({"filter": older, "filters": []}) == [older]
    assert trigger_filters({"filter": older}) == [older]


def test_filters_with_problems_are_not_compiled() -> None:
    with pytest.raises(FilterError, match=r"invalid value: type LIKE 5: filters\[0\].cesql"):
        compile_filters([{"cesql": "type LIKE 5"}])


@given(FILTERS, EVENTS)
def test_compiled_filters_say_what_filters_mean(filters: list[Filter], event: dict[str, object]) -> None:
    assert compile_filters(filters).matches(event) is meaning(filters, event)
