"""[io] Metrics of subscribers, connections and partitions, read from counters at each scrape."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from knative_gateway.dispatcher.dispatcher import Dispatcher
from knative_gateway.dispatcher.figures import LATENCY_BOUNDS_MS, Latencies

LABELS: Final = ("kind", "namespace", "name", "parent")
_PREFIX: Final = "knative_gateway_subscriber_"
_COUNTERS: Final = {
    "matched": "Events that the filters matched.",
    "delivered": "Events that the subscriber accepted.",
    "replied": "Replies that were stored in the Broker.",
    "retried": "Attempts after the first of a delivery.",
    "failed_attempts": "Attempts that failed, at any destination.",
    "dead_lettered": "Deliveries that ended in the dead letter sink.",
    "dropped": "Deliveries that failed without a dead letter sink.",
    "skipped": "Stored messages that are not CloudEvents, and events that could not be filtered.",
    "removed": "Events of the log, matching or not, that retention removed before they were delivered.",
    "replies_expired": "Replies that were dropped because their chain was too long.",
}
_GAUGES: Final = {
    "in_flight": "Requests without an answer yet.",
    "waiting": "Deliveries that wait for their next attempt.",
}
_LAG_EVENTS: Final = "Events of the log after the subscriber's position, matching or not; a few seconds old."
_LAG_SECONDS: Final = "Age of the oldest event that the subscriber has not completed."
_PAUSED: Final = "1 while the subscriber is paused."
_REQUEST: Final = "Time from a request to its answer."
_DELIVERY: Final = "Time from when an event was stored until its delivery ended."
_PARTITIONS: Final = (
    "Partitions of a Broker's or Channel's log that this gateway delivers. Replicas share them."
)
_ALL_GAUGES: Final = {
    "knative_gateway_connections": "Connections to subscribers, including idle ones.",
    "knative_gateway_connections_max": "Maximum number of connections to subscribers.",
    "knative_gateway_connections_waiting": "Requests that wait for a connection because too many are in use.",
    "knative_gateway_reply_bytes": "Bytes of the replies that are being received.",
    "knative_gateway_reply_bytes_max": "Maximum number of bytes of replies that are received at once.",
    "knative_gateway_replies_waiting": "Replies that are not read until other replies have been received.",
    "knative_gateway_lookups": "Host names that are being looked up.",
}
_LOCAL_ERRORS: Final = (
    "Connections that could not be opened because this machine had no descriptor, "
    "port, memory or thread left."
)
_RESENT: Final = "Requests that were sent again because the subscriber had closed the idle connection."


class DispatcherMetrics(Collector):
    """A collector of `prometheus_client`.

    `collect` runs in the thread of the scrape, not in the event loop.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher: Final = dispatcher

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the dispatcher."""
        counters = {
            name: CounterMetricFamily(_PREFIX + name, help_, labels=LABELS)
            for name, help_ in _COUNTERS.items()
        }
        gauges = {
            name: GaugeMetricFamily(_PREFIX + name, help_, labels=LABELS) for name, help_ in _GAUGES.items()
        }
        events = GaugeMetricFamily(f"{_PREFIX}lag_events", _LAG_EVENTS, labels=LABELS)
        seconds = GaugeMetricFamily(f"{_PREFIX}lag_seconds", _LAG_SECONDS, labels=LABELS)
        paused = GaugeMetricFamily(f"{_PREFIX}paused", _PAUSED, labels=LABELS)
        request = HistogramMetricFamily(f"{_PREFIX}request_seconds", _REQUEST, labels=LABELS)
        delivery = HistogramMetricFamily(f"{_PREFIX}delivery_seconds", _DELIVERY, labels=LABELS)
        # One pass over the subscribers, and not one for each metric: there may be thousands of them.
        for parent, dispatcher, lag in self._dispatcher.subscribers():
            spec, figures = dispatcher.spec, dispatcher.figures
            labels = (spec.kind, spec.namespace, spec.name, parent)
            for name, counter in counters.items():
                counter.add_metric(labels, getattr(figures, name))
            for name, gauge in gauges.items():
                gauge.add_metric(labels, getattr(figures, name))
            paused.add_metric(labels, float(spec.paused))
            events.add_metric(labels, lag.events)
            seconds.add_metric(labels, lag.seconds)
            # A histogram takes 17 lines. Subscribers without events, of which there may be thousands, get
            # none.
            for histogram, latencies in ((request, figures.request), (delivery, figures.end_to_end)):
                if any(latencies.counts):
                    histogram.add_metric(labels, _buckets(latencies), latencies.total_ms / 1000)
        yield from (
            *counters.values(),
            *gauges.values(),
            paused,
            events,
            seconds,
            request,
            delivery,
            self._partitions(),
        )
        yield from self._connections()

    def _connections(self) -> Iterator[Metric]:
        """Yield the metrics that are not per subscriber."""
        connections = self._dispatcher.connections
        slots, replies = connections.slots, connections.replies
        values = (
            slots.used + connections.idle,
            slots.max,
            slots.waiting,
            replies.used,
            replies.max,
            replies.waiting,
            connections.names.looking_up,
        )
        for (name, help_), value in zip(_ALL_GAUGES.items(), values, strict=True):
            yield GaugeMetricFamily(name, help_, value)
        yield CounterMetricFamily(
            "knative_gateway_local_errors",
            _LOCAL_ERRORS,
            connections.opener.local_errors,
        )
        yield CounterMetricFamily("knative_gateway_resent", _RESENT, connections.resent)

    def _partitions(self) -> Metric:
        partitions = GaugeMetricFamily("knative_gateway_partitions", _PARTITIONS, labels=LABELS[:3])
        for worker in list(self._dispatcher.workers.values()):
            route = worker.wanted
            partitions.add_metric((route.kind, route.namespace, route.name), len(worker.partitions))
        return partitions


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
    bounds = [*(str(bound / 1000) for bound in LATENCY_BOUNDS_MS), "+Inf"]
    return list(zip(bounds, map(float, accumulate(latencies.counts)), strict=True))
