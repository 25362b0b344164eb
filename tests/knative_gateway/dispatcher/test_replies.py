"""Replies of subscribers: which answers are replies, where a reply goes, and what a failing reply does.

Spec: knative-eventing-test-spec, "Derived (Reply) Events".
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from event_formats.amqp_binding import decode, encode
from event_formats.event import CloudEvent
from event_formats.http_binding import to_binary, to_structured
from knative_gateway.delivery.ttl import TTL
from knative_gateway.errors import UnavailableError
from knative_gateway.ingress.app import Ingress
from knative_gateway.ingress.inside import Inside
from knative_gateway.ports import Delivery, Route, Routes
from knative_gateway.security.access import Gate, Rule
from knative_gateway.security.inward import Inward
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


def reply(of: CloudEvent, status: int = 200) -> web.Response:
    message = to_binary(of)
    return web.Response(status=status, body=message.body, headers=dict(message.headers))


async def test_requests_to_subscribers_prefer_a_reply(rig: Rig, server: SubscriberServer) -> None:
    """Spec: Derived (Reply) Events: MUST indicate support for replies using the `Prefer: reply` header."""
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1))
    [got] = await server.wait(1)
    assert got.headers["prefer"] == "reply"
    assert got.headers["kn-namespace"] == "default"


@pytest.mark.parametrize("mode", [to_binary, to_structured])
async def test_a_reply_to_a_trigger_goes_through_the_broker(
    rig: Rig, server: SubscriberServer, mode: type
) -> None:
    """Spec: Content Based Routing: reply events MUST be re-enqueued by the Broker, and MUST be evaluated
    against all Triggers associated with the Broker, including the Trigger that generated the reply."""
    answer = mode(event("answer", "answered", b"yes"))
    server.answers = [web.Response(body=answer.body, headers=dict(answer.headers))]
    everything = subscriber("all", server.url("/all"))
    only = subscriber("only", server.url("/only"), filters=({"exact": {"type": "answered"}},))
    await rig.serve(everything, only)
    await rig.send(event(1, "asked"))
    await server.wait(3)
    await completed(rig, "all", 2)
    assert sorted((got.path, got.id) for got in server.got) == [
        ("/all", "1"),
        ("/all", "answer"),
        ("/only", "answer"),
    ]
    assert {got.body for got in server.got if got.id == "answer"} == {b"yes"}


async def test_headers_of_a_reply_follow_it_through_the_broker(rig: Rig, server: SubscriberServer) -> None:
    """They are passed on like the headers of a POST to the Broker's URL. The receiver of the reply does not
    get Retry-After.
    """
    answer = to_binary(event("answer", "answered"))
    passed_on = {"X-Request-Id": "r1", "Knative-Bar": "k1", "X-B3-Bar": "b1"}
    server.answers = [
        web.Response(headers={**dict(answer.headers), **passed_on, "Retry-After": "5", "Set-Cookie": "c"})
    ]
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1))
    _, got = await server.wait(2)
    assert {name: got.headers.get(name.lower()) for name in passed_on} == passed_on
    assert not {"retry-after", "set-cookie", "cookie"} & got.headers.keys()


async def test_a_202_is_never_a_reply(rig: Rig, server: SubscriberServer) -> None:
    """Responses with a 202 response code MUST NOT be processed as reply events.

    Spec: Derived (Reply) Events.
    """
    server.answers = [reply(event("status"), status=202)]
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1))
    await completed(rig, "u", 1)
    assert len(rig.memory.messages(LOG)) == 1


async def test_a_reply_that_cannot_be_stored_fails_the_delivery(rig: Rig, server: SubscriberServer) -> None:
    """Spec: Content Based Routing: if the storage of the reply event in the Broker fails, the entire event
    delivery MUST be failed and the delivery to the Trigger's subscriber MUST be retried."""
    server.answers = [reply(event("first")), reply(event("second"))]
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=1)))
    await rig.send(event(1))
    rig.memory.failing = [UnavailableError("away")]
    await server.wait(3)
    await completed(rig, "u", 2)
    assert server.ids == ["1", "1", "second"]


async def test_replies_that_go_round_come_to_an_end(rig: Rig, server: SubscriberServer) -> None:
    """Each reply has a count that is one lower than that of its cause. Subscribers do not see the count."""

    async def echo(got: object) -> web.Response:
        return reply(event("again"))

    server.behaviour = echo
    await rig.serve(subscriber("u", server.url()))
    await rig.send(event(1, knativebrokerttl=4))
    await until(lambda: rig.dispatcher.figures("u")["repliesExpired"])
    assert [decode(message).attributes[TTL] for message in rig.memory.messages(LOG)] == [4, 3, 2, 1]
    assert not any(TTL in got.event.attributes for got in server.got)


@pytest.mark.parametrize("structured", [False, True])
async def test_an_event_goes_to_a_broker_of_this_gateway_with_its_count(
    rig: Rig, server: SubscriberServer, structured: bool
) -> None:
    spec = subscriber("u", server.url("/broker/d/b"), delivery=Delivery(structured=structured))
    await rig.serve(
        replace(spec, brokers=server.url("/broker/")),
        replace(spec, uid="v", brokers="http://elsewhere/broker/"),
    )
    for number in range(3):  # the first over a connection that is made for it
        await rig.send(event(number, knativebrokerttl=4))
        await server.wait(2 * number + 2)
    assert sorted(str(got.event.attributes.get(TTL)) for got in server.got) == ["4"] * 3 + ["None"] * 3


