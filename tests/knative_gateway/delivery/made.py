"""Subscribers, events and answers for the tests of deliveries."""

from dataclasses import replace

from event_formats.event import CloudEvent, Value
from knative_gateway.delivery.outcome import Answer
from knative_gateway.ports import Delivery, Subscriber

SUBSCRIBER = "http://subscriber.example/in"
SINK = "http://sink.example/dead"
REPLY = "http://reply.example/to"
LOG = "broker.default.default"
AT_MS = 1_800_000_000_000
"""The time of the test, since 1970 UTC."""


def event(**attributes: Value) -> CloudEvent:
    return CloudEvent(
        {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **attributes}, b'{"a": 1}'
    )


def answer(status: int | None, **more: object) -> Answer:
    return replace(Answer(status, AT_MS), **more)  # type: ignore[arg-type]  # fields of Answer


def subscriber(
    *,
    url: str | None = SUBSCRIBER,
    reply_log: str | None = None,
    reply_url: str | None = None,
    **delivery: object,
) -> Subscriber:
    kind = "Trigger" if reply_log else "Subscription"
    options = Delivery(**delivery)  # type: ignore[arg-type]  # fields of Delivery
    return Subscriber("uid", kind, "default", "name", 1, (), url, reply_log, reply_url, options)
