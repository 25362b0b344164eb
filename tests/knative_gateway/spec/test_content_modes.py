"""The content mode of deliveries: `delivery.format`, binary or structured, to a real subscriber."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from event_formats.event import CloudEvent, Value
from event_formats.http_binding import to_binary
from knative_gateway.ports import Delivery
from tests.knative_gateway.dispatcher.rig import Rig, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Got, SubscriberServer

STRUCTURED = "application/cloudevents+json; charset=utf-8"
REQUIRED = {"specversion": "1.0", "source": "/s", "type": "t"}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(partitions=1) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


def told(got: Got) -> dict[str, object]:
    """The event of a request that has it only in its body."""
    assert got.headers["content-type"] == STRUCTURED
    assert not [name for name in got.headers if name.startswith("ce-")]
    members = json.loads(got.body)
    assert isinstance(members, dict)
    return members


async def delivered(rig: Rig, server: SubscriberServer, *events: CloudEvent, structured: bool) -> list[Got]:
    """Return the requests for events that are sent one after the other. The first opens the connection, the
    others use it.
    """
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(structured=structured)))
    for count, each in enumerate(events, 1):
        await rig.send(each)
        await until(lambda count=count: rig.dispatcher.figures("u")["delivered"] == count)
    return server.got


async def test_deliveries_are_structured_where_that_is_preferred(rig: Rig, server: SubscriberServer) -> None:
    """data-plane-contract, HTTP Verbs: in the absence of specific delivery preferences either encoding;

    `format: json` is one.
    """
    for got in await delivered(
        rig, server, event(1, knativebrokerttl=9), event(2, knativebrokerttl=9), structured=True
    ):
        assert told(got) == {**REQUIRED, "id": got.id}
        assert (got.headers["prefer"], got.headers["kn-namespace"]) == ("reply", "default")


async def test_deliveries_are_binary_where_that_is_preferred_or_nothing_is(
    rig: Rig, server: SubscriberServer
) -> None:
    """test-spec, HTTP Verbs: POST, using either the structured or binary encoding (sender's choice)."""
    sent = [event(number, data=b'{"a": 1}', datacontenttype="application/json") for number in (1, 2)]
    for got in await delivered(rig, server, *sent, structured=False):
        assert (got.headers["content-type"], got.headers["ce-type"], got.body) == (
            "application/json",
            "t",
            b'{"a": 1}',
        )


@pytest.mark.parametrize(
    ("content_type", "data", "expected"),
    [
        ("application/json", b'{"n": 1.50, "z":[ ]}', {"data": {"n": 1.5, "z": []}}),
        ("application/vnd.x+json; charset=utf-8", b' "text" ', {"data": "text"}),
        ("text/plain", "grün\n".encode(), {"data": "grün\n"}),
        ("application/json", b"no json", {"data_base64": "bm8ganNvbg=="}),
        ("application/octet-stream", b"\xff\x00", {"data_base64": "/wA="}),
        ("text/plain; charset=latin-1", b"gr\xfcn", {"data_base64": "Z3L8bg=="}),
        (None, b"whatever", {"data_base64": "d2hhdGV2ZXI="}),
    ],
)
async def test_data_of_a_structured_delivery_is_what_its_type_says(
    rig: Rig, server: SubscriberServer, content_type: str | None, data: bytes, expected: dict[str, object]
) -> None:
    """data-plane-contract, Minimum supported protocol: structured content mode. JSON is sent as JSON, text as
    text, and all other data as Base64. JSON is not serialized again, so spelling and order do not change.
    Spaces around it are removed.
    """
    more = {} if content_type is None else {"datacontenttype": content_type}
    sent = [CloudEvent({**REQUIRED, "id": str(number), **more}, data) for number in (1, 2)]
    for got in await delivered(rig, server, *sent, structured=True):
        assert told(got) == {**REQUIRED, "id": got.id, **more, **expected}
        assert got.event.data == (data.strip(b" ") if "json" in str(content_type) else data)


async def test_attributes_of_a_structured_delivery_keep_their_types(
    rig: Rig, server: SubscriberServer
) -> None:
    """data-plane-contract, Minimum supported protocol: structured content mode;

    Boolean and Integer are JSON's, all others strings.
    """
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    values: dict[str, Value] = {
        "yes": True,
        "count": -7,
        "time": "2026-01-31T12:00:00.123456Z",
        "word": 'a "ü" %41',
        "traceparent": parent,
    }
    sent = [CloudEvent({**REQUIRED, "id": str(number), "blob": b"\x00", **values}) for number in (1, 2)]
    for got in await delivered(rig, server, *sent, structured=True):
        assert told(got) == {**REQUIRED, "id": got.id, **values, "blob": "AA=="}
        assert (got.headers["traceparent"][:36], got.headers["traceparent"] == parent) == (parent[:36], False)


async def test_retries_and_dead_letters_go_as_the_first_attempt_did(
    rig: Rig, server: SubscriberServer
) -> None:
    """test-spec, HTTP Verbs: a delivery has one `format`, also for retries and dead letters. event-delivery,
    deadLetterSink: `knativeerrorcode` is an Int.
    """
    async with SubscriberServer() as sink:
        server.answers = [503, web.Response(status=503, text="no")]
        delivery = Delivery(retry=1, dead_letter_url=sink.url(), structured=True)
        await rig.serve(subscriber("u", server.url(), delivery=delivery))
        await rig.send(event(1, data=b"[1]", datacontenttype="application/json"))
        [dead] = await sink.wait(1)
        original = {**REQUIRED, "id": "1", "datacontenttype": "application/json", "data": [1]}
        assert [told(got) for got in server.got] == [original, original]
        assert (
            told(dead).items()
            >= {**original, "knativeerrorcode": 503, "knativeerrordata": "no", "deadletterretry": 2}.items()
        )


async def test_replies_that_are_posted_go_as_deliveries_do(rig: Rig, server: SubscriberServer) -> None:
    """test-spec, HTTP Verbs: the delivery determines the encoding, independent of the mode of the reply."""
    async with SubscriberServer() as replies:
        headers, body = to_binary(event("answer", data=b"yes", datacontenttype="text/plain"))
        server.answers = [web.Response(body=body, headers=dict(headers))]
        made = subscriber(
            "u",
            server.url(),
            kind="Subscription",
            reply_log=None,
            reply_url=replies.url(),
            delivery=Delivery(structured=True),
        )
        await rig.serve(made)
        await rig.send(event(1))
        [got] = await replies.wait(1)
        assert told(got) == {**REQUIRED, "id": "answer", "datacontenttype": "text/plain", "data": "yes"}


async def test_a_format_that_is_changed_counts_from_the_next_attempt_on(
    rig: Rig, server: SubscriberServer
) -> None:
    """test-spec, HTTP Verbs: the preference is the one that is there when the event is sent, also for one
    that waits for a retry.
    """
    server.answers = [503]
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=1, backoff_delay_ms=60_000)))
    await rig.send(event(1))
    await until(lambda: rig.dispatcher.figures("u")["waiting"])
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=1, structured=True)))
    first, second = await server.wait(2)
    assert (first.headers["ce-id"], told(second)["id"]) == ("1", "1")
