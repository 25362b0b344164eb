"""The settings of the gateway's parts, derived from the settings of the gateway. [io]"""

from ssl import SSLContext
from typing import TYPE_CHECKING

from knative_gateway.addressing import ServiceMap
from knative_gateway.config import GatewaySettings
from knative_gateway.controller.deciding.plan import Settings
from knative_gateway.dispatcher.posting.sending import SendSettings, tls_context
from knative_gateway.dispatcher.settings import DispatchSettings
from knative_gateway.dispatcher.spans import NO_TRACES
from knative_gateway.errors import ConfigError
from knative_gateway.ingress.app import IngressLimits
from knative_gateway.security.destinations import Destinations
from knative_gateway.security.inward import Inward
from service_parts.open_files import raise_open_files

if TYPE_CHECKING:
    from knative_gateway.tracing import Traces


def ingress_limits(settings: GatewaySettings) -> IngressLimits:
    limits = settings.limits
    return IngressLimits(body_bytes=limits.body, batch_events=limits.batch_events, body_s=limits.request)


def controller_settings(
    settings: GatewaySettings,
    inward: Inward,
    services: ServiceMap,
    allowed: Destinations,
    *,
    delete_logs: bool,
) -> Settings:
    logs = settings.logs
    return Settings(
        base_url=inward.base_url,
        services=services,
        allowed=allowed,
        inward=inward,
        partitions=logs.partitions,
        retention_ms=None if logs.retention is None else round(logs.retention * 1000),
        delete_logs=delete_logs,
    )


def send_settings(settings: GatewaySettings) -> SendSettings:
    """Return the settings of requests to subscribers.

    Raises the process's limit of open files, so that the connections fit.
    """
    given = settings.subscribers
    return SendSettings(
        timeout_ms=round(given.timeout * 1000),
        connect_timeout_ms=round(given.connect_timeout * 1000),
        reply_bytes_max=settings.limits.body,
        ca_file=given.ca,
        certificate_file=given.certificate,
        key_file=given.key,
        verify=given.verify,
        replies_bytes_max=given.replies,
        connections_max=min(given.connections, max(1, raise_open_files() // 2)),
    )


def subscribers_tls(settings: GatewaySettings) -> SSLContext:
    """Return the TLS context of requests to subscribers, from the current files.

    Raises:
        ConfigError: a file cannot be read or is not valid.
    """
    try:
        return tls_context(send_settings(settings))
    except OSError as error:
        message = f"subscribers: ca, certificate or key: {error}"
        raise ConfigError(message) from error


def destinations(settings: GatewaySettings) -> Destinations:
    """Return the allowed destinations.

    Raises:
        ConfigError: a rule is not valid.
    """
    rules = settings.destinations
    return (
        Destinations.parse(allow=rules.allow)
        if rules.deny is None
        else Destinations.parse(allow=rules.allow, deny=rules.deny)
    )


def dispatch_settings(settings: GatewaySettings, traces: "Traces | None") -> DispatchSettings:
    given = settings.subscribers
    return DispatchSettings(
        look_ahead=given.look_ahead,
        held_bytes_max=given.held,
        in_flight_max=given.in_flight,
        waiting_max=given.waiting,
        drain_s=settings.limits.drain,
        tracer=NO_TRACES if traces is None else traces,
    )
