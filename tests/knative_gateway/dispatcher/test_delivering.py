"""What happens to an event when its subscriber fails or does not exist. Replies: test_replies.py.

Spec: knative-eventing-test-spec, "Event Delivery".
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from knative_gateway.delivery import Answer
from knative_gateway.ports import BackoffPolicy, Delivery
from tests.knative_gateway.dispatcher.rig import LOG, Rig, completed, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import SubscriberServer


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(partitions=1) as made:
        yield made


@pytest.fixture
async def server() -> AsyncIterator[SubscriberServer]:
    async with SubscriberServer() as running:
        yield running


# -- success


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_any_2xx_completes_a_delivery(rig: Rig, server: SubscriberServer, status: int) -> None:
    """Each answer 2xx completes the delivery, without a retry.

    Spec: Event Acknowledgement and Delivery Retry.
    """
    server.answers = [status]
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=3)))
    await rig.send(event(1))
    await completed(rig, "u", 1)
    assert server.ids == ["1"]


# -- retries


@pytest.mark.parametrize("status", [404, 408, 409, 429, 500, 502, 503, 504])
async def test_a_retryable_failure_is_retried(rig: Rig, server: SubscriberServer, status: int) -> None:
    """A delivery that fails with a retryable error MUST be retried up to `retry` times.

    Spec: Event Delivery 2.1.
    """
    server.answers = [status, status]
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=2)))
    await rig.send(event(1))
    await server.wait(3)
    await completed(rig, "u", 1)
    assert server.ids == ["1"] * 3
    assert rig.dispatcher.figures("u")["retried"] == 2


@pytest.mark.parametrize("status", [300, 301, 307, 400, 401, 403, 405, 413])
async def test_a_final_failure_is_not_retried(rig: Rig, server: SubscriberServer, status: int) -> None:
    """Spec: Event Acknowledgement and Delivery Retry: 3xx, 400 and other 4xx: an error without a retry."""
    server.answers = [status]
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=5)))
    await rig.send(event(1))
    await completed(rig, "u", 1)
    assert server.ids == ["1"]
    [attempt, end] = rig.store.failures["u"]
    assert (attempt.code, attempt.end) == (status, "")
    assert (end.code, end.end, end.event_id) == (status, "dropped", "1")


async def test_waits_follow_the_policy(rig: Rig, server: SubscriberServer) -> None:
    """Spec: Event Delivery 2.1: following the `backoffPolicy` and `backoffDelay` parameters."""
    server.answers = [500, 500, 500]
    delivery = Delivery(retry=3, backoff_policy=BackoffPolicy.EXPONENTIAL, backoff_delay_ms=20)
    await rig.serve(subscriber("u", server.url(), delivery=delivery))
    await rig.send(event(1))
    times = [got.at_s for got in await server.wait(4)]
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert [wait >= expected for wait, expected in zip(waits, (0.02, 0.04, 0.08), strict=True)] == [True] * 3


async def test_a_subscriber_that_comes_back_is_found(rig: Rig) -> None:
    """Spec: knative-data-plane-contract:

    SHOULD re-attempt delivery of events where the HTTP request failed.
    """
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    await rig.serve(
        subscriber(
            "u",
            f"http://127.0.0.1:{port}/",
            delivery=Delivery(retry=1000, backoff_delay_ms=20, backoff_max_ms=20),
        )
    )
    await rig.send(event(1))
    await until(lambda: rig.dispatcher.figures("u")["failedAttempts"])
    arrived = asyncio.Event()

    async def handle(request: web.BaseRequest) -> web.Response:
        arrived.set()
        return web.Response(status=202)

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.wait_for(arrived.wait(), 60)
    await completed(rig, "u", 1)
    await runner.cleanup()


async def test_an_attempt_has_its_time(rig: Rig) -> None:
    async def slow(_: object) -> web.StreamResponse:
        await asyncio.sleep(10)
        raise AssertionError

    async with SubscriberServer(slow) as server:
        await rig.serve(subscriber("u", server.url(), delivery=Delivery(timeout_ms=30)))
        await rig.send(event(1))
        await completed(rig, "u", 1)
        assert rig.store.failures["u"][0].reason == "no answer within 30 ms"


# -- dead letters


async def test_an_undeliverable_event_goes_to_the_dead_letter_sink(
    rig: Rig, server: SubscriberServer
) -> None:
    """Spec: Event Delivery 5: the event MUST be delivered to the `deadLetterSink`; knative-event-delivery,
    deadLetterSink.
    """
    async with SubscriberServer() as sink:
        server.answers = [
            web.Response(status=503, text="not today"),
            web.Response(status=503, text="not today"),
        ]
        delivery = Delivery(retry=1, dead_letter_url=sink.url("/dead"))
        await rig.serve(subscriber("u", server.url(), delivery=delivery))
        await rig.send(event(1, data=b"\x00\x01"))
        [dead] = await sink.wait(1)
        await completed(rig, "u", 1)
    assert dead.body == b"\x00\x01"
    attributes = dead.event.attributes
    assert {name: attributes[name] for name in ("id", "source", "type")} == {
        "id": "1",
        "source": "/s",
        "type": "t",
    }
    assert attributes["knativeerrorcode"] == "503"
    assert attributes["knativeerrordata"] == "not today"
    assert attributes["knativeerrordest"] == server.url()
    assert attributes["deadlettersubscriberuri"] == server.url()
    assert "prefer" not in dead.headers
    assert dead.headers["kn-namespace"] == "default"
    assert rig.dispatcher.figures("u")["deadLettered"] == 1
    assert rig.store.failures["u"][-1].end == "dead-lettered"


async def test_the_dead_letter_sink_is_retried_too(rig: Rig, server: SubscriberServer) -> None:
    async with SubscriberServer(answers=[500, 500]) as sink:
        server.answers = [400]
        await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=2, dead_letter_url=sink.url())))
        await rig.send(event(1))
        await sink.wait(3)
        await completed(rig, "u", 1)
    assert rig.dispatcher.figures("u")["deadLettered"] == 1


async def test_without_a_sink_an_event_is_dropped_and_the_next_is_delivered(
    rig: Rig, server: SubscriberServer
) -> None:
    """Spec: Event Delivery 5: if no `deadLetterSink` is specified, the event is dropped."""
    server.answers = [400]
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1), event(2))
    await server.wait(2)
    await completed(rig, "u", 2)
    figures = rig.dispatcher.figures("u")
    assert (figures["dropped"], figures["delivered"]) == (1, 1)


# -- the event in flight


async def test_each_request_is_a_child_in_the_trace_of_the_event(rig: Rig, server: SubscriberServer) -> None:
    """Spec: knative-data-plane-contract, Observability."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1, traceparent=parent))
    [got] = await server.wait(1)
    assert got.event.attributes["traceparent"] == parent
    assert got.headers["traceparent"].split("-")[1] == parent.split("-")[1]
    assert got.headers["traceparent"].split("-")[2] != parent.split("-")[2]


