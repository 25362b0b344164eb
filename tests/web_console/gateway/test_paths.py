"""Answers of the gateway about events and their paths, as the pages show them; and forms, as requests."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web_console.gateway.paths import (
    ATTEMPTS_MAX,
    ATTRIBUTES_MAX,
    EVENTS_MAX,
    EVENTS_SHOWN_MAX,
    GIVEN_MAX,
    MARKS_MAX,
    SKIP_MAX,
    SUBSCRIBERS,
    curl_of,
    given_of,
    listed_of,
    listing_of,
    path_of,
    position_of,
    skip_of,
)

NOW_MS = 1_700_000_000_000
_NAMES = (
    *("events", "event", "attributes", "subscribers", "attempts", "dead_letter", "reply", "delivered"),
    *("at_ms", "took_ms", "partition", "offset", "before", "kind", "name", "matches", "state", "origins"),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=5))
def test_whatever_the_gateway_answers_a_page_is_made(answer: dict[str, Any]) -> None:
    listed_of(answer)
    path_of(answer)
    curl_of(answer, answer, with_token=False)


@given(st.dictionaries(st.sampled_from(("before", "time", "events", "id", "partition", "skip")), st.text()))
def test_any_form_is_a_request_or_refused_with_words(form: dict[str, str]) -> None:
    assert 0 <= skip_of(form) <= SKIP_MAX
    with suppress(ValueError):
        assert 1 <= int(str(listing_of(form, NOW_MS)["events"])) <= EVENTS_MAX


def test_a_page_leads_to_the_next_one() -> None:
    listed = listed_of(
        {"events": [{"partition": 0, "offset": 7, "attributes": {"id": "x"}}], "before": {"0": 7, "12": 3}}
    )
    assert listed.rows[0].position == "0:7"
    assert listed.more == "0:7,12:3"
    assert listing_of({"before": listed.more}, NOW_MS)["before"] == {"0": 7, "12": 3}


def test_the_fields_of_a_search_are_read() -> None:
    form = {"id": " 5 ", "source": "/s", "time": "2023-11-14T22:13", "partition": "3", "events": "999"}
    assert listing_of(form, NOW_MS) == {
        "events": EVENTS_MAX,
        "id": "5",
        "source": "/s",
        "time": "2023-11-14T22:13:00.000Z",
        "partition": 3,
    }


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"time": "noon"}, "is not a time"),
        ({"time": "-999999d"}, "is not a time of the calendar"),
        ({"partition": "x"}, "not the number of a partition"),
        ({"before": "0:1,x"}, "begin with the latest events"),
    ],
)
def test_a_mistake_is_named(form: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        listing_of(form, NOW_MS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "Paste one event"),
        ("[" * 100_000, "has at most"),
        ("[" * 50_000, "too many levels|not valid JSON"),
        ("x" * (GIVEN_MAX + 1), "has at most"),
    ],
)
def test_an_event_that_is_pasted_with_a_mistake_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        given_of({"event": text})


def test_a_step_has_its_state_its_failures_and_its_dead_letter() -> None:
    row = {
        "kind": "Trigger",
        "namespace": "n",
        "name": "t",
        "matches": True,
        "state": "dead-lettered",
        "here": False,
        "ahead": 1,
        "paused": True,
        "delivered": {"at_ms": 1000, "took_ms": 5},
        "attempts": [{"at_ms": 1, "attempt": 2, "code": 503, "reason": "r", "body": "b", "end": "dropped"}],
        "dead_letter": {
            "sink": "http://x/",
            "kind": "Broker",
            "namespace": "n",
            "name": "d",
            "partition": 0,
            "offset": 4,
        },
        "reply": {"id": "i", "source": "/r", "note": "gone"},
    }
    path = path_of({"event": {"partition": 0, "offset": 1}, "subscribers": [row], "total": 1, "matching": 1})
    [step] = path.steps
    assert step.kind == "trigger"
    assert step.words.startswith(
        "1 event is before it; paused; answered after 5 ms; last delivered 1970-01-01"
    )
    assert "another process" in step.words
    assert step.attempts[0].code == 503
    letter, reply = step.places
    assert (letter.title, letter.position) == ("Broker d", "0:4")
    assert (reply.what, reply.position, reply.note) == ("Reply /r i", "", "gone")


def test_lists_are_bounded() -> None:
    many: list[Any] = [{}] * 2000
    answer = {
        "events": many,
        "before": {str(number): number for number in range(5000)},
        "event": {"attributes": {str(number): "x" for number in range(500)}},
        "subscribers": [{"attempts": many}] * 500,
    }
    assert len(listed_of(answer).rows) == EVENTS_SHOWN_MAX
    assert listed_of(answer).more.count(",") == MARKS_MAX - 1
    path = path_of(answer)
    assert (len(path.attributes), len(path.steps), len(path.steps[0].attempts)) == (
        ATTRIBUTES_MAX,
        SUBSCRIBERS,
        ATTEMPTS_MAX,
    )


@pytest.mark.parametrize(("text", "at"), [("0:42", (0, 42)), (" 1:2 ", (1, 2)), ("1", None), ("a:b", None)])
def test_a_position_is_read(text: str, at: tuple[int, int] | None) -> None:
    assert position_of(text) == at


def _traced(**event: object) -> dict[str, Any]:
    return {"event": {"attributes": {"id": "1", "specversion": "1.0"}, **event}}


def test_the_command_of_an_event_has_its_data_only_if_the_gateway_shows_all_of_it() -> None:
    source = {"status": {"address": {"url": "http://g/broker/d/b"}}}
    whole = curl_of(_traced(data="x y"), source, with_token=True).command
    assert "--data-raw 'x y'" in whole
    assert "Bearer $TOKEN" in whole
    none = curl_of(_traced(), source, with_token=False)
    assert none.command.endswith("--data-raw ''")
    assert "TOKEN" not in none.command
    for event in (_traced(data="x", is_cut=True), _traced(data_hex="00 ff")):
        assert "@event-data.bin" in curl_of(event, source, with_token=False).command


@pytest.mark.parametrize(
    ("answer", "source", "words"),
    [
        ({}, {}, "not a CloudEvent"),
        (_traced(), {}, "the URL"),
        (_traced(attributes={"id": "x" * 1024}), {}, "does not show all"),
        (_traced(attributes={f"a{number}": "" for number in range(50)}), {}, "does not show all"),
    ],
)
def test_an_event_without_a_command_says_why(
    answer: dict[str, Any], source: dict[str, Any], words: str
) -> None:
    assert words in curl_of(answer, source, with_token=False).problem
