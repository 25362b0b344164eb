"""What an event gets on its way in, and what it keeps."""

from datetime import UTC, datetime

import pytest
from hypothesis import given

from knative_gateway.cloudevents.attributes import check
from knative_gateway.cloudevents.event import CloudEvent
from knative_gateway.errors import InvalidEventError
from knative_gateway.ingress.receiving import received
from tests.knative_gateway.events import events

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
EVENT = CloudEvent({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}, b"x")
OURS = {"knativebrokerttl", "knativearrivaltime", "traceparent", "tracestate"}


@given(events())
def test_everything_else_stays_as_it_was(event: CloudEvent) -> None:
    """knative-eventing-test-spec, Content Based Routing: the event data MUST NOT be modified."""
    for broker in (True, False):
        kept = received(event, broker=broker, now=NOW, trace={"traceparent": "00-1"})
        check(kept.attributes)
        assert kept.data is event.data
        assert {name: value for name, value in kept.attributes.items() if name not in OURS} == {
            name: value for name, value in event.attributes.items() if name not in OURS
        }


def test_a_broker_counts_and_dates() -> None:
    kept = received(EVENT, broker=True, now=NOW).attributes
    assert (kept["knativebrokerttl"], kept["knativearrivaltime"]) == (255, "2026-01-02T03:04:05.000678Z")
    assert received(EVENT, broker=False, now=NOW) is EVENT


@pytest.mark.parametrize(("held", "left"), [(255, 254), ("3", 2), (2, 1), ("many", 255), (True, 255)])
def test_the_count_goes_down(held: int | str, left: int) -> None:
    event = CloudEvent({**EVENT.attributes, "knativebrokerttl": held})
    assert received(event, broker=True, now=NOW).attributes["knativebrokerttl"] == left
    assert received(event, broker=False, now=NOW) is event


@pytest.mark.parametrize("held", [1, 0, -5, "1"])
def test_one_that_went_round_too_often_goes_no_further(held: int | str) -> None:
    with pytest.raises(InvalidEventError, match="went round"):
        received(CloudEvent({**EVENT.attributes, "knativebrokerttl": held}), broker=True, now=NOW)


def test_the_trace_of_the_request_is_kept_unless_the_event_has_one() -> None:
    """Distributed tracing extension: the trace that an event began in is its own."""
    trace = {"traceparent": "00-2", "tracestate": "a=b"}
    assert received(EVENT, broker=False, now=NOW, trace=trace).attributes == {**EVENT.attributes, **trace}
    own = CloudEvent({**EVENT.attributes, "traceparent": "00-1"})
    assert received(own, broker=False, now=NOW, trace=trace) is own
    assert received(EVENT, broker=False, now=NOW, trace={"tracestate": "a=b"}) is EVENT
