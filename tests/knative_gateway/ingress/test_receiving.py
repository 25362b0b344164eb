"""The attributes that the ingress adds to an event, and those that it does not change."""

import pytest
from hypothesis import given

from event_formats.attributes import check
from event_formats.event import CloudEvent
from knative_gateway.errors import BadRequestError
from knative_gateway.ingress.receiving import Arrivals, received
from tests.event_formats.events import events

NOW = "2026-01-02T03:04:05.000678Z"
EVENT = CloudEvent({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}, b"x")
OURS = {"knativebrokerttl", "knativearrivaltime", "traceparent", "tracestate"}


@given(events())
def test_everything_else_stays_as_it_was(event: CloudEvent) -> None:
    """knative-eventing-test-spec, Content Based Routing: the event data MUST NOT be modified."""
    for arrival in (NOW, None):
        kept = received(event, arrival, {"traceparent": "00-1"})
        check(kept.attributes)
        assert kept.data is event.data
        assert {name: value for name, value in kept.attributes.items() if name not in OURS} == {
            name: value for name, value in event.attributes.items() if name not in OURS
        }


def test_a_broker_counts_and_dates() -> None:
    kept = received(EVENT, NOW).attributes
    assert (kept["knativebrokerttl"], kept["knativearrivaltime"]) == (255, "2026-01-02T03:04:05.000678Z")
    assert received(EVENT, None) is EVENT


@pytest.mark.parametrize(("held", "left"), [(255, 254), ("3", 2), (2, 1), ("many", 255), (True, 255)])
def test_the_count_goes_down(held: int | str, left: int) -> None:
    event = CloudEvent({**EVENT.attributes, "knativebrokerttl": held})
    assert received(event, NOW).attributes["knativebrokerttl"] == left
    assert received(event, None) is event


@pytest.mark.parametrize("held", [1, 0, -5, "1"])
def test_one_that_went_round_too_often_goes_no_further(held: int | str) -> None:
    with pytest.raises(BadRequestError, match="went through too many Brokers"):
        received(CloudEvent({**EVENT.attributes, "knativebrokerttl": held}), NOW)


def test_the_trace_of_the_request_is_kept_unless_the_event_has_one() -> None:
    """Distributed tracing extension: the trace that an event began in is its own."""
    trace = {"traceparent": "00-2", "tracestate": "a=b"}
    assert received(EVENT, None, trace).attributes == {**EVENT.attributes, **trace}
    own = CloudEvent({**EVENT.attributes, "traceparent": "00-1"})
    assert received(own, None, trace) is own
    assert received(EVENT, None, {"tracestate": "a=b"}) is EVENT


def test_arrivals_are_reported_to_the_microsecond() -> None:
    arrivals = Arrivals()
    told = [
        arrivals.text(at) for at in (1767323045_000678_999, 1767323045_999999_000, 1767323046_000000_000, 0)
    ]
    assert told == [
        "2026-01-02T03:04:05.000678Z",
        "2026-01-02T03:04:05.999999Z",
        "2026-01-02T03:04:06.000000Z",
        "1970-01-01T00:00:00.000000Z",
    ]
