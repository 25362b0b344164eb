"""A stored event as its receivers see it."""

import json
import threading
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqp_streams.client import Event
from event_formats.amqp_binding import encode
from event_formats.attributes import text_of
from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from event_formats.http_binding import events_from_http, from_http
from event_formats.json_format import write_event
from knative_gateway.dispatcher import arrival as arrival_module
from knative_gateway.dispatcher.arrival import LARGE_BYTES, Arrival, read_arrival
from knative_gateway.dispatcher.posting.sending import lines
from knative_gateway.ingress.receiving import received
from knative_gateway.ports import Delivery, Stored
from tests.event_formats.events import ANNOUNCING, INTEGERS, TEXTS, events
from tests.knative_gateway.dispatcher.rig import LOG, Rig, event, subscriber
from tests.knative_gateway.dispatcher.rig import until as until_
from tests.knative_gateway.dispatcher.subscriber import SubscriberServer


def test_a_message_that_is_not_an_event_has_a_reason() -> None:
    arrival = Arrival(Stored(0, "0000000000000001", 5, b"nonsense"), "0000000000000000")
    assert arrival.event is None
    assert "not an AMQP message" in arrival.problem
    assert arrival.passed_on == ()
    assert arrival.key is None


def test_a_message_of_another_format_says_why() -> None:
    """A message of another format may look like a CloudEvent and mean something else, or have several
    events.
    """
    message = encode(CloudEvent({"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}, b"x"))
    arrival = Arrival(Stored(0, "0000000000000001", 5, message, 0x80013700), "0000000000000000")
    assert (arrival.event, arrival.attributes, arrival.passed_on) == (None, None, ())
    assert (
        arrival.problem
        == "the message has message-format 0x80013700: CloudEvents are in messages of format 0"
    )


@pytest.mark.parametrize(
    "content_type",
    ["application/cloudevents+avro", "application/cloudevents-batch+json", "application/cloudevents"],
)
def test_a_message_in_an_unknown_event_format_says_why(content_type: str) -> None:
    message = Event(b"x", content_type=content_type).encode()
    arrival = Arrival(Stored(0, "0000000000000001", 5, message), "0000000000000000")
    assert arrival.event is None
    assert "event format" in arrival.problem or "batch" in arrival.problem


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"cloudEvents_id": "7", "cloudEvents:source": "/s"}, ("7", "/s")),
        ({"cloudEvents_id": 7}, ("", "")),
        ({"cloudEvents_id": "x" * 5000}, ("x" * 1024, "")),
        (None, ("", "")),
    ],
)
def test_an_event_that_cannot_be_decoded_is_known_by_its_id_and_source(
    properties: dict[str, object] | None, found: tuple[str, str]
) -> None:
    arrival = Arrival(Stored(0, "0000000000000001", 5, Event(b"x", properties=properties).encode()), "")
    assert (arrival.attributes, arrival.identity) == (None, found)


@pytest.mark.parametrize("seam", ["outgoing", "decode", "passed_on"])
def test_a_fault_of_ours_costs_the_event_only(monkeypatch: pytest.MonkeyPatch, seam: str) -> None:
    def fault(_message: bytes) -> None:
        raise RecursionError("deep")

    monkeypatch.setattr(arrival_module, seam, fault)
    arrival = Arrival(
        Stored(0, "0000000000000001", 5, encode(event(1), {"x-request-id": "r"})), "0000000000000000"
    )
    assert arrival.attributes is None
    assert arrival.problem == "internal error: RecursionError('deep')"


@given(events(TEXTS | INTEGERS | st.booleans(), ANNOUNCING))
def test_data_that_announces_an_event_goes_out_in_structured_mode(event: CloudEvent) -> None:
    arrival = Arrival(Stored(0, "0000000000000001", 5, encode(event)), "")
    headers, body = arrival.request(departs=False, structured=False)
    assert as_read(from_http([(name.encode(), value.encode()) for name, value in headers], body)) == as_read(
        event
    )


