"""The fast path creates the message of the general path, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats.amqp_binding import decode, encode
from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from event_formats.http_binding import from_http, to_binary
from knative_gateway.errors import BadRequestError, UnsupportedMediaError
from knative_gateway.ingress.receiving import received
from knative_gateway.ingress.requests import Request
from knative_gateway.ingress.transcoding import head
from tests.event_formats.events import TEXTS, events

REFUSALS = (BadRequestError, UnsupportedMediaError, EventFormatError)
NOW = "2026-01-02T03:04:05.000678Z"
Headers = list[tuple[bytes, bytes]]
PLAIN: Headers = [
    (b"host", b"h"),
    (b"ce-specversion", b"1.0"),
    (b"ce-id", b"1"),
    (b"ce-source", b"/s"),
    (b"ce-type", b"t"),
]
BODY = b"data"
LENGTH = (b"content-length", b"4")
TYPE = (b"content-type", b"text/plain")

ODDITIES = [
    (b"ce-id", b"2"),
    (b"ce-x", b"y"),
    (b"ce-x", b"%41"),
    (b"ce-y", b'"quoted"'),
    (b"ce-y", b"tab\there"),
    (b"ce-my_ext", b"x"),
    (b"ce-", b"x"),
    (b"ce-data", b"x"),
    (b"ce-datacontenttype", b"text/plain"),
    (b"ce-datacontentencoding", b"base64"),
    (b"ce-schemaurl", b"/x"),
    (b"ce-dataschema", b"/relative"),
    (b"ce-dataschema", b"urn:x"),
    (b"ce-time", b"2024-05-01T12:00:00Z"),
    (b"ce-time", b"now"),
    (b"ce-subject", b""),
    (b"ce-subject", b"s"),
    (b"ce-specversion", b"2.0"),
    (b"ce-partitionkey", b"k"),
    (b"ce-partitionkey", b""),
    (b"ce-knativebrokerttl", b"5"),
    (b"ce-knativebrokerttl", b"1"),
    (b"ce-knativearrivaltime", b"x"),
    (b"ce-traceparent", b"00-1"),
    (b"traceparent", b"00-2"),
    (b"x-request-id", b"r"),
    (b"knative-x", b"r"),
    (b"content-type", b"application/json"),
    (b"content-type", b"nonsense"),
    (b"content-type", b"application/cloudevents+json"),
    (b"content-type", b"application/cloudevents+avro"),
    (b"content-type", b"text/plain;\tcharset=utf-8"),
    (b"content-type", b'text/plain; a="\x7f\x01"'),
    (b"ce-" + b"a" * 128, b"v"),
    (b"ce-" + b"a" * 129, b"v"),
    (b"ce-" + b"a" * 300, b"v"),
    (b"traceparent", b"00-\t1"),
    (b"ce-surrogate", b"\xed\xa0\x80"),
    (b"ce-noncharacter", b"%EF%BF%BE"),
    (b"content-encoding", b"gzip"),
    (b"content-encoding", b"identity"),
    (b"content-length", b"4"),
    (b"user-agent", b"ce-id"),
    (b"cookie", b"a=b"),
    (b"ce-long", b"x" * 300),
    (b"ce-utf", "é".encode()),
]
ODD = st.sampled_from(ODDITIES)


def the_long_way(headers: Headers, body: bytes, arrival: str | None) -> bytes:
    request = Request(headers)
    return encode(received(from_http(headers, body), arrival, request.trace), request.passed_on)


def check(headers: Headers, body: bytes, arrival: str | None) -> bool:
    """Return whether the fast path created the message. If so, it is equal to that of the general path."""
    begun = head(headers, arrival)
    if begun is None:
        return False
    assert begun.length == len(body)
    assert begun.message(body) == the_long_way(headers, body, arrival)
    return True


@given(events(values=TEXTS), st.sampled_from([NOW, None]))
def test_any_event_becomes_the_message_of_the_general_path(event: CloudEvent, arrival: str | None) -> None:
    message = to_binary(event)
    headers = [PLAIN[0], *((name.encode(), value.encode()) for name, value in message.headers)]
    check([*headers, (b"content-length", str(len(message.body)).encode())], message.body, arrival)


@given(st.permutations(PLAIN), st.lists(ODD, max_size=4), st.integers(0, 9), st.sampled_from([NOW, None]))
def test_odd_requests_are_made_alike_or_left_alone(
    plain: Headers, odd: Headers, at: int, arrival: str | None
) -> None:
    """The fast path never accepts what the general path refuses."""
    headers = [*plain[:at], *odd, *plain[at:], LENGTH]
    for _ in range(2):  # also when it is remembered
        try:
            the_long_way(headers, BODY, arrival)
        except REFUSALS:
            assert head(headers, arrival) is None
        else:
            check(headers, BODY, arrival)


@pytest.mark.parametrize("odd", ODDITIES)
def test_each_odd_header_is_taken_by_both_ways_or_by_neither(odd: tuple[bytes, bytes]) -> None:
    headers = [*PLAIN, odd, LENGTH]
    try:
        decode(the_long_way(headers, BODY, NOW))
    except REFUSALS:
        assert head(headers, NOW) is None
    else:
        check(headers, BODY, NOW)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"ce-id", b"ce-x", b"content-type", b"ce-time", b"content-length"]),
            st.binary(max_size=9),
        )
    )
)
def test_garbage_is_left_alone(headers: Headers) -> None:
    assert head(headers, None) is None


@pytest.mark.parametrize(
    "more",
    [
        [],
        [TYPE],
        [
            (b"ce-time", b"2024-05-01T12:00:00.123Z"),
            (b"ce-subject", b"s"),
            (b"ce-dataschema", b"urn:x"),
            TYPE,
        ],
        [(b"ce-partitionkey", b"kitchen"), TYPE],
        [TYPE, (b"ce-partitionkey", b"kitchen")],
        [(b"ce-a", b"1"), (b"ce-b", b"x y"), (b"authorization", b"Bearer x")],
        [(b"ce-x%d" % number, b"v" * 250) for number in range(150)],
    ],
)
@pytest.mark.parametrize("body", [b"1234", b"x" * 255, b"x" * 256, b"x" * 70_000])
def test_the_usual_request_is_transcoded_here(more: Headers, body: bytes) -> None:
    headers = [*PLAIN, *more, (b"content-length", str(len(body)).encode())]
    assert check(headers, body, NOW)
    assert check(headers, body, None)


def test_0_3_is_taken_as_it_is() -> None:
    headers = [PLAIN[0], *PLAIN[2:], (b"ce-specversion", b"0.3"), LENGTH]
    assert check(headers, BODY, NOW)


@pytest.mark.parametrize("missing", range(1, 5))
def test_a_request_without_a_required_attribute_takes_the_general_path(missing: int) -> None:
    assert head([*PLAIN[:missing], *PLAIN[missing + 1 :], LENGTH], None) is None


def test_a_request_without_one_host_is_left_alone() -> None:
    """RFC 9112, 3.2: it is refused, in words."""
    assert head([*PLAIN[1:], LENGTH], None) is None
    assert head([*PLAIN, PLAIN[0], LENGTH], None) is None


def test_a_request_without_a_length_or_data_is_left_alone() -> None:
    assert head(PLAIN, None) is None
    assert head([*PLAIN, (b"content-length", b"0")], None) is None
    assert head([*PLAIN, TYPE, (b"content-length", b"0")], None) is not None
    assert head([*PLAIN, (b"content-length", b"-1")], None) is None
