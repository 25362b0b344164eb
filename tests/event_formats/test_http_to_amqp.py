"""The fast path creates the same bytes as the general path, or none. HTTP binding 3.1 to AMQP binding 3.1."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats import http_binding
from event_formats.amqp_binding import encode, writing
from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from event_formats.http_binding import from_http, to_binary
from event_formats.http_to_amqp import RequestTranscoder
from tests.event_formats.events import TEXTS, events

Headers = list[tuple[bytes, bytes]]
PLAIN: Headers = [
    (b"host", b"h"),
    (b"ce-specversion", b"1.0"),
    (b"ce-id", b"1"),
    (b"ce-source", b"/s"),
    (b"ce-type", b"t"),
]
LENGTH = (b"content-length", b"4")
BODY = b"data"
ALONE = "hops"
VALUES = st.one_of(
    st.sampled_from(
        [
            b"",
            b"x",
            b"1.0",
            b"0.3",
            b"/s",
            b"urn:x",
            b"a:b c",
            b"%41",
            b'"q"',
            b"a\tb",
            b"2024-05-01T12:00:00Z",
            b"2023-02-29T12:00:00Z",
        ]
    ),
    st.sampled_from(
        [
            b"application/json",
            b"text/plain; a=b",
            b"application/cloudevents+json",
            b"4",
            b"04",
            b"-4",
            "é".encode(),
            b"\xff",
        ]
    ),
    st.binary(max_size=6),
    st.just(b"x" * 300),
)
NAMES = st.sampled_from(
    [
        *(
            b"host",
            b"content-length",
            b"content-type",
            b"user-agent",
            b"x-odd",
            b"ce-",
            b"ce-data",
            b"ce-A",
            b"ce-x",
            b"ce-" + b"y" * 129,
        ),
        *(
            b"ce-" + name
            for name in (
                b"specversion",
                b"id",
                b"source",
                b"type",
                b"subject",
                b"time",
                b"dataschema",
                b"schemaurl",
            )
        ),
        *(
            b"ce-" + name
            for name in (b"partitionkey", b"datacontenttype", b"datacontentencoding", ALONE.encode())
        ),
    ]
)


def transcoder() -> RequestTranscoder:
    return RequestTranscoder(left_alone=(ALONE,), is_ignored=lambda name: name == b"user-agent")


SHARED = transcoder()
"""Remembers the values of earlier examples."""


def check(headers: Headers, body: bytes) -> bool:
    """Return whether the fast path accepted the request. If so, both paths create the same bytes. It accepts
    nothing that the general path refuses.
    """
    begun = SHARED.head(headers)
    fresh = transcoder().head(headers)
    assert begun == fresh
    try:
        slow = encode(from_http(headers, body))
    except EventFormatError:
        assert begun is None or begun.length != len(body)
        return False
    if begun is None or begun.length != len(body):
        return False
    assert begun.message(body) == slow
    return True


@given(events(values=TEXTS))
def test_any_event_becomes_the_same_bytes(event: CloudEvent) -> None:
    message = to_binary(event)
    headers = [PLAIN[0], *((name.encode(), value.encode()) for name, value in message.headers)]
    check([*headers, (b"content-length", str(len(message.body)).encode())], message.body)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5), st.integers(0, 9), st.booleans())
def test_any_headers_become_the_same_bytes_or_are_left_to_the_slow_way(
    odd: Headers, at: int, added: bool
) -> None:
    plain = [*PLAIN, LENGTH] if added else PLAIN
    check([*plain[:at], *odd, *plain[at:]], BODY)
    check(odd, BODY)


@pytest.mark.parametrize("body", [b"1234", b"x" * 255, b"x" * 256, b"x" * 70_000])
@pytest.mark.parametrize(
    "more",
    [
        [],
        [(b"content-type", b"text/plain")],
        [
            (b"ce-time", b"2024-05-01T12:00:00.123Z"),
            (b"ce-subject", b"s"),
            (b"ce-dataschema", b"urn:x"),
            (b"user-agent", b"x"),
        ],
        [(b"ce-partitionkey", b"kitchen"), (b"content-type", b"text/plain")],
        [(b"content-type", b"text/plain"), (b"ce-partitionkey", b"kitchen")],
        [(b"ce-x%d" % number, b"v" * 250) for number in range(150)],
    ],
)
def test_usual_requests_are_made_here(more: Headers, body: bytes) -> None:
    assert check([*PLAIN, *more, (b"content-length", str(len(body)).encode())], body)


def test_added_attributes_are_the_last() -> None:
    begun = transcoder().head(
        [*PLAIN, LENGTH],
        (writing.attribute("a", 255), writing.attribute("b", "c"), writing.attribute("d", True)),
    )
    assert begun is not None
    event = from_http([*PLAIN, LENGTH], BODY)
    assert begun.message(BODY) == encode(
        CloudEvent({**event.attributes, "a": 255, "b": "c", "d": True}, BODY)
    )


@pytest.mark.parametrize("missing", range(6))
def test_a_request_that_lacks_something_is_left_to_the_slow_way(missing: int) -> None:
    headers = [*PLAIN, LENGTH]
    assert SHARED.head(headers[:missing] + headers[missing + 1 :]) is None


def test_a_request_with_two_hosts_or_one_that_is_not_valid_is_left_to_the_slow_way() -> None:
    """RFC 9112, 3.2: it is refused."""
    assert SHARED.head([*PLAIN, LENGTH]) is not None
    assert SHARED.head([*PLAIN, PLAIN[0], LENGTH]) is None
    for value in (b"a b@c", b"h/x", b"\xe9"):
        assert SHARED.head([(b"host", value), *PLAIN[1:], LENGTH]) is None


def test_no_data_needs_a_type() -> None:
    """HTTP binding: without a content type an empty body is not data."""
    assert SHARED.head([*PLAIN, (b"content-length", b"0")]) is None
    assert check([*PLAIN, (b"content-type", b"text/plain"), (b"content-length", b"0")], b"")


def test_unauthenticated_clients_do_not_fill_the_memory() -> None:
    """A request may have 64 kB of names and values."""
    mine = transcoder()
    for each in range(9000):
        mine.head([*PLAIN, (b"user-agent", str(each).encode()), (b"ce-n%d" % each, b"x"), LENGTH])
        mine.head([*PLAIN, (b"user-agent", str(each).encode() * 200), LENGTH])
    assert len(mine._headers) <= 4096
    assert len(mine._names) <= 4096
    assert max(len(value) for _, value in mine._headers) <= 128
    for length in (120, 124, 128, 129, 131, 132, 30_000):
        for name in (b"ce-" + b"z" * length, b"x" * length):
            mine.head([*PLAIN, (name, b"x"), LENGTH])
            with suppress(EventFormatError):
                encode(from_http([*PLAIN, (name, b"x"), LENGTH], b""))
    memories = (mine._names, writing._keys, http_binding._classified)
    assert max(len(name) for memory in memories for name in memory) <= len("ce-") + 128


@given(
    st.lists(st.tuples(NAMES.filter(lambda name: name != b"ce-id"), VALUES), max_size=4),
    st.booleans(),
    st.integers(0, 9),
    st.lists(VALUES, max_size=4),
    st.sampled_from([(), (writing.attribute(ALONE, 255), writing.attribute("added", "x"))]),
)
def test_a_request_in_a_known_frame_becomes_what_it_would_become_alone(
    more: Headers, plain: bool, place: int, ids: list[bytes], added: tuple[bytes, ...]
) -> None:
    headers = [*(each for each in PLAIN if plain and each[0] != b"ce-id"), LENGTH, *more]
    place = min(place, len(headers))
    headers.insert(place, (b"ce-id", b"1"))
    shared = transcoder()
    for value in ids:
        headers[place] = (b"ce-id", value)
        assert shared.head_in_frame("frame", headers, place, added) == transcoder().head(headers, added)


def test_a_frame_is_remembered() -> None:
    shared, headers = transcoder(), [LENGTH, *PLAIN, (b"content-type", b"a/b")]
    for value in (b"1", b"22", b"x" * 255):
        headers[3] = (b"ce-id", value)
        begun = shared.head_in_frame("frame", headers, 3)
        assert begun is not None
        assert begun == transcoder().head(headers)
        assert list(shared._frames) == ["frame"]
    for value in (b"", b"x" * 256, b'"1"', b"a%20b"):
        headers[3] = (b"ce-id", value)
        assert shared.head_in_frame("frame", headers, 3) is None
