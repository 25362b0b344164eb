"""Requests with traces enabled.

Spec: W3C Trace Context; CloudEvents Distributed Tracing extension.
"""

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from event_formats.amqp_binding import decode
from knative_gateway.errors import UnavailableError
from knative_gateway.ingress.traced import TracedIngress
from tests.knative_gateway.asking import BINARY, BROKER, STRUCTURED, ask, routes
from tests.knative_gateway.memory_log import MemoryEventLog
from tests.knative_gateway.spans import PARENT, TRACE, TRACEPARENT, Spans, context, written


@pytest.fixture
def spans() -> Spans:
    return Spans()


async def ingress(spans: Spans, log: MemoryEventLog) -> TracedIngress:
    await log.ensure(BROKER.log, partitions=1, retention_ms=None)
    made = TracedIngress(log, spans.traces)
    made.use(routes(BROKER))
    return made


async def test_an_event_is_received_and_stored_in_the_trace_of_its_sender(spans: Spans) -> None:
    log = MemoryEventLog()
    answered = await ask(
        await ingress(spans, log), headers=[*BINARY, ("traceparent", TRACEPARENT), ("tracestate", "a=b")]
    )
    assert answered is not None
    assert answered.status == 202
    [received], [appended] = spans.named("receive"), spans.named("append")
    assert (received.name, received.kind, appended.kind) == (
        "receive /broker/default/b",
        SpanKind.SERVER,
        SpanKind.PRODUCER,
    )
    assert received.parent is not None
    assert (f"{received.parent.trace_id:032x}", f"{received.parent.span_id:016x}") == (TRACE, PARENT)
    assert appended.parent == context(received)
    attributes = decode(log.messages(BROKER.log)[0]).attributes
    assert (attributes["traceparent"], attributes["tracestate"]) == (written(received), "a=b")
    assert received.attributes is not None
    assert appended.attributes is not None
    assert received.attributes["http.response.status_code"] == 202
    assert appended.attributes["cloudevents.event_type"] == "t"


async def test_an_event_without_a_trace_begins_one(spans: Spans) -> None:
    log = MemoryEventLog()
    await ask(await ingress(spans, log))
    [received] = spans.named("receive")
    assert received.parent is None
    assert decode(log.messages(BROKER.log)[0]).attributes["traceparent"] == written(received)


async def test_a_trace_that_the_event_brings_stays_its_own(spans: Spans) -> None:
    """In binary mode the trace is the parent. In structured mode it is not known before the event is read, so
    a link refers to it.
    """
    log = MemoryEventLog()
    app = await ingress(spans, log)
    await ask(app, headers=[*BINARY, ("ce-traceparent", TRACEPARENT)])
    body = (
        b'{"specversion":"1.0","id":"2","source":"/s","type":"t","traceparent":"'
        + TRACEPARENT.encode()
        + b'"}'
    )
    await ask(app, headers=STRUCTURED, body=body)
    assert [decode(message).attributes["traceparent"] for message in log.messages(BROKER.log)] == [
        TRACEPARENT
    ] * 2
    first, second = spans.named("append")
    assert f"{context(first).trace_id:032x}" == TRACE
    assert [f"{link.context.trace_id:032x}" for link in second.links] == [TRACE]


async def test_an_event_that_is_not_stored_is_an_error(spans: Spans) -> None:
    log = MemoryEventLog()
    log.failing = [UnavailableError("away")]
    answered = await ask(await ingress(spans, log))
    assert answered is not None
    assert answered.status == 503
    [received], [appended] = spans.named("receive"), spans.named("append")
    assert (received.status.status_code, appended.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)


async def test_nothing_comes_in_past_the_spans(spans: Spans) -> None:
    assert (await ingress(spans, MemoryEventLog())).direct == {}
