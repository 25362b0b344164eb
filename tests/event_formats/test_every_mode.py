"""An event remains the same in every sequence of modes: HTTP in, AMQP in a log, HTTP out, and columns of
Spark in both directions.

Law: `decode(encode(event)) == event` for every event that an ingress admits. Differences that a binding
cannot express are ignored: in HTTP headers all values are text, and without a content type an empty body is
not data. JSON has no binary values, and the space around JSON data is not part of it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.client import Event
from amqp_streams.client.raw import APPLICATION_PROPERTIES, DATA, PROPERTIES
from event_formats.amqp_binding import decode, encode
from event_formats.amqp_to_http import MessageTranscoder
from event_formats.attributes import text_of
from event_formats.event import CloudEvent
from event_formats.http_binding import (
    HttpMessage,
    events_from_http,
    from_http,
    to_batch,
    to_binary,
    to_http,
    to_structured,
)
from event_formats.http_to_amqp import RequestTranscoder
from event_formats.json_format import write_event
from event_formats.media import STRUCTURED_JSON, fits_binary
from spark_connector.rows.event_columns import ATTRIBUTES, events_of
from spark_connector.rows.message_parts import take_apart
from spark_connector.writing.cloudevents import event_sections
from tests.event_formats.events import ANNOUNCING, TEXTS, TYPES, events

ANY = events() | events(types=ANNOUNCING)
WANTED = frozenset({PROPERTIES, APPLICATION_PROPERTIES, DATA})
COLUMNS = ("id", "source", "type", "subject", "time", "dataschema", "datacontenttype")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REQUEST = RequestTranscoder(is_ignored=lambda _name: False)
MESSAGE = MessageTranscoder()
pa.array([0])  # the first array takes the time of importing pandas


def raw(message: HttpMessage) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in message.headers]


def texts(event: CloudEvent) -> dict[str, str]:
    return {name: text_of(value) for name, value in event.attributes.items()}


def sent(event: CloudEvent) -> Iterator[HttpMessage]:
    """The event in the modes of HTTP that can carry it."""
    if fits_binary(event):
        yield to_binary(event)
    yield to_structured(event)
    yield to_batch([event])


def admitted(event: CloudEvent) -> Iterator[CloudEvent]:
    """The event as an ingress reads it, in each mode."""
    for message in sent(event):
        yield from events_from_http(raw(message), message.body)


def stored(event: CloudEvent) -> Iterator[bytes]:
    """The event as a message: as a gateway writes it, and in structured mode."""
    yield encode(event)
    yield encode(event, {"x-request-id": "r"})
    yield Event(write_event(event, binary=True), content_type=STRUCTURED_JSON).encode()


@given(ANY)
def test_an_event_is_admitted_alike_in_every_mode(event: CloudEvent) -> None:
    for seen in admitted(event):
        assert texts(seen) == texts(event)
        data, given = (b"" if one is None else one.strip(b" \t\r\n") for one in (seen.data, event.data))
        assert data == given


@given(ANY)
def test_a_log_keeps_every_event_as_it_was_admitted(event: CloudEvent) -> None:
    for seen in admitted(event):
        for message in stored(seen):
            kept = decode(message)
            assert (dict(kept.attributes), kept.data) == (dict(seen.attributes), seen.data)
            assert {name: type(value) for name, value in kept.attributes.items()} == {
                name: type(value) for name, value in seen.attributes.items()
            }


@given(ANY)
def test_an_event_from_a_log_is_delivered_alike_in_every_mode(event: CloudEvent) -> None:
    for structured in (False, True):
        message = to_http(decode(encode(event)), structured=structured)
        again = from_http(raw(message), message.body)
        assert texts(again) == texts(event)
        if structured or not fits_binary(event):
            assert (again.data is None) is (event.data is None)
            assert (again.data or b"").strip(b" \t\r\n") == (event.data or b"").strip(b" \t\r\n")
        else:
            assert again.data == event.data or not (again.data or event.data)


@given(events(values=TEXTS, types=TYPES | ANNOUNCING))
def test_the_fast_ways_give_what_the_slow_ones_give(event: CloudEvent) -> None:
    """In, and out again: the same bytes, or nothing."""
    body = b"" if event.data is None else event.data
    headers = [(b"host", b"h"), (b"content-length", str(len(body)).encode()), *raw(to_binary(event))]
    begun = REQUEST.head(headers)
    if begun is not None:
        assert begun.message(body) == encode(from_http(headers, body))
    for message in stored(event):
        fast = MESSAGE.outgoing(message)
        if fast is not None:
            slow = to_http(decode(message), structured=False)
            assert fast.lines == "".join(f"{name}: {value}\r\n" for name, value in slow.headers).encode()
            assert (fast.data or b"") == slow.body
            assert (fast.attributes, fast.data) == (dict(event.attributes), event.data)


@given(st.lists(ANY, min_size=1, max_size=3))
def test_spark_reads_what_a_gateway_delivers(batch: list[CloudEvent]) -> None:
    for way in range(3):
        messages = [list(stored(event))[way] for event in batch]
        parts = take_apart(messages, WANTED)
        rows = events_of(parts)
        assert not parts.faults
        for number, message in enumerate(messages):
            event = decode(message)
            shown = {name: rows.texts(name)[number] for name in ATTRIBUTES}
            shown = {name: text for name, text in shown.items() if text is not None}
            shown |= rows.extensions()[number] or {}
            assert shown == {name: text for name, text in texts(event).items() if name != "time"}
            assert rows.data[number] == event.data
            time = event.attributes.get("time")
            wanted = None if time is None else datetime.fromisoformat(str(time))
            at = rows.times({})[number]
            assert at == (None if wanted is None else (wanted - EPOCH) // timedelta(microseconds=1))


@given(st.lists(events(values=TEXTS), min_size=1, max_size=3))
def test_a_row_of_spark_is_the_event_of_its_columns(batch: list[CloudEvent]) -> None:
    columns = {
        name: pa.array([event.attributes.get(name) for event in batch], pa.string()) for name in COLUMNS
    }
    columns["data"] = pa.array([event.data for event in batch], pa.binary())
    extensions = [
        [(name, value) for name, value in event.attributes.items() if name not in {*COLUMNS, "specversion"}]
        for event in batch
    ]
    columns["extensions"] = pa.array(extensions, pa.map_(pa.string(), pa.string()))
    messages = list(map(b"".join, zip(*event_sections(columns, len(batch)), strict=True)))
    assert [decode(message) for message in messages] == batch
    rows = events_of(take_apart(messages, WANTED))
    assert rows.texts("id") == [event.attributes["id"] for event in batch]
    assert rows.data == [event.data for event in batch]
