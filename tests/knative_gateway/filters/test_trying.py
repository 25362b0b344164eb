"""Trials of filters. The verdict is that of deliveries; the reason names the filter."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knative_gateway.filters import FilterError, compile_filters, trigger_filters
from knative_gateway.filters.trying import Trial, Verdict
from knative_gateway.filters.work import STEPS_MAX

EVENT = {"type": "measured", "source": "/roof", "celsius": "31"}
FILTERS: Sequence[Mapping[str, object]] = [
    {"exact": {"type": "measured"}},
    {"prefix": {"source": "/ro"}},
    {"suffix": {"source": "of"}},
    {"not": {"exact": {"type": "other"}}},
    {"any": [{"exact": {"type": "other"}}, {"cesql": "celsius > 30"}]},
    {"all": [{"exact": {"type": "other"}}]},
    {"cesql": "celsius > 40"},
    {"sql": "missing = 'x'"},
    {},
]


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ([{"exact": {"type": "other"}}], "filters[0].exact does not match"),
        ([{"exact": {"type": "measured"}}, {"prefix": {"source": "x"}}], "filters[1].prefix does not match"),
        ([{"not": {"exact": {"type": "measured"}}}], "filters[0].not does not match"),
        ([{"cesql": "celsius > 40"}], "filters[0].cesql is false"),
        ([{"cesql": "celsius"}], "filters[0].cesql is '31', not a Boolean"),
        ([{"cesql": "missing > 1"}], "filters[0].cesql fails: the event has no attribute missing"),
        (trigger_filters({"filter": {"attributes": {"type": "other"}}}), "filter.attributes does not match"),
    ],
)
def test_the_reason_names_the_filter(filters: Sequence[Mapping[str, object]], reason: str) -> None:
    assert Trial(filters).verdict(EVENT) == Verdict(False, reason)


@given(
    st.lists(st.sampled_from(FILTERS), max_size=4),
    st.dictionaries(
        st.sampled_from(["type", "source", "celsius"]), st.sampled_from(["measured", "/roof", "31", "50"])
    ),
)
def test_the_verdict_is_that_of_deliveries(
    filters: Sequence[Mapping[str, object]], event: Mapping[str, str]
) -> None:
    verdict = Trial(filters).verdict(event)
    assert verdict.matches is compile_filters(filters).matches(event)
    assert bool(verdict.reason) is not verdict.matches


def test_filters_that_need_too_many_steps_are_a_reason_and_are_counted() -> None:
    trial = Trial([{"cesql": " OR ".join(["a LIKE '%x%y%z%'"] * 300)}])
    verdict = trial.verdict({"a": "x" * 60_000})
    assert not verdict.matches
    assert "need more than" in verdict.reason
    assert trial.spent >= STEPS_MAX


def test_filters_that_are_not_valid_are_refused() -> None:
    with pytest.raises(FilterError):
        Trial([{"cesql": "a ="}])
