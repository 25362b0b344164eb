"""[io] What `/metrics` tells of each subscriber, and of what is ours to deliver: read from its figures when somebody asks."""

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from knative_gateway.dispatcher.figures import LATENCY_BOUNDS_MS, Latencies

if TYPE_CHECKING:
    from knative_gateway.dispatcher.dispatcher import Dispatcher

LABELS: Final = ("kind", "namespace", "name", "parent")
_PREFIX: Final = "knative_gateway_subscriber_"
_COUNTERS: Final = {
    "matched": "Events that its filters let through.",
    "delivered": "Deliveries that ended well.",
    "replied": "Replies that were stored in the Broker.",
    "retried": "Attempts after the first of a delivery.",
    "failed_attempts": "Attempts that failed, at any destination.",
    "dead_lettered": "Deliveries that ended in the dead letter sink.",
    "dropped": "Deliveries that were given up, and nobody has the event.",
    "skipped": "What the log has that is no CloudEvent.",
    "removed": "Events of the log, matching or not, that retention removed before they were delivered.",
    "replies_expired": "Replies that were dropped because their chain was too long.",
}
_GAUGES: Final = {"in_flight": "Requests without an answer yet.", "waiting": "Deliveries that wait for their next attempt."}


class DispatcherMetrics(Collector):
    """A collector of prometheus_client."""

    def __init__(self, dispatcher: "Dispatcher") -> None:
        self._dispatcher: Final = dispatcher

    def collect(self) -> Iterator[Metric]:
        """All of it as metrics."""
        counters = {name: CounterMetricFamily(_PREFIX + name, words, labels=LABELS) for name, words in _COUNTERS.items()}
        gauges = {name: GaugeMetricFamily(_PREFIX + name, words, labels=LABELS) for name, words in _GAUGES.items()}
        events = GaugeMetricFamily(
            f"{_PREFIX}lag_events", "Events of the log behind its place, matching or not; a few seconds old.", labels=LABELS
        )
        seconds = GaugeMetricFamily(f"{_PREFIX}lag_seconds", "Age of the oldest event that it has not completed.", labels=LABELS)
        request = HistogramMetricFamily(f"{_PREFIX}request_seconds", "From a request to its answer.", labels=LABELS)
        whole = HistogramMetricFamily(f"{_PREFIX}delivery_seconds", "From an event's storing to the end of its delivery.", labels=LABELS)
        for parent, courier, lag in self._dispatcher.subscribers():
            spec, figures = courier.spec, courier.figures
            labels = (spec.kind, spec.namespace, spec.name, parent)
            for name, counter in counters.items():
                counter.add_metric(labels, getattr(figures, name))
            for name, gauge in gauges.items():
                gauge.add_metric(labels, getattr(figures, name))
            events.add_metric(labels, lag.events)
            seconds.add_metric(labels, lag.seconds)
            # An empty histogram would be 17 lines for each subscriber that had no event yet.
            for histogram, latencies in ((request, figures.request), (whole, figures.end_to_end)):
                if any(latencies.counts):
                    histogram.add_metric(labels, _buckets(latencies), latencies.total_ms / 1000)
        yield from (*counters.values(), *gauges.values(), events, seconds, request, whole, self._partitions())
        yield from self._connections()

    def _connections(self) -> Iterator[Metric]:
        """Of all subscribers together."""
        connections = self._dispatcher.connections
        slots, prefix = connections.slots, "knative_gateway_connections"
        yield GaugeMetricFamily(prefix, "Connections to subscribers, including idle ones.", slots.used + connections.idle)
        yield GaugeMetricFamily(f"{prefix}_max", "Maximum number of connections to subscribers.", slots.max)
        yield GaugeMetricFamily(f"{prefix}_waiting", "Requests that wait for a connection because too many are in use.", slots.waiting)
        replies = connections.replies
        yield GaugeMetricFamily("knative_gateway_reply_bytes", "Bytes of the replies that are being received.", replies.used)
        yield GaugeMetricFamily("knative_gateway_reply_bytes_max", "Bytes of replies received at once, at most.", replies.max)
        yield GaugeMetricFamily(
            "knative_gateway_replies_waiting", "Replies whose reading is paused since there is no room.", replies.waiting
        )
        yield GaugeMetricFamily("knative_gateway_lookups", "Host names that are being looked up.", connections.names.looking_up)
        words = "Connections that could not be opened because this machine had run out of descriptors, ports, memory or threads."
        yield CounterMetricFamily("knative_gateway_local_errors", words, connections.opener.local_errors)
        words = "Requests that were sent once more because the connection that was kept alive for them had been closed."
        yield CounterMetricFamily("knative_gateway_resent", words, connections.resent)

    def _partitions(self) -> Metric:
        words = "Partitions of a Broker's or Channel's log whose events this gateway delivers; of replicas each has some."
        partitions = GaugeMetricFamily("knative_gateway_partitions", words, labels=LABELS[:3])
        for worker in list(self._dispatcher.workers.values()):
            route = worker.wanted
            partitions.add_metric((route.kind, route.namespace, route.name), len(worker.partitions))
        return partitions


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
    bounds = [*(str(bound / 1000) for bound in LATENCY_BOUNDS_MS), "+Inf"]
    return list(zip(bounds, map(float, accumulate(latencies.counts)), strict=True))