# What an untrusted sender may write into an event, valid or not.
ODD_TEXTS = st.text('aB1 é€\U0001f600%"\\', max_size=20) | st.text(
    "a\x00\n\t\x7f\ud800\ufffe\U0001ffff", max_size=2
)
ODD_NAMES = st.from_regex(r"[a-z0-9]{1,3}", fullmatch=True) | st.sampled_from(
    ["x" * 128, "x" * 129, "data_base64", "partitionkey", "A"]
)
ODD_TYPES = ANNOUNCING | st.sampled_from(
    ["", "text/plain;\tq=1", "application/json", "text/plain; charset=latin-1", "x/y+json", "no type"]
)
ODD_DATA: st.SearchStrategy[Any] = ODD_TEXTS | st.sampled_from([None, 1.50, "", "e30=", [], {}, "\ud800"])


@st.composite
def objects(draw: st.DrawFn) -> dict[str, object]:
    """JSON objects that may be events."""
    required = {
        "specversion": draw(st.sampled_from(["1.0", "0.3", "1.0"])),
        "id": "1",
        "source": "/s",
        "type": "t",
    }
    extensions = draw(st.dictionaries(ODD_NAMES, ODD_TEXTS | INTEGERS | st.booleans(), max_size=5))
    content_type = draw(st.none() | ODD_TYPES)
    data = draw(
        st.fixed_dictionaries(
            {}, optional={"data": ODD_DATA, "data_base64": st.sampled_from(["", "AAAA", "/v8="])}
        )
    )
    return {
        **required,
        **extensions,
        **({} if content_type is None else {"datacontenttype": content_type}),
        **data,
    }


def admitted(headers: list[tuple[bytes, bytes]], body: bytes) -> Sequence[CloudEvent]:
    """Return the events that the ingress stores for a request; none if it refuses the request."""
    try:
        return [received(found, "2026-01-02T03:04:05.000678Z") for found in events_from_http(headers, body)]
    except EventFormatError:
        return ()


def delivered(event: CloudEvent, *, structured: bool) -> CloudEvent:
    """Return what a subscriber reads of a stored event."""
    arrival = Arrival(Stored(0, "0000000000000001", 5, encode(event)), "")
    assert arrival.event == event, arrival.problem
    headers, body = arrival.request(departs=False, structured=structured)
    return from_http([tuple(field.split(b": ", 1)) for field in lines(headers).splitlines()], body)  # type: ignore[misc]


OLD = {"specversion": "0.3", "id": "1", "source": "/s", "type": "t"}


@given(found=st.lists(objects(), max_size=3), structured=st.booleans())
@example(found=[{**OLD, "datacontenttype": "text/plain; charset=latin-1", "data": "x"}], structured=True)
def test_events_that_the_ingress_admits_are_readable_by_a_subscriber(
    found: list[dict[str, object]], structured: bool
) -> None:
    """In structured mode, in a batch, and after a conversion to binary mode: no event that got a 202 is lost
    because it cannot be read.
    """
    batch = ([(b"content-type", b"application/cloudevents-batch+json")], json.dumps(found).encode())
    single = [
        ([(b"content-type", b"application/cloudevents+json")], json.dumps(one).encode()) for one in found
    ]
    for headers, body in (batch, *single):
        for stored in admitted(headers, body):
            assert as_read(delivered(stored, structured=structured)) == as_read(stored)


def as_read(event: CloudEvent) -> tuple[Mapping[str, object], bytes]:
    """Binary mode has only texts, and does not distinguish empty data from absent data. In structured mode, a
    0.3 event whose data is not Unicode text says that the data is in Base64, and its reader decodes it.
    """
    attributes, data = {name: text_of(value) for name, value in event.attributes.items()}, event.data or b""
    if attributes["specversion"] == "0.3" and attributes.get("datacontentencoding") == "base64":
        with suppress(ValueError):
            data = b64decode(data, validate=True)
            del attributes["datacontentencoding"]
    return attributes, data


