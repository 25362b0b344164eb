"""The metrics of the gateway itself, in addition to those of its parts."""

from collections.abc import Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from knative_gateway import __version__


class Observed(Protocol):
    """What the metrics are computed from."""

    @property
    def connected(self) -> bool:
        """Whether the event log node is connected."""

    @property
    def leads(self) -> bool:
        """Whether this process writes the statuses of objects."""

    @property
    def stored_s_ago(self) -> float | None:
        """Seconds since the positions of subscribers were last stored. None before the dispatcher starts."""

    @property
    def embedded_starts(self) -> int | None:
        """How often the embedded node was started. None if the gateway has no embedded node."""

    @property
    def certificate_expires_at(self) -> float | None:
        """When the certificate of the listener expires, in seconds since 1970. None without TLS."""

    def missing(self) -> str | None:
        """Return why this process is not ready; None if it is."""


class GatewayFigures:
    """A collector for the registry of `/metrics`."""

    def __init__(self, gateway: Observed) -> None:
        self._gateway: Final = gateway

    def register(self, registry: CollectorRegistry, *parts: Collector) -> None:
        """Register the metrics of the process, of the gateway and of its parts."""
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        for collector in (self, *parts):
            registry.register(collector)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the gateway itself."""
        gateway = self._gateway
        build = GaugeMetricFamily(
            "knative_gateway_build_info", "1; its label has the version.", labels=["version"]
        )
        build.add_metric([__version__], 1)
        yield build
        yield GaugeMetricFamily(
            "knative_gateway_ready",
            "1 while the gateway is ready; /readyz says why it is not.",
            float(gateway.missing() is None),
        )
        yield GaugeMetricFamily(
            "knative_gateway_event_log_connected",
            "Whether the event log node is connected.",
            float(gateway.connected),
        )
        yield GaugeMetricFamily(
            "knative_gateway_leaders", "Processes that write the statuses of objects.", float(gateway.leads)
        )
        if (seconds := gateway.stored_s_ago) is not None:
            words = "Seconds since the positions of subscribers were last stored in the state database."
            yield GaugeMetricFamily("knative_gateway_positions_kept_seconds", words, seconds)
        if (starts := gateway.embedded_starts) is not None:
            yield embedded_starts(starts)
        if (expires_at := gateway.certificate_expires_at) is not None:
            words = "When the TLS certificate expires, in seconds since 1970."
            yield GaugeMetricFamily("knative_gateway_certificate_expiry_timestamp_seconds", words, expires_at)


def embedded_starts(starts: int) -> Metric:
    """Return the metric of the starts of the embedded node."""
    return CounterMetricFamily(
        "knative_gateway_embedded_starts", "Starts of the embedded event log node.", float(starts)
    )
