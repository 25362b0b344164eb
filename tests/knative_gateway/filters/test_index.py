"""All Triggers of a Broker at once: knative-eventing-test-spec, "Content Based Routing"."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.dialects import compile_filters
from knative_gateway.filters.index import Index
from knative_gateway.filters.refusal import FilterError
from tests.knative_gateway.filters.filtering import EVENTS, FILTERS, Filter

EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t5", "number": 5}


@given(st.lists(FILTERS, max_size=12), st.lists(EVENTS, max_size=4))
def test_the_index_says_the_same_as_each_subscriber_s_own_filters(
    all_filters: list[list[Filter]], events: list[dict[str, object]]
) -> None:
    """The Broker MUST evaluate each associated Trigger's filter; and one that matches is named once, in the
    order of the Triggers.
    """
    index = Index(list(enumerate(all_filters)))
    compiled = [compile_filters(filters) for filters in all_filters]
    for event in events:
        assert index.matching(event) == [
            place for place, filters in enumerate(compiled) if filters.matches(event)
        ]


def test_triggers_with_the_same_filter_and_destination_each_get_the_event() -> None:
    """If multiple Triggers match, one delivery MUST be generated for each match. Duplicates MUST each
    generate separate ones.
    """
    same: list[Filter] = [{"exact": {"type": "t5"}}]
    index = Index([("a", same), ("b", []), ("a", same), ("c", [{"cesql": "number = 5"}])])
    assert index.matching(EVENT) == ["a", "b", "a", "c"]


def test_without_triggers_an_event_has_no_destination() -> None:
    assert Index[str]([]).matching(EVENT) == []


def test_filters_with_problems_are_refused() -> None:
    with pytest.raises(FilterError):
        Index([("a", [{"exact": {"type": ""}}])])


class Counted(dict[str, object]):
    """An event that counts how often each attribute is looked at."""

    def __init__(self, attributes: Mapping[str, object]) -> None:
        super().__init__(attributes)
        self.looks: Counter[str] = Counter()

    def get(self, key: str, default: object = None) -> object:
        self.looks[key] += 1
        return super().get(key, default)


@pytest.mark.parametrize(
    "filters",
    [
        lambda value: [{"exact": {"type": value}}],
        lambda value: [{"attributes": {"type": value}}],
        lambda value: [{"cesql": f"type = '{value}'"}],
        lambda value: [{"any": [{"exact": {"type": value}}, {"exact": {"type": value + "x"}}]}],
    ],
)
def test_a_hundred_triggers_that_ask_for_a_value_cost_one_look_at_the_event(filters: object) -> None:
    """100 Triggers with exact filters on `type` cost about as much as one."""
    assert callable(filters)
    index = Index([(number, filters(f"t{number}")) for number in range(100)])
    event = Counted(EVENT)
    assert index.matching(event) == [5]
    assert event.looks == {"type": 1}


def test_only_those_that_the_value_leaves_are_evaluated_further() -> None:
    index = Index(
        [(number, [{"exact": {"type": f"t{number}"}}, {"cesql": "number = 5"}]) for number in range(100)]
    )
    event = Counted(EVENT)
    assert index.matching(event) == [5]
    assert event.looks["number"] == 1


def test_a_trigger_is_evaluated_exactly_once_for_an_event() -> None:
    """The Broker MUST evaluate each associated Trigger exactly once: and equal ones together."""
    index = Index(
        [(number, [{"cesql": "source LIKE '/%'"}]) for number in range(50)]
        + [(50, [{"cesql": "number < 6"}])]
    )
    event = Counted(EVENT)
    assert index.matching(event) == list(range(51))
    assert event.looks == {"source": 1, "number": 1}


def test_the_attribute_that_rules_out_most_is_looked_up() -> None:
    index = Index([(number, [{"exact": {"source": "/s", "type": f"t{number}"}}]) for number in range(100)])
    event = Counted(EVENT)
    assert index.matching(event) == [5]
    assert event.looks["type"] == 2
    assert event.looks["source"] == 1


def test_values_that_are_not_strings_are_looked_up_by_their_text() -> None:
    index = Index([("five", [{"exact": {"number": "5"}}]), ("flag", [{"attributes": {"flag": "true"}}])])
    assert index.matching({**EVENT, "flag": True}) == ["five", "flag"]
