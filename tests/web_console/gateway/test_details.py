"""One Trigger or Subscription from documents of the API, and starts of replays. Pure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.gateway.details import (
    CONDITIONS_MAX,
    FAILURES_MAX,
    PARTITIONS_MAX,
    Position,
    details_of,
    selected,
    start_of,
)

NOW_MS = 1_700_000_000_000
TRIGGER = {
    "metadata": {"annotations": {"knative-gateway/paused": "true"}},
    "spec": {"broker": "weather", "filter": {"attributes": {"type": "measured"}}},
    "status": {
        "subscriberUri": "http://s/",
        "deadLetterSinkUri": "http://d/",
        "conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": "M"}],
        "deliveries": {"delivered": 4, "odd": "x"},
    },
}
DELIVERIES = {
    "positions": [{"partition": 0, "offset": 4, "lag": 7}, {"partition": 1, "offset": None}],
    "failures": [
        {
            "at_ms": 5,
            "event_id": "1",
            "event_source": "/a",
            "partition": 0,
            "offset": 3,
            "attempt": 2,
            "code": 503,
            "reason": "status 503",
            "body": "no",
            "end": "dropped",
        }
    ],
}


def test_a_trigger_shows_its_settings_conditions_positions_and_failures() -> None:
    found = details_of(TRIGGER, DELIVERIES)
    assert (found.source, found.subscriber, found.sink) == ("weather", "http://s/", "http://d/")
    assert found.is_paused
    assert found.conditions[0].reason == "R"
    assert found.counts == {"delivered": 4}
    assert found.positions == [Position("0", 4, 7), Position("1", None, None)]
    [failure] = found.failures
    assert (failure.event, failure.position, failure.code, failure.end) == ("/a 1", "0:3", 503, "dropped")
    assert (found.redriven, found.redrive_left) == (0, 0)
    redriving = details_of(TRIGGER, {**DELIVERIES, "redrive": {"events": 5, "left": 2, "cancelled": "x"}})
    assert (redriving.redriven, redriving.redrive_left) == (5, 2)
    assert (found.source_kind, failure.is_event) == ("broker", True)
    assert json.loads(found.spec) == TRIGGER["spec"]


def test_a_subscription_has_its_urls_in_another_part_of_the_status() -> None:
    physical = {"subscriberUri": None, "replyUri": "http://r/", "deadLetterSinkUri": "http://d/"}
    found = details_of({"spec": {"channel": {"name": "c"}}, "status": {"physicalSubscription": physical}}, {})
    assert (found.source, found.subscriber, found.sink) == ("c", "http://r/", "http://d/")


def test_an_event_that_has_ended_can_be_selected_once() -> None:
    ended = {"partition": 3, "offset": 42, "end": "dead-lettered"}
    listed = [ended, {**ended, "end": ""}, ended, {**ended, "end": "skipped"}, {**ended, "offset": "<b>"}]
    found = details_of({}, {"failures": [*listed, {**ended, "offset": 7, "end": "dropped"}]})
    assert [each.choice for each in found.failures] == ["event.3.42", "", "", "", "", "event.3.7"]


def test_a_form_names_the_selected_events() -> None:
    form = {"csrf": "x", "which": "selected", "event.3.42": "on", "event.x.1": "on", "event.0.7": "on"}
    assert selected(form) == [{"partition": 3, "offset": 42}, {"partition": 0, "offset": 7}]
    many = {f"event.0.{number}": "on" for number in range(500)}
    assert len(selected(many)) == FAILURES_MAX
    with pytest.raises(ValueError, match="select at least one event"):
        selected({"which": "selected"})


def test_long_texts_and_lists_are_cut() -> None:
    found = details_of(
        {"spec": {"broker": "x" * 100_000}, "status": {"conditions": [{}] * 1000}},
        {"positions": [{}] * 9999, "failures": [{"body": "x" * 9999}] * 1000},
    )
    assert len(found.source) < 600
    assert len(found.spec) < 20_000
    assert len(found.conditions) == CONDITIONS_MAX
    assert len(found.positions) == PARTITIONS_MAX
    assert len(found.failures) == FAILURES_MAX
    assert len(found.failures[0].body) < 2100


NAMES = st.sampled_from(["metadata", "spec", "status", "conditions", "failures", "at_ms"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner),
    max_leaves=10,
)


@given(document=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), documents), other=documents)
def test_any_documents_can_be_shown(document: dict[str, object], other: object) -> None:
    details_of(document, {"positions": other, "failures": other})


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ({"to": "earliest"}, "earliest"),
        ({"to": "new", "at": "x"}, "new"),
        ({"to": "time", "at": "2026-11-21T06:30"}, "time=2026-11-21T06:30:00.000Z"),
        ({"to": "time", "at": "-1s"}, "time=2023-11-14T22:13:19.000Z"),
        ({"to": "offset", "at": " 042 ", "partition": "1"}, "offset=1=42"),
    ],
)
def test_the_form_gives_the_start_of_the_api(form: dict[str, str], start: str) -> None:
    assert start_of(form, NOW_MS) == start


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"to": "later"},
        {"to": "time", "at": "yesterday"},
        {"to": "time", "at": "-999999d"},
        {"to": "offset", "at": "4"},
        {"to": "offset", "at": "-4", "partition": "0"},
        {"to": "offset", "at": "4", "partition": "0=1,1"},
        {"to": "offset", "at": "٤", "partition": "0"},
    ],
)
def test_a_start_that_is_not_valid_is_refused_in_words(form: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"is not|belongs to|Choose"):
        start_of(form, NOW_MS)
