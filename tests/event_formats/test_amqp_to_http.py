"""The fast reader returns the same as the general reader, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from event_formats.amqp_binding import decode, encode
from event_formats.amqp_to_http import MessageTranscoder
from event_formats.errors import InvalidEventError
from event_formats.event import CloudEvent
from event_formats.http_binding import to_binary
from event_formats.http_to_amqp import RequestTranscoder
from tests.event_formats.events import TEXTS, events

APART = "hops"
LAST = "arrived"
TRANSCODER = MessageTranscoder(apart=APART, last=LAST)
outgoing = TRANSCODER.outgoing
REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def check(message: bytes) -> bool:
    """Return whether the fast reader accepted the message. If so, both readers return the same."""
    read = outgoing(message)
    if read is None:
        return False
    event = decode(message)
    assert (read.attributes, read.data) == (event.attributes, event.data)
    assert {name: type(value) for name, value in read.attributes.items()} == {
        name: type(value) for name, value in event.attributes.items()
    }
    departing = CloudEvent(
        {name: value for name, value in event.attributes.items() if name != APART}, event.data
    )
    assert read.lines == lines(departing)
    assert sorted((read.lines + read.own).splitlines()) == sorted(lines(event).splitlines())
    return True


def lines(event: CloudEvent) -> bytes:
    """The header fields of an event as they go over the wire."""
    return "".join(f"{name}: {value}\r\n" for name, value in to_binary(event).headers).encode()


@given(st.one_of(events(), events(values=TEXTS)))
def test_any_event_is_read_as_the_general_path_reads_it(event: CloudEvent) -> None:
    check(encode(event))


@given(
    st.one_of(
        st.builds(encode, events()),
        st.just(encode(CloudEvent({**REQUIRED, APART: 9, "datacontenttype": "text/plain"}, b"x"))),
    ),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.integers(0, 400),
)
def test_a_message_that_is_broken_is_not_read_otherwise_here(
    message: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    """The fast reader never accepts what the general reader refuses."""
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
    assert outgoing(encode(CloudEvent(REQUIRED))[:-4] + message) is None or check(
        encode(CloudEvent(REQUIRED))[:-4] + message
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"datacontenttype": "application/json"},
        {"time": "2024-05-01T12:00:00.123Z", "subject": "a b%", "dataschema": "urn:x"},
        {"partitionkey": "kitchen", APART: 255, "knativearrivaltime": "2026-01-02T03:04:05.000678Z"},
        {"n": -5, "big": 1 << 30, "yes": True, "no": False, APART: 3},
        {f"x{number}": "v" * 250 for number in range(60)},
    ],
)
@pytest.mark.parametrize("body", [None, b"", b"1234", b"x" * 255, b"x" * 256, b"x" * 70_000])
def test_the_usual_event_is_read_here(more: dict[str, str | int], body: bytes | None) -> None:
    message = encode(CloudEvent({**REQUIRED, **more}, body))
    for _ in range(2):  # also when it is remembered
        assert check(message)


@given(
    st.lists(events(values=TEXTS), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(("1", "2", "a b", "%", "x" * 300, "cloudEvents_id")), TEXTS
        ),
        max_size=8,
    ),
)
def test_messages_that_differ_in_the_id_and_the_last_attribute_are_read_as_others_are(
    frames: list[CloudEvent], changes: list[tuple[int, str, str]]
) -> None:
    for frame, event_id, last in changes:
        event = frames[frame % len(frames)]
        check(encode(CloudEvent({**event.attributes, APART: 7, "id": event_id, LAST: last}, event.data)))


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 8),
    st.sampled_from((b"", b"x" * 300)),
)
def test_a_broken_message_in_a_known_frame_is_not_read_otherwise_here(
    changes: list[tuple[int, int]], cut: int, data: bytes
) -> None:
    for number in range(3):  # at the first time, the attributes are learnt; at the second time, the frame
        event = CloudEvent({**REQUIRED, APART: 255, "id": f"n{number}", LAST: f"t{number}"}, data)
        message = encode(event)
        assert check(message)
    broken = bytearray(message[: len(message) - cut])
    for at, byte in changes:
        broken[at % len(broken)] = byte
    try:
        decode(bytes(broken))
    except InvalidEventError:
        assert outgoing(bytes(broken)) is None
    else:
        check(bytes(broken))


def test_a_frame_is_learnt_from_the_second_message_and_the_memory_is_bounded() -> None:
    transcoder = MessageTranscoder(apart=APART, last=LAST)
    for number in range(5):
        message = encode(
            CloudEvent({**REQUIRED, "id": str(number), LAST: str(number), "datacontenttype": "a/b"}, b"")
        )
        read = transcoder.outgoing(message)
        assert read is not None
        assert read.attributes == decode(message).attributes
        assert len(transcoder._frames) == min(number, 1)
    for number in range(3000):  # a sender that always uses another source
        for event_id in ("1", "2"):
            source = {**REQUIRED, "id": event_id, "source": f"/{number}", LAST: "t"}
            assert transcoder.outgoing(encode(CloudEvent(source))) is not None
    assert 0 < len(transcoder._frames) <= 1024


def test_messages_of_the_fast_path_in_are_read_by_the_fast_path_out() -> None:
    headers = [(b"ce-" + name.encode(), value.encode()) for name, value in REQUIRED.items()]
    headers += [(b"host", b"h"), (b"content-type", b"text/plain"), (b"content-length", b"4")]
    begun = RequestTranscoder(is_ignored=lambda name: name == b"user-agent").head(headers)
    assert begun is not None
    assert check(begun.message(b"data"))


@pytest.mark.parametrize(
    "message",
    [
        Event(
            b"{}", content_type="application/cloudevents+json", properties={"cloudEvents_id": "2"}
        ).encode(),
        Event(
            b"x",
            properties={f"cloudEvents_{name}": value for name, value in REQUIRED.items()} | {"other": "y"},
        ).encode(),
        encode(CloudEvent({**REQUIRED, "x": "é"})),
        encode(CloudEvent({**REQUIRED, "x": b"bytes"})),
        encode(CloudEvent({**REQUIRED, "x": "y" * 300})),
        encode(CloudEvent(REQUIRED), {"x-request-id": "r"}),
        encode(CloudEvent({"specversion": "1.0", "id": "1", "source": "/s"})),
        encode(CloudEvent({**REQUIRED, "subject": 5})),
        encode(CloudEvent({**REQUIRED, "x": 1 << 31})),
        encode(CloudEvent({**REQUIRED, "datacontenttype": ""})),
    ],
)
def test_an_unusual_message_is_left_to_the_general_path(message: bytes) -> None:
    assert outgoing(message) is None


def test_unauthenticated_clients_do_not_fill_the_memory() -> None:
    transcoder = MessageTranscoder(apart=APART)
    for each in range(9000):
        attributes = {**REQUIRED, "type": str(each), f"n{each}": "x", "datacontenttype": f"a/b{each}"}
        assert transcoder.outgoing(encode(CloudEvent(attributes, b""))) is not None
        transcoder.outgoing(encode(CloudEvent({**REQUIRED, "type": str(each) * 50})))
    for memory in (transcoder._pairs, transcoder._names, transcoder._content_types):
        assert 0 < len(memory) <= 4096
        assert max(map(len, memory)) <= 128
