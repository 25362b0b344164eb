"""[io] Traces of events with OpenTelemetry: receive → append → deliver, in the sender's trace. Imported only
if traces are on.

An event with a `traceparent` attribute keeps it. Other events get the trace of the span in which they were
received.

Spec: W3C Trace Context; CloudEvents Distributed Tracing extension; OpenTelemetry semantic conventions for
CloudEvents.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import default_setter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from event_formats.amqp_binding import decode
from knative_gateway import __version__
from knative_gateway.errors import ConfigError, GatewayError
from knative_gateway.offsets import offset_number
from service_parts.extras import MissingExtraError

if TYPE_CHECKING:
    from knative_gateway.delivery import Post
    from knative_gateway.ports import EventLog, Route, Subscriber

SERVICE: Final = "knative-gateway"
_SWITCHES: Final = (
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
_HEADERS: Final = ("traceparent", "tracestate")
_PATH: Final = "/v1/traces"

_w3c: Final = TraceContextTextMapPropagator()
Headers = Sequence[tuple[bytes, bytes]]


class Traces:
    """Makes spans. `provider`: decides where spans are sent, and which are sampled."""

    enabled: Final = True

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Final = trace.get_tracer("knative_gateway", __version__, provider)

    @contextmanager
    def receiving(
        self,
        route: "Route",
        headers: Headers,
    ) -> Iterator[tuple["Outcome", list[tuple[bytes, bytes]]]]:
        """Open the span of a request. Yields the object that records the answer, and the request's headers
        with the context of the span.
        """
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        sent = (
            found
            if "traceparent" in found
            else {name: found[f"ce-{name}"] for name in _HEADERS if f"ce-{name}" in found}
        )
        attributes = {
            "messaging.system": "knative",
            "messaging.destination.name": route.path,
            "http.request.method": "POST",
        }
        with self._tracer.start_as_current_span(
            f"receive {route.path}",
            _w3c.extract(sent, Context()),
            SpanKind.SERVER,
            attributes,
            # A refused event is an answer and not an exception. Its status is recorded.
            record_exception=False,
        ) as span:
            # Replaced and not added: two headers with this name would not be valid (W3C Trace Context).
            passed = [field for field in headers if field[0] not in {b"traceparent", b"tracestate"}]
            yield (
                Outcome(span),
                [*passed, *((name.encode(), value.encode()) for name, value in _context(span).items())],
            )

    @contextmanager
    def appending(self, log: str, message: bytes) -> Iterator[None]:
        """Open the span of storing an event. It links to the event's own trace if that is another one."""
        event = decode(message).attributes
        brought = trace.get_current_span(_extracted(event)).get_span_context()
        links = (
            # A link, because a span has one parent, and that is the request.
            [Link(brought)]
            if brought.is_valid and brought != trace.get_current_span().get_span_context()
            else []
        )
        with self._tracer.start_as_current_span(
            f"append {log}",
            kind=SpanKind.PRODUCER,
            attributes={"messaging.destination.name": log, **_of_event(event)},
            links=links,
        ):
            yield

    @contextmanager
    def delivering(
        self,
        spec: "Subscriber",
        post: "Post",
        *,
        partition: int,
        offset: str,
    ) -> Iterator[tuple[list[tuple[str, str]], "Outcome"]]:
        """Open the span of an attempt. Yields the headers that make the request its child, and the object
        that records the answer.
        """
        name = f"{spec.namespace}/{spec.name}"
        attributes: dict[str, str | int] = {
            "messaging.system": "knative",
            "messaging.destination.name": name,
            "messaging.destination.partition.id": str(partition),
            "knative.subscriber.kind": spec.kind,
            "knative.delivery.to": post.to.name.lower(),
            "knative.delivery.attempt": post.attempt,
        }
        if (number := offset_number(offset)) is not None:
            attributes["messaging.message.offset"] = number
        with self._tracer.start_as_current_span(
            f"deliver {name}",
            _extracted(post.event.attributes),
            SpanKind.CLIENT,
            {**attributes, **_of_event(post.event.attributes)},
        ) as span:
            yield list(_context(span).items()), Outcome(span)


class Outcome:
    """Records the outcome of a span."""

    def __init__(self, span: Span) -> None:
        self._span: Final = span

    def record(self, status: int | None, reason: str, *, failed: bool) -> None:
        """Record the answer. `status`: None if no answer came; then `reason` gives the cause."""
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
        if failed:
            self._span.set_status(Status(StatusCode.ERROR, reason or None))


class TracedLog:
    """An event log whose appends are child spans of the current span."""

    def __init__(self, log: "EventLog", traces: Traces) -> None:
        self._log: Final = log
        self._traces: Final = traces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, log: str, message: bytes) -> None:
        """See `EventLog`."""
        with self._traces.appending(log, message):
            await self._log.append(log, message)


def _context(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _w3c.inject(carrier, trace.set_span_in_context(span, Context()), default_setter)
    return carrier


def _extracted(attributes: Mapping[str, object]) -> Context:
    carrier = {name: value for name in _HEADERS if isinstance(value := attributes.get(name), str)}
    return _w3c.extract(carrier, Context())


def _of_event(attributes: Mapping[str, object]) -> dict[str, str]:
    named = {
        "cloudevents.event_id": "id",
        "cloudevents.event_source": "source",
        "cloudevents.event_type": "type",
    }
    return {name: str(attributes[attribute]) for name, attribute in named.items() if attribute in attributes}


def are_asked_for(collector: str | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether traces are on: a collector is set, or the variables of OpenTelemetry enable them."""
    if (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER") == "none"
    ):
        return False
    return collector is not None or any(environment.get(name) for name in _SWITCHES)


def exporting(collector: str | None, environment: Mapping[str, str] = os.environ) -> Any:
    """Return a provider that sends spans by OTLP over HTTP, in batches from a thread. `shutdown` sends the
    last ones.

    `collector`: a URL, for example `http://127.0.0.1:4318`; None: the OTEL_EXPORTER_OTLP_… variables decide.
    Other OTEL_… variables are used, too: sampling, resource, headers, limits.

    Raises:
        ConfigError: the extra is not installed, or the variables request another exporter.
    """
    exporter = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter != "otlp":
        message = f"OTEL_TRACES_EXPORTER must be otlp or none (got {exporter!r})"
        raise ConfigError(message)
    try:
        # An extra.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider as Provider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(str(MissingExtraError("the setting traces", "tracing"))) from error
    named = (
        {}
        if environment.get("OTEL_SERVICE_NAME")
        else {"service.name": SERVICE, "service.version": __version__}
    )
    provider = Provider(resource=Resource.create(named))
    try:
        sender = (
            OTLPSpanExporter()
            if collector is None
            else OTLPSpanExporter(endpoint=collector.removesuffix("/") + _PATH)
        )
    except (ValueError, GatewayError) as error:
        message = f"traces: {error}"
        raise ConfigError(message) from None
    provider.add_span_processor(BatchSpanProcessor(sender))
    return provider