async def test_data_stays_what_it_was(rig: Rig, server: SubscriberServer) -> None:
    """Spec: Content Based Routing: the implementation MUST NOT modify the event data in this process."""
    data = bytes(range(256)) * 4
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1, data=data, datacontenttype="application/json"))
    [got] = await server.wait(1)
    assert (got.body, got.headers["content-type"]) == (data, "application/json")


async def test_events_that_came_over_amqp_are_delivered_alike(rig: Rig, server: SubscriberServer) -> None:
    """Structured mode, and the other prefix, as any AMQP client may write them."""
    await rig.serve(subscriber("u", server.url()))
    body = b'{"specversion":"1.0","id":"structured","source":"/s","type":"t","data":{"a":1}}'
    content_type = b"application/cloudevents+json"
    fields = b"\x40" * 6 + b"\xa3" + bytes([len(content_type)]) + content_type
    properties = b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, 7]) + fields
    await rig.log.append(LOG, properties + b"\x00\x53\x75\xa0" + bytes([len(body)]) + body)
    pairs = [(b"specversion", b"1.0"), (b"id", b"colon"), (b"source", b"/s"), (b"type", b"t")]
    texts = b"".join(
        b"\xa1" + bytes([len(text)]) + text
        for name, value in pairs
        for text in (b"cloudEvents:" + name, value)
    )
    await rig.log.append(
        LOG, b"\x00\x53\x74\xc1" + bytes([len(texts) + 1, 8]) + texts + b"\x00\x53\x75\xa0\x02hi"
    )
    got = {each.id: each for each in await server.wait(2)}
    assert got["structured"].body == b'{"a":1}'
    assert got["structured"].headers["ce-type"] == "t"
    assert got["colon"].body == b"hi"


async def test_a_denied_destination_is_not_retried(rig: Rig) -> None:
    """Waiting does not change the rules, and the limit of a subscriber without a request does not change."""
    async with SubscriberServer() as sink:
        denied = Delivery(retry=9, backoff_delay_ms=3_600_000, dead_letter_url=sink.url())
        await rig.serve(subscriber("u", "http://169.254.169.254/", delivery=denied))
        await rig.send(*(event(number) for number in range(20)))
        await sink.wait(20)
    figures = rig.dispatcher.figures("u")
    assert (figures["failedAttempts"], figures["retried"]) == (20, 0)
    await until(lambda: "u" in rig.store.failures)
    assert all("denied" in failure.reason for failure in rig.store.failures["u"])


@pytest.mark.parametrize(
    "step",
    [
        "knative_gateway.delivery.plan.verdict",
        "knative_gateway.dispatcher.subscribers.steps.delivery_headers",
    ],
)
async def test_an_internal_error_is_a_failed_attempt(
    rig: Rig, server: SubscriberServer, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is retried, and then goes to the dead letter sink. It is not dropped."""
    module, _, name = step.rpartition(".")
    whole = getattr(import_module(module), name)

    def faulty(*arguments: Any, **named: Any) -> Any:
        answer = arguments[0] if arguments else None
        if isinstance(answer, Answer) and answer.status == 503:
            raise OverflowError("too large")
        if named.get("reply_wanted") and not arguments and name == "delivery_headers":
            raise OverflowError("too large")
        return whole(*arguments, **named)

    monkeypatch.setattr(step, faulty)
    server.answers = [503] * 3
    async with SubscriberServer() as sink:
        await rig.serve(
            subscriber(
                "u", server.url(), delivery=Delivery(retry=2, backoff_delay_ms=1, dead_letter_url=sink.url())
            )
        )
        await rig.send(event(1))
        [got] = await sink.wait(1)
    assert "internal error" in str(got.event.attributes["deadletterreason"])
    assert got.event.attributes["deadletterretry"] == "3"
    assert rig.dispatcher.figures("u")["dropped"] == 0
