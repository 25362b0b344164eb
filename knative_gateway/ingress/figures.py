"""The counters of the ingress, by Broker and Channel. Pure: numbers that become metrics at each scrape."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from knative_gateway.ports import Route, Routes

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LABELS: Final = ("kind", "namespace", "name")


class RouteFigures:
    """The counters of one route."""

    __slots__ = ("buckets", "bytes", "duplicates", "events", "in_flight", "labels", "requests", "seconds")

    def __init__(self, route: Route) -> None:
        self.labels: Final = (route.kind, route.namespace, route.name)
        self.requests: Final[Counter[int]] = Counter()
        self.events = 0
        self.bytes = 0
        self.duplicates = 0
        self.in_flight = 0
        self.seconds = 0.0
        self.buckets: Final = [0] * (len(BOUNDS_S) + 1)

    def answered(self, status: int, seconds: float) -> None:
        """Count an answered request. `seconds`: from the headers of the request to its answer."""
        self.requests[status] += 1
        self.seconds += seconds
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1


class Figures:
    """The counters of all routes.

    Counters of removed routes are removed. A collector of `prometheus_client`.
    """

    def __init__(self) -> None:
        self.unknown = 0
        self._routes: dict[str, RouteFigures] = {}

    def use(self, routes: Routes) -> None:
        """Use these routes, and remove the counters of other routes."""
        old = self._routes
        self._routes = {
            route.uid: old.get(route.uid) or RouteFigures(route) for route in routes.by_path.values()
        }

    def of(self, route: Route) -> RouteFigures:
        """Return the counters of one route."""
        return self._routes[route.uid]

    def collect(self) -> Iterator[Metric]:
        """Yield all counters as metrics."""
        prefix = "knative_gateway_ingress"
        requests = CounterMetricFamily(
            f"{prefix}_requests",
            "Requests with events, by the status of their answer.",
            labels=[*LABELS, "code"],
        )
        events = CounterMetricFamily(
            f"{prefix}_events", "Events accepted: durable in the log.", labels=LABELS
        )
        size = CounterMetricFamily(f"{prefix}_bytes", "Bytes of bodies of accepted requests.", labels=LABELS)
        duplicates = CounterMetricFamily(
            f"{prefix}_duplicates", "Events accepted that had been accepted before.", labels=LABELS
        )
        in_flight = GaugeMetricFamily(f"{prefix}_in_flight", "Requests without an answer yet.", labels=LABELS)
        seconds = HistogramMetricFamily(
            f"{prefix}_seconds", "Time from the headers of a request to its answer.", labels=LABELS
        )
        for one in list(self._routes.values()):  # copies: `/metrics` is built in another thread
            for status, count in list(one.requests.items()):
                requests.add_metric([*one.labels, str(status)], count)
            events.add_metric(one.labels, one.events)
            size.add_metric(one.labels, one.bytes)
            duplicates.add_metric(one.labels, one.duplicates)
            in_flight.add_metric(one.labels, one.in_flight)
            if one.requests:  # an empty histogram would be 15 lines
                seconds.add_metric(one.labels, _cumulative(one.buckets), one.seconds)
        unknown = CounterMetricFamily(
            f"{prefix}_unknown", "Requests to a Broker or Channel that does not exist."
        )
        unknown.add_metric((), self.unknown)
        yield from (requests, events, size, duplicates, in_flight, seconds, unknown)


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total, found = 0, []
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), buckets, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
