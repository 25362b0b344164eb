"""Spans of attempts."""

from opentelemetry.trace import StatusCode

from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.spans import NO_TRACES
from knative_gateway.ports import Delivery
from tests.knative_gateway.dispatcher.rig import Rig, event, subscriber, until
from tests.knative_gateway.dispatcher.subscriber import SubscriberServer
from tests.knative_gateway.spans import PARENT, TRACE, TRACEPARENT, Spans, context, written


async def test_without_traces_retries_pass_on_the_event_s_own_trace() -> None:
    assert not NO_TRACES.enabled
    async with SubscriberServer() as server, Rig(partitions=1) as rig:
        server.answers = [503, 200]
        await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=1)))
        await rig.send(event(1, traceparent=TRACEPARENT))
        sent = [got.headers["traceparent"] for got in await server.wait(2)]
    assert [parent.startswith(f"00-{TRACE}-") for parent in sent] == [True, True]
    assert TRACEPARENT not in sent


async def test_each_attempt_is_a_span_and_the_parent_of_what_the_subscriber_does() -> None:
    """Spec: knative-data-plane-contract, Observability."""
    spans = Spans()
    async with SubscriberServer() as server, Rig(DispatchSettings(tracer=spans.traces), partitions=1) as rig:
        server.answers = [503, 200]
        await rig.serve(subscriber("u", server.url(), delivery=Delivery(retry=1)))
        await rig.send(event(1, traceparent=TRACEPARENT))
        failed, taken = await server.wait(2)
        await until(lambda: len(spans.named("deliver")) == 2)
    first, second = spans.named("deliver")
    assert [failed.headers["traceparent"], taken.headers["traceparent"]] == [written(first), written(second)]
    assert [f"{span.parent.span_id:016x}" for span in (first, second) if span.parent is not None] == [
        PARENT,
        PARENT,
    ]
    assert [f"{context(span).trace_id:032x}" for span in (first, second)] == [TRACE, TRACE]
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [dict(span.attributes or {})["knative.delivery.attempt"] for span in (first, second)] == [1, 2]
    assert dict(first.attributes or {})["messaging.message.offset"] == 0
    assert taken.event.attributes["traceparent"] == TRACEPARENT
