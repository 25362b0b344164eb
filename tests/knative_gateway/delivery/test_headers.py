"""Headers of deliveries: knative-eventing-test-spec, "Derived (Reply) Events"; data plane contract,
"Observability"; W3C Trace Context.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats import amqp_binding
from knative_gateway.delivery.headers import (
    FORWARDED_BYTES_MAX,
    FORWARDED_MAX,
    delivery_headers,
    forwarded,
    hops_of,
    stored_with_reply,
    trace_headers,
)
from knative_gateway.dispatcher.posting.sending import lines
from tests.knative_gateway.delivery.made import event

TRACE, SPAN, CHILD = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b7ad6b7169203331"


def test_only_requests_to_subscribers_prefer_a_reply() -> None:
    """Brokers and Channels MUST indicate support for replies using `Prefer: reply` when sending to
    spec.subscriber.
    """
    assert delivery_headers(reply_wanted=True, namespace="default") == [
        ("Prefer", "reply"),
        ("Kn-Namespace", "default"),
    ]


def test_requests_to_reply_and_dead_letter_destinations_prefer_nothing() -> None:
    """A sender that processes a reply MUST include the header. The gateway does not process replies of these
    destinations.
    """
    assert delivery_headers() == []


def test_a_dead_letter_says_its_namespace_and_asks_for_no_reply() -> None:
    assert delivery_headers(namespace="default") == [("Kn-Namespace", "default")]


def test_when_to_come_again_goes_with_a_reply_only() -> None:
    """The Retry-After of a sender has no meaning for subscribers."""
    headers = [(b"Retry-After", b"5"), (b"knative-x", b"1")]
    assert forwarded(headers) == [("knative-x", "1")]
    assert forwarded(headers, of_reply=True) == [("retry-after", "5"), ("knative-x", "1")]


@pytest.mark.parametrize(
    "field",
    [
        (b"x-request-id", b"a\r\nb: c"),
        (b"x-request-id", b"a\nb"),
        (b"x-request-id", b"a\x00"),
        (b"knative-a b", b"x"),
        (b"knative-a\r\nx", b"x"),
        (b"knative-\xc3\xa9", b"x"),
        (b"knative-x", b"x" * FORWARDED_BYTES_MAX),
    ],
)
def test_invalid_header_fields_are_dropped_and_the_others_kept(field: tuple[bytes, bytes]) -> None:
    """Clients that write into a log over AMQP choose these headers: the event must still be delivered."""
    assert forwarded([field, (b"knative-y", b"1"), field]) == [("knative-y", "1")]


@given(st.lists(st.tuples(st.binary(max_size=9).map(b"knative-".__add__), st.binary(max_size=9))))
def test_every_forwarded_header_can_be_sent(headers: list[tuple[bytes, bytes]]) -> None:
    lines(forwarded(headers))
    amqp_binding.encode(event(), stored_with_reply(headers))


def test_hops_are_read_and_not_passed_on() -> None:
    headers = [(b"Knative-Hops", b"7"), (b"knative-x", b"1")]
    assert hops_of(headers) == 7
    assert hops_of([]) == hops_of([(b"knative-hops", b"x")]) == hops_of([(b"knative-hops", b"9" * 5000)]) == 0
    assert forwarded(headers) == [("knative-x", "1")]
    assert stored_with_reply(headers) == {"knative-x": "1"}


def test_headers_of_a_reply_that_go_into_the_log_are_one_each() -> None:
    headers = [
        (b"Knative-A", b"1"),
        (b"knative-a", b"2"),
        (b"X-Request-Id", b"r"),
        (b"retry-after", b"5"),
        (b"knative-b", b"\xe9"),
    ]
    assert stored_with_reply(headers) == {"knative-a": "1, 2", "x-request-id": "r"}


def test_only_headers_on_the_list_are_passed_on() -> None:
    headers = [
        (b"Authorization", b"Bearer x"),
        (b"Cookie", b"x"),
        (b"X-Request-ID", b"1"),
        (b"Knative-One", b"a"),
        (b"knative-one", b"b"),
        (b"X-B3-TraceId", b"2"),
        (b"ce-id", b"9"),
        (b"traceparent", b"x"),
        (b"Content-Type", b"text/plain"),
        (b"Prefer", b"reply"),
        (b"Connection", b"close"),
        (b"Host", b"x"),
    ]
    kept = [("x-request-id", "1"), ("knative-one", "a"), ("knative-one", "b"), ("x-b3-traceid", "2")]
    assert forwarded(headers) == kept
    assert delivery_headers(passed_on=kept) == kept


def test_no_more_headers_are_passed_on_than_the_limit() -> None:
    assert len(forwarded([(b"knative-x", b"%d" % number) for number in range(100)])) == FORWARDED_MAX


def test_a_trace_continues_with_a_child() -> None:
    """Data plane contract, Observability: traceparent and tracestate may be modified for each delivery
    attempt.
    """
    traced = event(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="a=1,b=2")
    assert trace_headers(traced, CHILD) == [
        ("traceparent", f"00-{TRACE}-{CHILD}-01"),
        ("tracestate", "a=1,b=2"),
    ]


def test_an_event_without_a_trace_begins_one_if_asked() -> None:
    assert trace_headers(event(), CHILD) == []
    assert trace_headers(event(), CHILD, TRACE) == [("traceparent", f"00-{TRACE}-{CHILD}-01")]


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_a_trace_that_is_not_valid_is_not_passed_on(parent: str) -> None:
    """W3C Trace Context 3.2: a traceparent that is not valid MUST NOT be used, and no tracestate
    without it.
    """
    assert trace_headers(event(traceparent=parent, tracestate="a=1"), CHILD) == []


def test_of_a_later_version_only_what_is_known_is_passed_on() -> None:
    assert trace_headers(event(traceparent=f"01-{TRACE}-{SPAN}-ff-more"), CHILD) == [
        ("traceparent", f"00-{TRACE}-{CHILD}-01")
    ]
    assert trace_headers(event(traceparent=f"00-{TRACE}-{SPAN}-02"), CHILD) == [
        ("traceparent", f"00-{TRACE}-{CHILD}-00")
    ]


def test_a_trace_state_is_passed_on_up_to_its_limit() -> None:
    for length, kept in ((512, True), (513, False)):
        traced = event(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="a" * length)
        assert ("tracestate" in dict(trace_headers(traced, CHILD))) is kept


@given(st.text(max_size=600))
def test_no_trace_state_makes_a_header_that_cannot_be_sent(state: str) -> None:
    headers = dict(trace_headers(event(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate=state), CHILD))
    assert headers.get("tracestate", "").isprintable()
    assert headers.get("tracestate", "").isascii()
    assert len(headers.get("tracestate", "")) <= 512
