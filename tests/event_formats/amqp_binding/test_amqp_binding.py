"""Events as messages: reading returns what was written, and messages of other writers are read. CloudEvents
AMQP binding 1.0.2.
"""

import json
from contextlib import suppress
from typing import Any

import pytest
from cloudevents.core.bindings import amqp as sdk
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, symbol, timestamp

from amqp_streams.client import Event
from amqp_streams.client.raw import encode as encode_value
from amqp_streams.client.raw import sections
from amqp_streams.wire.sections import group_key
from event_formats.amqp_binding import decode, encode, passed_on, reading, writing
from event_formats.errors import InvalidEventError
from event_formats.event import CloudEvent
from tests.amqp_streams.decoded import binary, mapping
from tests.event_formats.events import ANNOUNCING, INTEGERS, TEXTS, events

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
PROPERTIES = {f"cloudEvents_{name}": value for name, value in REQUIRED.items()}


@given(events())
def test_an_event_comes_back_as_it_was(event: CloudEvent) -> None:
    message = encode(event)
    again = decode(message)
    assert (dict(again.attributes), again.data) == (dict(event.attributes), event.data)
    assert {name: type(value) for name, value in again.attributes.items()} == {
        name: type(value) for name, value in event.attributes.items()
    }


@given(events(TEXTS | INTEGERS | st.booleans(), ANNOUNCING))
def test_data_that_announces_an_event_comes_back_as_data(event: CloudEvent) -> None:
    """Binary mode would return the inner event instead, or no event."""
    message = encode(event, {"x-request-id": "r"})
    assert decode(message) == event
    assert passed_on(message) == [(b"x-request-id", b"r")]
    assert group_key(encode(CloudEvent({**event.attributes, "partitionkey": "k"}, event.data))) == "k"


@pytest.mark.parametrize(
    "content_type", ["application/cloudevents+avro", "application/cloudevents+json; charset=utf-16"]
)
def test_an_unknown_event_format_is_reported(content_type: str) -> None:
    with pytest.raises(InvalidEventError, match=r"utf-16|event format"):
        decode(Event(b"x", content_type=content_type).encode())


@given(events())
def test_others_read_it(event: CloudEvent) -> None:
    """AMQP binding 3.1: attributes are application properties, datacontenttype is content-type, the data is
    one data section.
    """
    theirs = Message()
    theirs.decode(encode(event))
    attributes = dict(event.attributes)
    # Proton returns the text "None" for an absent value.
    assert str(theirs.content_type) == str(attributes.pop("datacontenttype", None))
    assert theirs.properties == {f"cloudEvents_{name}": value for name, value in attributes.items()}
    assert theirs.body == event.data
    assert theirs.inferred is (event.data is not None)


def test_the_sdk_reads_it() -> None:
    message = Message()
    message.decode(
        encode(CloudEvent({**REQUIRED, "myext": "x", "datacontenttype": "application/json"}, b'{"a": 1}'))
    )
    theirs = sdk.from_binary(
        sdk.AMQPMessage(
            {"content-type": message.content_type}, mapping(message.properties), binary(message.body)
        ),
        JSONFormat(),
        SdkEvent,
    )
    assert (theirs.get_id(), theirs.get_extension("myext"), theirs.get_data()) == ("1", "x", {"a": 1})


@pytest.mark.parametrize("mode", [sdk.to_binary, sdk.to_structured])
def test_messages_of_the_sdk_are_read(mode: object) -> None:
    theirs = mode(
        SdkEvent({**REQUIRED, "myext": "x", "datacontenttype": "application/json"}, {"a": 1}), JSONFormat()
    )  # type: ignore[operator]
    properties = {
        name: timestamp(value) if name.endswith("time") else value
        for name, value in theirs.application_properties.items()
    }
    message = Message(theirs.application_data, inferred=True, properties=properties)
    message.content_type = symbol(theirs.properties["content-type"])
    event = decode(bytes(message.encode()))
    assert {name: event.attributes[name] for name in REQUIRED} == REQUIRED
    assert event.attributes["myext"] == "x"
    assert json.loads(event.data or b"") == {"a": 1}


