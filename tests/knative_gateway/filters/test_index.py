"""All Triggers of a Broker at once: knative-eventing-test-spec, "Content Based Routing"."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters.dialects import CompiledFilters, compile_filters
from knative_gateway.filters.index import Index
from knative_gateway.filters.refusal import FilterError
from knative_gateway.filters.work import Work
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
    index = Index([("a", same), ("b", []), ("a2", same), ("c", [{"cesql": "number = 5"}])])
    assert index.matching(EVENT) == ["a", "b", "a2", "c"]


def test_without_triggers_an_event_has_no_destination() -> None:
    assert Index[str]([]).matching(EVENT) == []


def test_filters_with_problems_are_refused() -> None:
    with pytest.raises(FilterError):
        Index([("a", [{"exact": {"type": ""}}])])


@given(
    st.lists(st.dictionaries(st.integers(0, 9), FILTERS, max_size=9), max_size=8),
    st.lists(EVENTS, max_size=3),
)
def test_a_changed_index_says_the_same_as_a_new_one(
    steps: list[dict[int, list[Filter]]], events: list[dict[str, object]]
) -> None:
    """Those that stay keep their place, whatever happens to their filters; new ones come last."""
    index, order = Index[int](), list[int]()
    for step in steps:
        index.become(list(step.items()))
        order = [key for key in order if key in step] + [key for key in step if key not in order]
        expected = Index([(key, step[key]) for key in order])
        for event in events:
            assert index.matching(event) == expected.matching(event)


def test_invalid_filters_change_nothing() -> None:
    index = Index([("a", [{"exact": {"type": "t5"}}]), ("b", [])])
    with pytest.raises(FilterError):
        index.become([("b", [{"exact": {"type": "t6"}}]), ("c", []), ("d", [{"exact": {"type": ""}}])])
    assert index.matching(EVENT) == ["a", "b"]


def test_two_that_exchange_their_filters_keep_their_places() -> None:
    first: list[Filter] = [{"exact": {"type": "t5"}}]
    second: list[Filter] = [{"exact": {"type": "t6"}}]
    index = Index([("a", first), ("b", second)])
    index.become([("a", second), ("b", first)])
    assert index.matching(EVENT) == ["b"]
    index.become([("a", first), ("b", first)])
    assert index.matching(EVENT) == ["a", "b"]


def test_one_trigger_more_compiles_its_filters_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand Triggers that come one by one cost a thousand compilations, not half a million."""
    compiled: list[object] = []

    def counted(filters: list[Filter], work: Work | None = None) -> CompiledFilters:
        compiled.append(filters)
        return compile_filters(filters, work)

    monkeypatch.setattr("knative_gateway.filters.index.compile_filters", counted)
    subscribers: list[tuple[int, list[Filter]]] = []
    index = Index[int]()
    for number in range(200):
        subscribers.append((number, [{"exact": {"source": "/s", "type": f"t{number}"}}]))
        index.become(subscribers)
    index.become(subscribers[::2])
    assert len(compiled) == 200
    event = Counted({**EVENT, "type": "t6"})
    assert index.matching(event) == [6]
    assert event.looks["source"] == 1, "the anchors are chosen again when there are many more"


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
