"""Requests for events and paths are checked: each mistake is named."""

from collections.abc import Mapping

import pytest

from knative_gateway.paths.asked import (
    EVENTS_MAX,
    GIVEN_BYTES_MAX,
    LOOKED_AT_MAX,
    PARTITION_MAX,
    SKIP_MAX,
    SUBSCRIBERS_MAX,
    TEXT_MAX,
    traced_of,
    wanted_of,
)
from knative_gateway.resources.refusals import StatusError


def test_a_request_without_options_is_for_the_latest_events() -> None:
    wanted = wanted_of({})
    assert (wanted.partition, wanted.before, wanted.at_ms, wanted.is_search) == (None, None, None, False)


def test_marks_and_a_time_are_read() -> None:
    wanted = wanted_of({"before": {"0": 5, "12": 0}, "time": "1970-01-01T00:00:01Z", "id": "x"})
    assert wanted.before == {0: 5, 12: 0}
    assert wanted.at_ms == 1000
    assert wanted.is_search


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": 1}, "events does not have an option 'x'"),
        ({"events": EVENTS_MAX + 1}, "events must be a whole number from 1 to 100"),
        ({"events": True}, "events must be"),
        ({"partition": PARTITION_MAX + 1}, "partition must be"),
        ({"look_at": LOOKED_AT_MAX + 1}, "look_at must be"),
        ({"time": "yesterday"}, "time must be a time of RFC 3339"),
        ({"time": 5}, "time must be"),
        ({"id": 5}, "id must be a text"),
        ({"source": "s" * (TEXT_MAX + 1)}, "source must be a text"),
        ({"before": []}, "before must be offsets by partition"),
        ({"before": {"x": 1}}, "before must be"),
        ({"before": {"²": 1}}, "before must be"),
        ({"before": {"0": -1}}, "before must be"),
        ({"before": {"0": True}}, "before must be"),
        ({"before": {"0": 10**16}}, "before must be"),
        ({"before": {"9" * 8: 1}}, "before must be"),
    ],
)
def test_a_mistake_in_a_request_for_events_is_named(options: Mapping[str, object], words: str) -> None:
    with pytest.raises(StatusError, match=words) as refused:
        wanted_of(options)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        ({}, "needs the position of an event", 400),
        ({"partition": 0}, "needs the position of an event", 400),
        ({"partition": 0, "offset": -1}, "offset must be", 400),
        ({"partition": 0, "offset": 10**16}, "offset must be", 400),
        ({"partition": 0, "offset": 0, "limit": SUBSCRIBERS_MAX + 1}, "limit must be", 400),
        ({"partition": 0, "offset": 0, "skip": SKIP_MAX + 1}, "skip must be", 400),
        ({"partition": 0, "offset": 0, "filters": []}, "trace does not have an option 'filters'", 400),
        ({"event": {"type": "x"}}, "not a CloudEvent in the JSON format: .*specversion", 422),
        ({"event": "x"}, "not a CloudEvent in the JSON format", 422),
        ({"event": {"a": "\ud800"}}, "not Unicode", 400),
        ({"event": {"data": "x" * GIVEN_BYTES_MAX}}, "at most 262144 bytes", 400),
    ],
)
def test_a_mistake_in_a_request_for_a_path_is_named(
    options: Mapping[str, object], words: str, code: int
) -> None:
    with pytest.raises(StatusError, match=words) as refused:
        traced_of(options)
    assert refused.value.code == code


def test_an_event_that_is_given_is_read() -> None:
    given = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}, "celsius": 20}
    traced = traced_of({"event": given})
    assert traced.event is not None
    assert traced.event.attributes["celsius"] == 20