async def test_hops_are_counted_however_a_broker_s_url_is_spelt(rig: Rig, server: SubscriberServer) -> None:
    """localhost, another address, a load balancer: a URL with the path of a Broker or Channel may lead back
    to this gateway.
    """
    urls = {"b": server.url("/broker/d/b"), "c": server.url("/channel/d/c/"), "out": server.url("/out")}
    await rig.serve(*(subscriber(uid, url) for uid, url in urls.items()))
    await rig.send(event(1))
    await rig.log.append(LOG, encode(event(2), {"knative-hops": "7", "knative-x": "y"}))
    await server.wait(6)
    hops = {(got.id, got.path): got.headers.get("knative-hops") for got in server.got}
    assert hops == {
        ("1", "/broker/d/b"): "1",
        ("1", "/channel/d/c/"): "1",
        ("1", "/out"): None,
        ("2", "/broker/d/b"): "8",
        ("2", "/channel/d/c/"): "8",
        ("2", "/out"): None,
    }


async def test_an_event_for_a_broker_of_this_gateway_is_stored_without_a_connection(
    rig: Rig, server: SubscriberServer
) -> None:
    """With tokens, no other path is possible, for a subscriber, a reply and a dead letter sink. Another
    namespace needs a rule.
    """
    gate = Gate([NoToken()], [Rule(users=["nobody"])])
    ingress = Ingress(rig.log, authorizer=gate)
    paths = {
        path: Route(path, "Broker", path.split("/")[2], "b", path, path[1:])
        for path in ("/broker/default/b", "/broker/other/b")
    }
    ingress.use(Routes(1, paths))
    for path in paths.values():
        await rig.log.ensure(path.log, partitions=1, retention_ms=None)
    rig.sender.inside = Inside(ingress, Inward("http://here", gate.may_pass))
    sink = Delivery(dead_letter_url="http://here/broker/default/b")
    await rig.serve(
        subscriber("u", "http://here/broker/default/b", brokers="http://here/broker/"),
        subscriber("v", "http://here/broker/other/b", delivery=sink, brokers="http://here/broker/"),
    )
    await rig.send(event(1, knativebrokerttl=9))
    await completed(rig, "u", 1)
    await completed(rig, "v", 1)
    stored = [decode(message).attributes for message in rig.memory.messages("broker/default/b")]
    assert sorted((attributes[TTL], str(attributes.get("knativeerrorcode"))) for attributes in stored) == [
        (8, "403"),
        (8, "None"),
    ]
    assert rig.memory.messages("broker/other/b") == []
    assert "system:namespace:default" in rig.store.failures["v"][0].body


class NoToken:
    def identity(self, token: str) -> None:
        return None


async def test_a_reply_to_a_subscription_is_posted(rig: Rig, server: SubscriberServer) -> None:
    """Spec: Event Delivery 4: the reply event MUST be delivered to the `status.replyUri` destination (for
    Subscriptions).
    """
    async with SubscriberServer() as replies:
        server.answers = [reply(event("answer", data=b"yes"))]
        await rig.serve(
            subscriber("u", server.url(), kind="Subscription", reply_log=None, reply_url=replies.url("/r"))
        )
        await rig.send(event(1))
        [got] = await replies.wait(1)
        await completed(rig, "u", 1)
    assert (got.id, got.body, got.path) == ("answer", b"yes", "/r")
    assert "prefer" not in got.headers
    assert len(rig.memory.messages(LOG)) == 1


async def test_a_reply_without_a_destination_is_dropped(rig: Rig, server: SubscriberServer) -> None:
    """Spec: Event Delivery 4: if `status.replyUri` is not present in the Subscription, the reply event MUST
    be dropped.
    """
    server.answers = [reply(event("answer"))]
    await rig.serve(subscriber("u", server.url(), kind="Subscription", reply_log=None))
    await rig.send(event(1))
    await completed(rig, "u", 1)
    assert len(rig.memory.messages(LOG)) == 1


async def test_a_reply_that_cannot_be_delivered_fails_the_delivery(
    rig: Rig, server: SubscriberServer
) -> None:
    """Spec: Event Delivery 4.1: the entire delivery of the event MUST be retried up to `retry` times."""
    server.answers = [reply(event("first")), reply(event("second"))]
    async with SubscriberServer(answers=[500]) as replies:
        delivery = Delivery(retry=1)
        await rig.serve(
            subscriber(
                "u",
                server.url(),
                kind="Subscription",
                reply_log=None,
                reply_url=replies.url(),
                delivery=delivery,
            )
        )
        await rig.send(event(1))
        await replies.wait(2)
        await completed(rig, "u", 1)
    assert server.ids == ["1", "1"]
    assert replies.ids == ["first", "second"]


async def test_with_a_reply_alone_events_go_there(rig: Rig, server: SubscriberServer) -> None:
    """Spec: Subscription Lifecycle: if only `spec.reply` is set, it is equivalent to a subscriber, except
    that the Channel SHOULD NOT advertise the ability to process replies."""
    server.answers = [reply(event("ignored"))]
    await rig.serve(subscriber("u", None, kind="Subscription", reply_log=None, reply_url=server.url()))
    await rig.send(event(1))
    [got] = await server.wait(1)
    await completed(rig, "u", 1)
    assert "prefer" not in got.headers
    assert len(server.got) == 1


async def test_an_answer_that_is_not_an_event_is_accepted(rig: Rig, server: SubscriberServer) -> None:
    server.answers = [web.Response(text="thank you")]
    await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=3)))
    await rig.send(event(1))
    await completed(rig, "u", 1)
    assert server.ids == ["1"]
