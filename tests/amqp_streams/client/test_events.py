"""Events to bytes and back; Proton reads and writes the same."""

from uuid import UUID

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client.events import Event
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.errors import WireError
from amqp_streams.names import GROUP_KEY
from tests.amqp_streams.decoded import binary

texts = st.text(max_size=300)
simple = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts | st.binary(max_size=300)
events = st.builds(
    Event,
    body=st.binary(max_size=600)
    | texts
    | st.lists(simple, max_size=3)
    | st.dictionaries(texts, simple, max_size=3),
    key=st.none() | texts,
    properties=st.none() | st.dictionaries(texts, simple, max_size=5),
    subject=st.none() | texts,
    content_type=st.none() | st.sampled_from(["text/plain", "application/json"]),
    message_id=st.none() | texts | st.binary(max_size=20) | st.uuids(),
    correlation_id=st.none() | texts,
    creation_time_ms=st.none() | st.integers(0, 1 << 50),
    to=st.none() | texts,
    reply_to=st.none() | texts,
    annotations=st.none() | st.dictionaries(st.sampled_from(["x-a", "x-b"]), simple),
)


@given(events)
def test_encoded_events_decode_to_the_same(event: Event) -> None:
    received = ReceivedEvent(event.encode())
    for name in (
        "body",
        "key",
        "subject",
        "content_type",
        "message_id",
        "correlation_id",
        "creation_time_ms",
        "to",
        "reply_to",
    ):
        assert getattr(received, name) == getattr(event, name), name
    assert received.properties == (event.properties or {})
    assert {key: value for key, value in received.annotations.items() if key != GROUP_KEY} == (
        event.annotations or {}
    )


def test_proton_reads_what_is_written() -> None:
    message = proton.Message()
    event = Event(
        b"data",
        key="k",
        properties={"a": "b", "n": 5, "f": 1.5, "t": True},
        subject="s",
        content_type="text/plain",
        message_id="m",
        correlation_id=UUID(int=7),
        creation_time_ms=1_700_000_000_000,
        to="t",
        reply_to="r",
    )
    message.decode(event.encode())
    assert binary(message.body) == b"data"
    assert message.annotations == {GROUP_KEY: "k"}
    assert message.properties == {"a": "b", "n": 5, "f": 1.5, "t": True}
    assert (message.subject, message.content_type, message.id, message.correlation_id) == (
        "s",
        "text/plain",
        "m",
        UUID(int=7),
    )
    assert (message.creation_time, message.address, message.reply_to) == (1_700_000_000, "t", "r")


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_a_body_of_bytes_is_a_data_section_of_the_same_bytes(size: int) -> None:
    for body in (bytes(size), bytearray(size), memoryview(bytes(size))):
        received = ReceivedEvent(Event(body).encode())
        assert received.body == bytes(size)


@pytest.mark.parametrize("length", [0, 1, 226, 227, 228, 255, 256, 1000])
def test_keys_of_any_length_are_read_back(length: int) -> None:
    assert ReceivedEvent(Event(key="k" * length).encode()).key == "k" * length


def test_many_properties_need_a_wide_map() -> None:
    properties = {f"name{number}": "v" * 50 for number in range(300)}
    assert ReceivedEvent(Event(properties=properties).encode()).properties == properties


def test_a_value_without_an_amqp_type_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        Event(object()).encode()
    with pytest.raises(WireError):
        Event(properties={"a": object()}).encode()
