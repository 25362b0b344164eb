"""One event that cannot be read, filtered, rendered, judged or answered affects no other event, in each step
from the log to the sink.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest
from aiohttp import web

from amqp_streams.client import Event
from event_formats.event import CloudEvent
from event_formats.http_binding import to_binary
from knative_gateway.delivery import Answer
from knative_gateway.delivery import plan as plan_module
from knative_gateway.delivery.outcome import Verdict
from knative_gateway.delivery.outcome import verdict as given_verdict
from knative_gateway.dispatcher import arrival as arrival_module
from knative_gateway.dispatcher.posting import sending as sending_module
from knative_gateway.dispatcher.subscribers import steps as steps_module
from knative_gateway.filters import dialects
from knative_gateway.ports import Delivery
from tests.knative_gateway.dispatcher.rig import LOG, Rig, completed, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import Behaviour, Got, SubscriberServer

POISON = "poison"


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(partitions=1) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


def fail_on_poison(monkeypatch: pytest.MonkeyPatch, holder: object, name: str) -> None:
    """Let a function raise an unexpected error if its first argument is the poisoned event or its message."""
    plain: Callable[..., Any] = getattr(holder, name)

    def run(first: Any, *args: Any, **named: Any) -> Any:
        if POISON in repr(first):
            raise RecursionError(name)
        return plain(first, *args, **named)

    monkeypatch.setattr(holder, name, run)


@pytest.mark.parametrize(
    "message",
    [
        Event(b"{}", content_type="application/cloudevents+avro").encode(),
        Event(b"[]", content_type="application/cloudevents-batch+json").encode(),
        Event(b"{}", content_type="application/cloudevents+json; charset=utf-16").encode(),
        Event(b"x", properties={"cloudEvents_specversion": "1.0", "cloudEvents_id": "7"}).encode(),
    ],
)
async def test_unreadable_records_are_skipped(rig: Rig, server: SubscriberServer, message: bytes) -> None:
    await rig.serve(subscriber("u", server.url()))
    await rig.log.append(LOG, message)
    await rig.send(event(1))
    await completed(rig, "u", 2)
    assert server.ids == ["1"]
    assert rig.dispatcher.figures("u")["skipped"] == 1
    await until(lambda: [failure.end for failure in rig.store.failures.get("u", [])] == ["skipped"])


async def test_a_filter_that_fails_costs_its_subscriber_the_event(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(attributes: Mapping[str, object]) -> bool:
        if attributes["id"] == POISON:
            raise RecursionError
        return True

    monkeypatch.setitem(
        cast("dict[str, object]", dialects._COMPILED), "cesql", lambda _content, _work: broken
    )
    await rig.serve(
        subscriber("u", server.url("/u"), filters=({"cesql": "TRUE"},)), subscriber("v", server.url("/v"))
    )
    await rig.send(event(POISON), event(1))
    await completed(rig, "u", 2)
    await completed(rig, "v", 2)
    assert sorted((got.path, got.id) for got in server.got) == [("/u", "1"), ("/v", "1"), ("/v", POISON)]
    await until(lambda: rig.store.failures.get("u"))
    [failure] = rig.store.failures["u"]
    assert (failure.end, failure.event_id, failure.event_source) == ("skipped", POISON, "/s")
    assert "RecursionError" in failure.reason


async def test_filters_that_would_take_too_long_skip_the_event_for_their_subscriber(
    rig: Rig, server: SubscriberServer
) -> None:
    """Other subscribers get the event."""
    costly = {"cesql": " OR ".join(f"LOWER(subject) = '{number}'" for number in range(200))}
    plain = subscriber("v", server.url("/v"), filters=({"cesql": "LENGTH(subject) > 5"},))
    await rig.serve(subscriber("u", server.url("/u"), filters=(costly,)), plain)
    await rig.send(
        event(POISON, subject="x" * 200_000), event(1, subject="199"), event(2, subject="long enough")
    )
    await completed(rig, "u", 3)
    await completed(rig, "v", 3)
    assert sorted((got.path, got.id) for got in server.got) == [("/u", "1"), ("/v", "2"), ("/v", POISON)]
    await until(lambda: rig.store.failures.get("u"))
    [failure] = rig.store.failures["u"]
    assert (failure.end, failure.event_id) == ("skipped", POISON)
    assert "need more than" in failure.reason


async def dead_lettered(
    rig: Rig, server: SubscriberServer, *, retry: int = 1, structured: bool = False
) -> None:
    """Two events are sent; the poisoned one ends in the sink after its retries, never dropped, and the other
    is delivered.
    """
    async with SubscriberServer() as sink:
        delivery = Delivery(retry=retry, dead_letter_url=sink.url(), structured=structured)
        await rig.serve(subscriber("u", server.url(), delivery=delivery))
        await rig.send(event(POISON), event(1))
        await completed(rig, "u", 2)
        figures = rig.dispatcher.figures("u")
        assert (
            figures["deadLettered"],
            figures["delivered"],
            figures["dropped"],
            figures["failedAttempts"],
        ) == (1, 1, 0, retry + 1)
        assert sink.ids == [POISON]


async def test_an_invalid_retry_after_is_a_failure_like_others(rig: Rig, server: SubscriberServer) -> None:
    async def busy(got: Got) -> web.StreamResponse:
        headers = {"retry-after": "Mon, 01 Jan 2024 00:00:00 +99999999999999999999"}
        return web.Response(status=503, headers=headers) if got.id == POISON else web.Response(status=202)

    server.behaviour = busy
    await dead_lettered(rig, server)
    assert server.ids.count(POISON) == 2


async def test_an_event_that_cannot_be_rendered_goes_to_the_sink(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_on_poison(monkeypatch, arrival_module, "to_http")
    await dead_lettered(rig, server, structured=True)
    assert server.ids == ["1"]


async def test_an_answer_that_cannot_be_judged_is_a_failure(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:

    def verdict(answer: Answer, *, reply_wanted: bool) -> Verdict:
        if answer.body == b"judge this":
            raise RecursionError
        return given_verdict(answer, reply_wanted=reply_wanted)

    monkeypatch.setattr(plan_module, "verdict", verdict)
    server.behaviour = replying(web.Response, status=500, body=b"judge this")
    await dead_lettered(rig, server)


async def test_a_reply_that_cannot_be_read_is_a_failure(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_http(*_: object) -> CloudEvent:
        raise RecursionError

    monkeypatch.setattr(sending_module, "from_http", from_http)
    server.behaviour = replying(
        web.Response, headers={"content-type": "application/cloudevents+json"}, body=b"{}"
    )
    await dead_lettered(rig, server)


async def test_a_reply_that_cannot_be_encoded_is_a_failure(
    rig: Rig, server: SubscriberServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = to_binary(event("reply"))
    server.behaviour = replying(web.Response, headers=dict(message.headers), body=b"")

    def stored_with_reply(_headers: object) -> None:
        raise RecursionError

    monkeypatch.setattr(steps_module, "stored_with_reply", stored_with_reply)
    await dead_lettered(rig, server)


def replying(response: Callable[..., web.Response], **fields: Any) -> Behaviour:
    """The poisoned event is answered so, others are accepted."""

    async def answer(got: Got) -> web.StreamResponse:
        return response(**fields) if got.id == POISON else web.Response(status=202)

    return answer


async def test_headers_with_line_breaks_do_not_hold_up_their_event(
    rig: Rig, server: SubscriberServer
) -> None:
    """They arrive over AMQP. Only the header is dropped."""
    await rig.serve(subscriber("u", server.url()))
    properties = {f"cloudEvents_{name}": value for name, value in event(POISON).attributes.items()}
    broken = {
        "httpHeader_x-request-id": "a\r\nb: c",
        "httpHeader_knative-n": "\0",
        "httpHeader_knative-x": "y",
    }
    await rig.log.append(LOG, Event(b"", properties={**properties, **broken}).encode())
    await completed(rig, "u", 1)
    [got] = server.got
    assert got.headers["knative-x"] == "y"
    assert not {"x-request-id", "knative-n", "b"} & got.headers.keys()
    assert rig.dispatcher.figures("u")["failedAttempts"] == 0
