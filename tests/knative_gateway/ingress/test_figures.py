"""Counts are exported as metrics."""

from prometheus_client import CollectorRegistry, generate_latest

from knative_gateway.ingress.figures import Figures
from tests.knative_gateway.asking import BROKER, CHANNEL, routes


def text(figures: Figures) -> str:
    registry = CollectorRegistry()
    registry.register(figures)
    return generate_latest(registry).decode()


def test_requests_are_counted_by_route() -> None:
    figures = Figures()
    figures.use(routes(BROKER, CHANNEL))
    one = figures.of(BROKER)
    one.events, one.bytes, one.duplicates, one.in_flight, figures.unknown = 3, 100, 1, 2, 9
    one.answered(202, 0.003)
    one.answered(202, 9.0)
    one.answered(400, 0.0001)
    told = text(figures)
    labels = 'kind="Broker",name="b",namespace="default"'
    for line in (
        'knative_gateway_ingress_requests_total{code="202",' + labels + "} 2.0",
        "knative_gateway_ingress_events_total{" + labels + "} 3.0",
        "knative_gateway_ingress_bytes_total{" + labels + "} 100.0",
        "knative_gateway_ingress_duplicates_total{" + labels + "} 1.0",
        "knative_gateway_ingress_in_flight{" + labels + "} 2.0",
        'knative_gateway_ingress_seconds_bucket{kind="Broker",le="0.0005",name="b",namespace="default"} 1.0',
        'knative_gateway_ingress_seconds_bucket{kind="Broker",le="0.005",name="b",namespace="default"} 2.0',
        "knative_gateway_ingress_seconds_count{" + labels + "} 3.0",
        "knative_gateway_ingress_unknown_total 9.0",
    ):
        assert line in told, line


def test_a_route_that_stays_keeps_its_figures_and_one_that_goes_loses_them() -> None:
    figures = Figures()
    figures.use(routes(BROKER, CHANNEL))
    figures.of(BROKER).events = 3
    figures.use(routes(BROKER))
    assert figures.of(BROKER).events == 3
    assert 'kind="Channel"' not in text(figures)
