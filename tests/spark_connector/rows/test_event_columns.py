"""CloudEvents out of messages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.client.raw import APPLICATION_PROPERTIES, DATA, PROPERTIES, Timestamp
from spark_connector.rows.event_columns import ATTRIBUTES, Events, events_of
from spark_connector.rows.message_parts import Parts, take_apart

REQUIRED = {
    "cloudEvents_specversion": "1.0",
    "cloudEvents_id": "1",
    "cloudEvents_source": "/s",
    "cloudEvents_type": "t",
}


def read(*given: Event) -> tuple[Events, Parts]:
    parts = take_apart(
        [event.encode() for event in given], frozenset({PROPERTIES, APPLICATION_PROPERTIES, DATA})
    )
    return events_of(parts), parts


def structured(**attributes: object) -> Event:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | attributes
    return Event(json.dumps(event).encode(), content_type="application/cloudevents+json; charset=utf-8")


@pytest.mark.parametrize("prefix", ["cloudEvents_", "cloudEvents:"])
def test_both_spellings_of_attributes_are_read(prefix: str) -> None:
    properties = {name.replace("cloudEvents_", prefix): value for name, value in REQUIRED.items()}
    more = {
        f"{prefix}subject": "s",
        f"{prefix}time": "2026-01-31T12:00:00.5Z",
        f"{prefix}count": 5,
        f"{prefix}flag": True,
        "httpHeader_x": "y",
    }
    events, parts = read(Event(b"d", properties=properties | more, content_type="text/plain"))
    assert not parts.faults
    assert {name: events.texts(name)[0] for name in ATTRIBUTES} == {
        "id": "1",
        "source": "/s",
        "type": "t",
        "subject": "s",
        "datacontenttype": "text/plain",
        "specversion": "1.0",
        "dataschema": None,
    }
    assert events.times({}) == [1_769_860_800_500_000]
    assert events.extensions() == [{"count": "5", "flag": "true"}]
    assert events.data == [b"d"]


@pytest.mark.parametrize(
    ("time", "microseconds"),
    [
        ("2026-01-31T12:00:00Z", 1_769_860_800_000_000),
        ("2026-01-31t12:00:00z", 1_769_860_800_000_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000_000),
        ("2026-01-31T12:00:00.123456789Z", 1_769_860_800_123_456),
        ("1969-12-31T23:59:59.999999Z", -1),
        (Timestamp(1_769_860_800_001), 1_769_860_800_001_000),
        (None, None),
    ],
)
def test_times_are_read_to_the_microsecond(time: object, microseconds: int | None) -> None:
    events, _ = read(Event(b"", properties=REQUIRED | {"cloudEvents_time": time}))
    assert events.times({}) == [microseconds]


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ({"data": {"a": [1, "ü"]}}, b'{"a": [1, "\\u00fc"]}'),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text"}, b'"text"'),
        ({"data": "<x/>", "datacontenttype": "application/xml"}, b"<x/>"),
        ({"data": 5, "datacontenttype": "application/vnd.x+json"}, b"5"),
        ({"data_base64": "AP8="}, b"\x00\xff"),
        ({"data": None}, b"null"),
        ({}, None),
    ],
)
def test_events_that_are_json_are_read(given: dict[str, object], data: bytes | None) -> None:
    events, parts = read(structured(**given, extra=7))
    assert not parts.faults
    assert events.data == [data]
    assert events.extensions() == [{"extra": "7"}]
    assert events.texts("id") == ["1"]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Event(b"plain"), "this is not a CloudEvent"),
        (
            Event(
                b"",
                properties={
                    "cloudEvents_specversion": "1.0",
                    "cloudEvents_id": "1",
                    "cloudEvents_source": "/s",
                },
            ),
            "has no type",
        ),
        (Event(b"{", content_type="application/cloudevents+json"), "not a CloudEvent as JSON"),
        (Event(b"[" * 100_000, content_type="application/cloudevents+json"), "not a CloudEvent as JSON"),
        (Event(b"[]", content_type="application/cloudevents+json"), "not a CloudEvent as JSON"),
        (structured(data_base64="?"), "not Base64"),
        (structured(id="\ud800"), "half of a surrogate pair"),
        (structured(data="\udfff", datacontenttype="text/plain"), "half of a surrogate pair"),
        (
            Event(b'{"specversion":"1.0","id":"\xed\xa0\x80"}', content_type="application/cloudevents+json"),
            "not a CloudEvent as JSON",
        ),
        (
            Event("{}".encode("utf-16"), content_type="application/cloudevents+json"),
            "not a CloudEvent as JSON",
        ),
        (Event(None, content_type="application/cloudevents"), "not a CloudEvent as JSON"),
    ],
)
def test_a_row_that_is_not_an_event_is_a_fault_of_that_row_alone(event: Event, reason: str) -> None:
    good = Event(b"d", properties=REQUIRED)
    events, parts = read(good, event, good)
    assert list(parts.faults) == [1]
    assert reason in parts.faults[1]
    assert events.texts("id") == ["1", None, "1"]
    assert len(events.data) == len(events.times({})) == len(events.extensions()) == 3


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("noon", "'noon' is not a time of RFC 3339"),
        ("2026-01-31T12:00:00", "a time without a zone"),
        (Timestamp((1 << 63) - 1), "not in the years 1 to 9999"),
        (Timestamp(253_402_300_800_000), "not in the years 1 to 9999"),
        ("9999-12-31T23:59:59-01:00", "not in the years 1 to 9999"),
        ("0001-01-01T00:00:00+01:00", "not in the years 1 to 9999"),
    ],
)
def test_a_value_that_is_not_a_time_is_a_fault_of_its_row_and_the_other_rows_are_complete(
    time: object, reason: str
) -> None:
    events, parts = read(Event(b"d", properties=REQUIRED | {"cloudEvents_time": time}))
    assert events.times(parts.faults) == [None]
    assert reason in parts.faults[0]
    assert (events.texts("id"), events.data) == (["1"], [b"d"])


def test_attributes_of_any_type_and_length_are_read() -> None:
    more = {
        "cloudEvents_long": "x" * 500,
        "cloudEvents_n": 5,
        "cloudEvents_none": None,
        "x" * 300: "y",
        "other": 7,
    }
    events, parts = read(
        Event(b"", properties=REQUIRED | more), Event(b"", properties=REQUIRED | {"cloudEvents_n": 5})
    )
    assert not parts.faults
    assert events.extensions() == [{"long": "x" * 500, "n": "5"}, {"n": "5"}]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.dictionaries(
        st.sampled_from(["id", "source", "type", "time", "data", "data_base64", "datacontenttype", "x"]),
        json_values,
    )
)
def test_any_event_of_json_is_read_or_is_a_fault(attributes: dict[str, object]) -> None:
    events, parts = read(structured(**attributes))
    columns = [
        *map(events.texts, sorted(ATTRIBUTES)),
        [(pairs or {}).get("x") for pairs in events.extensions()],
    ]
    assert all(text is None or text.encode() is not None for column in columns for text in column)
    times = events.times(parts.faults)
    assert len(times) == 1
    assert events.data[0] is None or not parts.faults or times == [None]


@pytest.mark.parametrize("depth", [300, 900, 940, 980])
def test_deep_values_are_read_or_are_a_fault(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    for name in (b"data", b"x"):
        body = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","' + name + b'":' + deep + b"}"
        events, parts = read(Event(body, content_type="application/cloudevents+json"))
        if not parts.faults:
            assert [deep.decode()] == [
                events.data[0].decode() if events.data[0] else (events.extensions()[0] or {})["x"]
            ]