def test_the_partition_key_is_the_group_key() -> None:
    """Event Streams 4.6.4 (group key), CloudEvents partitioning extension."""
    assert group_key(encode(CloudEvent({**REQUIRED, "partitionkey": "kitchen"}))) == "kitchen"
    assert group_key(encode(CloudEvent({**REQUIRED, "partitionkey": 5}))) == "5"
    assert group_key(encode(CloudEvent(REQUIRED, b"x"))) is None


def test_long_texts_and_many_attributes_have_room() -> None:
    many = {f"x{number}": "é" * number for number in range(200)}
    event = CloudEvent(
        {**REQUIRED, **many, "partitionkey": "k" * 999, "datacontenttype": "a/" + "b" * 300}, b"x" * 70_000
    )
    assert decode(encode(event)) == event


@pytest.mark.parametrize("prefix", ["cloudEvents_", "cloudEvents:"])
def test_both_prefixes_are_read(prefix: str) -> None:
    """AMQP binding 3.1.3.1: `cloudEvents_` or `cloudEvents:`; receivers SHOULD take both."""
    properties = {f"{prefix}{name}": value for name, value in REQUIRED.items()}
    message = Event(
        b"x", properties={**properties, "other": "y", "cloudEvents": "z"}, content_type="text/plain"
    ).encode()
    assert decode(message) == CloudEvent({**REQUIRED, "datacontenttype": "text/plain"}, b"x")


def test_one_attribute_in_both_spellings_must_agree() -> None:
    assert (
        decode(Event(b"", properties={**PROPERTIES, "cloudEvents:id": "1"}).encode()).attributes["id"] == "1"
    )
    with pytest.raises(InvalidEventError, match="id occurs in both spellings"):
        decode(Event(b"", properties={**PROPERTIES, "cloudEvents:id": "2"}).encode())


def test_native_types_are_read() -> None:
    """AMQP binding 3.1.3.2: receivers MUST take the native types and the canonical strings; milliseconds
    become RFC 3339.
    """
    properties: dict[str, Any] = {
        **PROPERTIES,
        "cloudEvents_time": timestamp(1714564800123),
        "cloudEvents_b": True,
        "cloudEvents_n": 7,
        "cloudEvents_y": b"\xff",
        "cloudEvents_s": symbol("sym"),
        "cloudEvents_none": None,
    }
    native = Message(b"x", inferred=True, properties=properties)
    event = decode(bytes(native.encode()))
    assert event.attributes == {
        **REQUIRED,
        "time": "2024-05-01T12:00:00.123Z",
        "b": True,
        "n": 7,
        "y": b"\xff",
        "s": "sym",
    }
    text = Event(
        b"", properties={**PROPERTIES, "cloudEvents_time": "2024-05-01T12:00:00.123456789+02:00"}
    ).encode()
    assert decode(text).attributes["time"] == "2024-05-01T12:00:00.123456789+02:00"


def test_structured_mode_is_read() -> None:
    """AMQP binding 3: content-type with the prefix application/cloudevents, in any case."""
    body = json.dumps({**REQUIRED, "datacontenttype": "application/json", "data": {"a": [1, 2]}}).encode()
    for content_type in ("application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8"):
        event = decode(Event(body, content_type=content_type, properties={"cloudEvents_id": "2"}).encode())
        assert event == CloudEvent({**REQUIRED, "datacontenttype": "application/json"}, b'{"a": [1, 2]}')


@pytest.mark.parametrize(
    ("body", "data"), [("text é", "text é".encode()), (b"bytes", b"bytes"), (None, None)]
)
def test_a_body_that_is_a_value_is_read_when_it_is_bytes_or_text(body: object, data: bytes | None) -> None:
    front = Event(b"", properties=PROPERTIES).encode().removesuffix(b"\x00\x53\x75\xa0\x00")
    assert decode(front + b"\x00\x53\x77" + encode_value(body)).data == data


def test_pieces_of_data_are_put_together() -> None:
    message = (
        Event(b"ab", properties=PROPERTIES).encode()
        + b"\x00\x53\x75\xa0\x02cd"
        + b"\x00\x53\x75\xb0\x00\x00\x00\x01e"
    )
    assert decode(message).data == b"abcde"


def test_headers_and_annotations_are_skipped() -> None:
    theirs = Message(
        b"x",
        inferred=True,
        durable=True,
        properties=PROPERTIES,
        annotations={symbol("a"): 1},
        instructions={symbol("b"): 2},
    )
    assert decode(bytes(theirs.encode())) == CloudEvent(REQUIRED, b"x")


