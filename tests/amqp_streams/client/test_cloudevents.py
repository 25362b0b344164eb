"""Events of the CloudEvents SDK through the client, both ways."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.v03.event import CloudEvent as SdkEvent03
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event, ReceivedEvent
from amqp_streams.client.cloudevents import InvalidEventError, from_event, to_event
from event_formats.amqp_binding import decode, encode
from event_formats.event import CloudEvent
from tests.event_formats.events import ANNOUNCING, INTEGERS, TEXTS, events

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
TIME = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)


def sdk(data: Any = None, **attributes: Any) -> SdkEvent:
    return SdkEvent({**REQUIRED, "time": TIME, **attributes}, data)


@given(events() | events(TEXTS | INTEGERS | st.booleans(), ANNOUNCING))
def test_every_event_comes_back_through_the_sdk(event: CloudEvent) -> None:
    """A gateway stored the events. Sending them again gives the same events, with every attribute and
    byte.
    """
    read = from_event(ReceivedEvent(encode(event)), raw=True)
    attributes = read.get_attributes()
    assert ("time" in attributes) is ("time" in event.attributes)
    again = decode(to_event(read).encode())
    assert again.data == event.data
    assert {name: value for name, value in again.attributes.items() if name != "time"} == {
        name: value for name, value in event.attributes.items() if name != "time"
    }
    if "time" in attributes:
        assert datetime.fromisoformat(str(again.attributes["time"])) == datetime.fromisoformat(
            str(event.attributes["time"])
        )


@pytest.mark.parametrize(
    ("data", "content_type", "stored", "read"),
    [
        ({"f": 39.4}, None, b'{"f": 39.4}', {"f": 39.4}),
        ([1, 2], "application/json", b"[1, 2]", [1, 2]),
        ("é", "text/plain", "é".encode(), "é"),
        (b"\xff\x00", "application/octet-stream", b"\xff\x00", b"\xff\x00"),
        (b'{"a": 1}', "application/json", b'{"a": 1}', {"a": 1}),
        (None, None, None, None),
    ],
)
def test_data_is_read_as_the_sdk_reads_it(
    data: Any, content_type: str | None, stored: bytes | None, read: object
) -> None:
    event = to_event(sdk(data) if content_type is None else sdk(data, datacontenttype=content_type))
    assert event.body == stored
    assert from_event(event).get_data() == read
    assert from_event(event, raw=True).get_data() == stored
    assert (
        from_event(event.encode()).get_attributes()
        == from_event(ReceivedEvent(event.encode())).get_attributes()
    )


def test_an_event_has_the_form_that_a_gateway_stores() -> None:
    event = to_event(
        sdk(
            {"f": 1},
            partitionkey="roof",
            level=3,
            hot=True,
            raw=b"\x01",
            time=TIME.astimezone(timezone(timedelta(hours=1))),
        )
    )
    assert event == Event(
        b'{"f": 1}',
        "roof",
        {
            "cloudEvents_specversion": "1.0",
            "cloudEvents_id": "1",
            "cloudEvents_source": "/s",
            "cloudEvents_type": "t",
            "cloudEvents_time": "2026-01-02T04:04:05.000678+01:00",
            "cloudEvents_partitionkey": "roof",
            "cloudEvents_level": 3,
            "cloudEvents_hot": True,
            "cloudEvents_raw": b"\x01",
        },
        content_type="application/json",
    )


def test_0_3_stays_0_3() -> None:
    event = SdkEvent03({**REQUIRED, "specversion": "0.3", "time": TIME, "schemaurl": "/schema"}, b"x")
    again = from_event(to_event(event), raw=True)
    assert isinstance(again, SdkEvent03)
    assert again.get_attributes() == event.get_attributes()


@pytest.mark.parametrize(
    ("data", "attributes", "words"),
    [
        (
            {"a": 1},
            {"datacontenttype": "text/plain"},
            "data is a dict, and its type 'text/plain' is not JSON",
        ),
        ({"a": {1}}, {}, "data cannot be JSON"),
        ({"a": float("nan")}, {}, "data cannot be JSON"),
        (None, {"level": 1 << 40}, "level is 1099511627776: an integer has at most 32 bits"),
        (None, {"level": 1.5}, "level is 1.5: an attribute is"),
        (None, {"source": "a b:c"}, "not a URI-reference"),
        (None, {"seen": datetime(2026, 1, 1)}, "seen is a time without a zone"),
        (None, {"x" * 129: "y"}, "not an attribute name"),
    ],
)
def test_an_event_that_a_gateway_would_refuse_is_not_sent(
    data: Any, attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidEventError, match=words):
        to_event(sdk(data, **attributes))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Event(b"x").encode(), "this is not a CloudEvent"),
        (b"nonsense", "not an AMQP message"),
        (encode(CloudEvent({**REQUIRED, "time": "1990-12-31T23:59:60Z"})), "not a datetime of Python"),
    ],
)
def test_a_message_without_an_event_is_refused(message: bytes, words: str) -> None:
    with pytest.raises(InvalidEventError, match=words):
        from_event(message)


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(InvalidEventError):
        from_event(garbage)
