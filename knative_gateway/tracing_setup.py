"""[io] Sets up tracing if the settings require it. Otherwise its libraries are not imported."""

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

import structlog

from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.ingress.app import Ingress, IngressLimits
from knative_gateway.running.stopping import Parts
from knative_gateway.security.access import Gate

if TYPE_CHECKING:
    from knative_gateway.tracing import Traces

log = structlog.get_logger("knative_gateway")


def start_traces(collector: str | None, parts: Parts) -> "Traces | None":
    """Send traces to `collector`, or as variables OTEL_… say. Return None if neither exists.

    The last traces are sent when `parts` closes.
    """
    # The exporter is an extra, and a gateway without traces must not pay for its import.
    if collector is None and not any(name.startswith("OTEL_") for name in os.environ):
        return None
    from knative_gateway import tracing  # noqa: PLC0415

    if not tracing.are_asked_for(collector):
        return None
    provider = tracing.exporting(collector)
    parts.on_close("traces", partial(asyncio.to_thread, provider.shutdown))
    log.info("tracing", collector=collector or "from OTEL_… variables")
    return tracing.Traces(provider)


def create_ingress(
    event_log: AmqpEventLog, traces: "Traces | None", limits: IngressLimits, authorizer: Gate | None
) -> Ingress:
    """Return an ingress that traces its requests if there are traces."""
    if traces is None:
        return Ingress(event_log, limits=limits, authorizer=authorizer)
    from knative_gateway.ingress.traced import TracedIngress  # noqa: PLC0415

    return TracedIngress(event_log, traces, limits=limits, authorizer=authorizer)
