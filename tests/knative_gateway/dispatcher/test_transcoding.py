"""The short way reads what the long one reads, or nothing at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from event_formats.amqp_binding import decode, encode
from event_formats.errors import InvalidEventError
from event_formats.event import CloudEvent
from event_formats.http_binding import to_binary
from knative_gateway.delivery.ttl import TTL, departing
from knative_gateway.dispatcher import transcoding
from knative_gateway.dispatcher.posting.sending import lines
from knative_gateway.dispatcher.transcoding import outgoing
from knative_gateway.ingress.transcoding import head
from tests.event_formats.events import TEXTS, events

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def check(message: bytes) -> bool:
    """Whether it was read here; then it is what the long way reads."""
    read = outgoing(message)
    if read is None:
        return False
    event = decode(message)
    assert (read.attributes, read.data) == (event.attributes, event.data)
    assert {name: type(value) for name, value in read.attributes.items()} == {name: type(value) for name, value in event.attributes.items()}
    assert fields(read.lines) == fields(lines(to_binary(departing(event)).headers))
    assert fields(read.lines + read.own) == fields(lines(to_binary(event).headers))
    return True


def fields(text: bytes) -> list[bytes]:
    """The header fields in some order that is always the same."""
    return sorted(text.split(b"\r\n"))


@given(st.one_of(events(), events(values=TEXTS)))
def test_any_event_is_read_as_the_long_way_reads_it(event: CloudEvent) -> None:
    check(encode(event))


@given(
    st.one_of(st.builds(encode, events()), st.just(encode(CloudEvent({**REQUIRED, TTL: 9, "datacontenttype": "text/plain"}, b"x")))),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.integers(0, 400),
)
def test_a_message_that_is_broken_is_not_read_otherwise_here(message: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    """What the long way refuses is never taken here."""
    broken = bytearray(message[: len(message) - cut] if cut < len(message) and cut % 3 == 0 else message)
    for at, byte in changes:
        broken[at % len(broken)] = byte
    try:
        decode(bytes(broken))
    except InvalidEventError:
        assert outgoing(bytes(broken)) is None
    else:
        check(bytes(broken))


@given(st.binary(max_size=60))
def test_garbage_is_left_alone(message: bytes) -> None:
    assert outgoing(message) is None
    assert outgoing(encode(CloudEvent(REQUIRED))[:-4] + message) is None or check(encode(CloudEvent(REQUIRED))[:-4] + message)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"datacontenttype": "application/json"},
        {"time": "2024-05-01T12:00:00.123Z", "subject": "a b%", "dataschema": "urn:x"},
        {"partitionkey": "kitchen", TTL: 255, "knativearrivaltime": "2026-01-02T03:04:05.000678Z"},
        {"n": -5, "big": 1 << 30, "yes": True, "no": False, TTL: 3},
        {f"x{number}": "v" * 250 for number in range(60)},
    ],
)
@pytest.mark.parametrize("body", [None, b"", b"1234", b"x" * 255, b"x" * 256, b"x" * 70_000])
def test_what_nearly_every_event_is_is_read_here(more: dict[str, str | int], body: bytes | None) -> None:
    message = encode(CloudEvent({**REQUIRED, **more}, body))
    for _ in range(2):  # also when it is remembered
        assert check(message)


def test_what_the_ingress_writes_is_read_here() -> None:
    headers = [(b"ce-" + name.encode(), value.encode()) for name, value in REQUIRED.items()]
    begun = head([(b"host", b"h"), *headers, (b"content-type", b"text/plain"), (b"content-length", b"4")], "2026-01-02T03:04:05.000678Z")
    assert begun is not None
    assert check(begun.message(b"data"))


@pytest.mark.parametrize(
    "message",
    [
        Event(b"{}", content_type="application/cloudevents+json", properties={"cloudEvents_id": "2"}).encode(),
        Event(b"x", properties={f"cloudEvents_{name}": value for name, value in REQUIRED.items()} | {"other": "y"}).encode(),
        encode(CloudEvent({**REQUIRED, "x": "é"})),
        encode(CloudEvent({**REQUIRED, "x": b"bytes"})),
        encode(CloudEvent({**REQUIRED, "x" * 120: "y"})),
        encode(CloudEvent({**REQUIRED, "x": "y" * 300})),
        encode(CloudEvent(REQUIRED), {"x-request-id": "r"}),
        encode(CloudEvent({"specversion": "1.0", "id": "1", "source": "/s"})),
        encode(CloudEvent({**REQUIRED, "subject": 5})),
        encode(CloudEvent({**REQUIRED, "x": 1 << 31})),
        encode(CloudEvent({**REQUIRED, "datacontenttype": ""})),
    ],
)
def test_what_is_out_of_the_ordinary_is_the_long_way_s_affair(message: bytes) -> None:
    assert outgoing(message) is None


def test_strangers_do_not_fill_the_memory() -> None:
    for each in range(2 * transcoding.REMEMBERED_MAX):
        outgoing(encode(CloudEvent({**REQUIRED, "type": str(each), f"n{each}": "x", "datacontenttype": f"a/b{each}"}, b"")))
        outgoing(encode(CloudEvent({**REQUIRED, "type": str(each) * 50})))
    for memory in (transcoding._pairs, transcoding._names, transcoding._content_types):
        assert len(memory) <= transcoding.REMEMBERED_MAX
    assert max(map(len, transcoding._pairs)) <= 128