@pytest.mark.parametrize(
    "attributes", [{"big": "x" * 20_000}, {"big": "€" * 5_000}, {f"n{each}": "" for each in range(2_000)}]
)
def test_more_headers_than_servers_take_go_in_structured_mode(attributes: dict[str, Any]) -> None:
    """CloudEvents 1.0, size limits: events of 64 kB must be forwarded. A request that was answered with 431
    is not retried.
    """
    stored = event(1, data=b"x", **attributes)
    arrival = Arrival(Stored(0, "0000000000000001", 5, encode(stored)), "")
    assert arrival.plain is None
    headers, body = arrival.request(departs=False, structured=False)
    assert headers == [("content-type", "application/cloudevents+json; charset=utf-8")]
    assert from_http([(b"content-type", b"application/cloudevents+json")], body) == stored


def test_as_many_headers_as_servers_take_go_in_binary_mode() -> None:
    arrival = Arrival(Stored(0, "0000000000000001", 5, encode(event(1, big="x" * 16_000))), "")
    assert dict(arrival.request(departs=False, structured=False).headers)["ce-big"] == "x" * 16_000


def test_a_request_is_made_once_for_all() -> None:
    arrival = Arrival(
        Stored(0, "0000000000000001", 5, encode(event(1, partitionkey="k", knativebrokerttl=3))), ""
    )
    assert arrival.request(departs=True, structured=False) is arrival.request(departs=True, structured=False)
    assert "ce-knativebrokerttl" not in dict(arrival.request(departs=True, structured=False).headers)
    assert dict(arrival.request(departs=False, structured=False).headers)["ce-knativebrokerttl"] == "3"
    assert arrival.request(departs=True, structured=True) is arrival.request(departs=True, structured=True)
    assert b"knativebrokerttl" not in arrival.request(departs=True, structured=True).body
    assert b'"knativebrokerttl":3' in arrival.request(departs=False, structured=True).body
    assert arrival.key == "k"


async def test_headers_of_the_sender_s_request_go_with_its_event() -> None:
    """They go to the subscriber and to the dead letter sink; Knative's header policy."""
    async with Rig(partitions=1) as rig, SubscriberServer() as server:
        server.answers = [400]
        delivery = Delivery(dead_letter_url=server.url("/dead"))
        await rig.serve(subscriber("u", server.url("/live"), delivery=delivery))
        await rig.log.append(LOG, encode(event(1), {"x-request-id": "r", "knative-x": "y"}))
        await until_(lambda: len(server.got) == 2)
        assert [got.path for got in server.got] == ["/live", "/dead"]
        for got in server.got:
            headers = {name.lower(): value for name, value in got.headers.items()}
            assert (headers["x-request-id"], headers["knative-x"]) == ("r", "y")


class Threads:
    """The names of the threads in which a function was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.names: set[str] = set()
        call = getattr(owner, name)

        def noted(*values: Any, **more: Any) -> Any:
            self.names.add(threading.current_thread().name.partition("_")[0])
            return call(*values, **more)

        monkeypatch.setattr(owner, name, noted)


LARGE = json.dumps([1] * LARGE_BYTES).encode()


@pytest.mark.parametrize("is_structured", [True, False])
async def test_a_thread_decodes_large_messages_of_others(
    monkeypatch: pytest.MonkeyPatch, *, is_structured: bool
) -> None:
    threads = Threads(monkeypatch, arrival_module, "decode")
    made = event("1", data=LARGE, datacontenttype="application/json")
    structured = Event(write_event(made), content_type="application/cloudevents+json; charset=utf-8")
    message = structured.encode() if is_structured else encode(made)
    arrival = await read_arrival(Stored(0, "0000000000000001", 5, message), "0000000000000000")
    assert arrival.event is not None
    assert arrival.event.data == LARGE
    assert threads.names == ({"asyncio"} if is_structured else set()), "the ingress writes the other layout"


async def test_a_thread_writes_large_events_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their data is checked, because data that only claims to be JSON would break the whole event."""
    threads = Threads(monkeypatch, arrival_module, "to_http")
    async with SubscriberServer() as server, Rig() as rig:
        await rig.serve(subscriber("a", server.url(), delivery=Delivery(structured=True)))
        await rig.send(event("1", data=LARGE, datacontenttype="application/json"))
        [got] = await server.wait(1)
    assert json.loads(got.body)["data"] == json.loads(LARGE)
    assert threads.names == {"asyncio"}