def test_wide_and_long_spellings_are_read() -> None:
    """A map of 4-byte sizes, strings of 4-byte sizes, descriptors of 8 bytes: other writers' habits."""
    pairs = b"".join(
        b"\xb1" + len(text).to_bytes(4) + text
        for pair in PROPERTIES.items()
        for text in (pair[0].encode(), pair[1].encode())
    )
    section = b"\xd1" + (len(pairs) + 4).to_bytes(4) + (8).to_bytes(4) + pairs
    for descriptor in (b"\x00\x53\x74", b"\x00\x80" + (0x74).to_bytes(8)):
        assert decode(descriptor + section + b"\x00\x53\x75\xa0\x00") == CloudEvent(REQUIRED, b"")


@pytest.mark.parametrize(
    ("properties", "content_type", "body", "words"),
    [
        ({}, None, b"", "neither cloudEvents_specversion"),
        ({**PROPERTIES, "cloudEvents_id": ""}, None, b"", "id is empty"),
        ({**PROPERTIES, "cloudEvents_id": 5}, None, b"", "id is 5"),
        ({**PROPERTIES, "cloudEvents_x": 1.5}, None, b"", "x is a float"),
        ({**PROPERTIES, "cloudEvents_x": 1 << 40}, None, b"", "32 bits"),
        ({**PROPERTIES, "cloudEvents_A": "x"}, None, b"", "not an attribute name"),
        ({**PROPERTIES, "cloudEvents_datacontenttype": "x"}, None, b"", "use content-type"),
        (PROPERTIES, None, ["a"], "the body is a list"),
        (PROPERTIES, None, 5, "the body is a int"),
        ({}, "application/cloudevents-batch+json", b"[]", "batch"),
        ({}, "application/cloudevents+json", b"{", "JSON"),
    ],
)
def test_a_message_that_is_not_an_event_is_reported(
    properties: dict[str, object], content_type: str | None, body: object, words: str
) -> None:
    with pytest.raises(InvalidEventError, match=words):
        decode(Event(body, properties=properties or None, content_type=content_type).encode())


def test_a_time_that_is_not_valid_is_reported() -> None:
    with pytest.raises(InvalidEventError, match="not a time between the years"):
        decode(
            bytes(
                Message(
                    b"", inferred=True, properties={**PROPERTIES, "cloudEvents_time": timestamp(1 << 60)}
                ).encode()
            )
        )


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_garbage_is_reported_and_nothing_else_happens(garbage: bytes, at: int, value: int) -> None:
    message = encode(CloudEvent({**REQUIRED, "n": 5, "datacontenttype": "text/plain"}, b"data"))
    flipped = bytearray(message)
    flipped[at % len(message)] = value
    for bytes_ in (garbage, message[:at], bytes(flipped), message[: at % 80] + garbage):
        with suppress(InvalidEventError):
            decode(bytes_)


def test_unknown_names_by_the_thousand_do_not_fill_the_memory() -> None:
    for number in range(3 * 2048):
        decode(encode(CloudEvent({**REQUIRED, f"x{number}": "", "datacontenttype": f"a/{number}"})))
    for memory in (reading._names, reading._content_types, writing._keys, writing._content_types):
        assert 0 < len(memory) <= 2048


def test_the_message_has_the_sections_of_the_binding() -> None:
    message = encode(CloudEvent({**REQUIRED, "partitionkey": "k", "datacontenttype": "a/b"}, b"x"))
    assert [section.code for section in sections(message)] == [0x72, 0x73, 0x74, 0x75]


def test_headers_are_sent_with_an_event_and_are_not_attributes() -> None:
    event = CloudEvent({**REQUIRED, "datacontenttype": "a/b"}, b"x")
    message = encode(event, {"x-request-id": "r", "knative-a": "é" * 200})
    assert decode(message) == event
    assert passed_on(message) == [(b"x-request-id", b"r"), (b"knative-a", ("é" * 200).encode())]
    assert (
        passed_on(encode(event))
        == passed_on(Event(b"httpHeader_").encode())
        == passed_on(b"httpHeader_")
        == []
    )
