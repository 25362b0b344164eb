"""The metrics of several processes as those of one."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from knative_gateway.running.merging import Families, Merged, counted, known, merged, packed, unpacked


def sent(*metrics: Metric) -> Families:
    return unpacked(packed(metrics))


def counters(**values: float) -> Metric:
    made = CounterMetricFamily("events", "Events.", labels=["name"])
    for name, value in values.items():
        made.add_metric([name], value)
    return made


def histogram(low: float, high: float, total: float) -> Metric:
    made = HistogramMetricFamily("seconds", "Time.", labels=["name"])
    made.add_metric(["a"], [("0.1", low), ("+Inf", high)], total)
    return made


def text(families: Families) -> list[str]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Merged(families))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_one_process_s_metrics_are_unchanged() -> None:
    metrics = [counters(**{'a"\\\n': 3.0}), histogram(1.0, 2.0, 0.3), GaugeMetricFamily("open", "Open.", 5.0)]
    registry = CollectorRegistry(auto_describe=False)

    class Given:
        def collect(self) -> list[Metric]:
            return metrics

    registry.register(Given())
    again = CollectorRegistry(auto_describe=False)
    again.register(Merged(merged([sent(*metrics)])))
    assert generate_latest(again) == generate_latest(registry)


def test_counters_and_histograms_are_sums() -> None:
    one = sent(counters(a=3.0), histogram(1.0, 2.0, 0.5))
    other = sent(counters(a=4.0, b=1.0))
    third = sent(counters(b=1.0), histogram(2.0, 5.0, 0.25))
    assert sorted(text(merged([one, other, third]))) == [
        'events_total{name="a"} 7.0',
        'events_total{name="b"} 2.0',
        'seconds_bucket{le="+Inf",name="a"} 7.0',
        'seconds_bucket{le="0.1",name="a"} 3.0',
        'seconds_count{name="a"} 7.0',
        'seconds_sum{name="a"} 0.75',
    ]


def test_gauges_are_sums_maxima_or_minima_as_their_meaning_needs() -> None:
    def gauges(connected: float, kept_s: float, open_: float) -> Families:
        return sent(
            GaugeMetricFamily("knative_gateway_ready", "", connected),
            GaugeMetricFamily("knative_gateway_subscriber_paused", "", 1.0),
            GaugeMetricFamily("knative_gateway_event_log_connected", "", connected),
            GaugeMetricFamily("knative_gateway_positions_kept_seconds", "", kept_s),
            GaugeMetricFamily("knative_gateway_connections", "", open_),
        )

    assert text(merged([gauges(1.0, 0.25, 3.0), gauges(0.0, 2.0, 4.0)])) == [
        "knative_gateway_ready 0.0",
        "knative_gateway_subscriber_paused 1.0",
        "knative_gateway_event_log_connected 0.0",
        "knative_gateway_positions_kept_seconds 2.0",
        "knative_gateway_connections 7.0",
    ]


def test_a_counter_does_not_fall_when_a_process_ends() -> None:
    ended = counted(sent(counters(a=3.0), GaugeMetricFamily("open", "Open.", 5.0)))
    running = sent(counters(a=4.0), GaugeMetricFamily("open", "Open.", 1.0))
    assert text(merged([running, known(ended, running)])) == ['events_total{name="a"} 7.0', "open 1.0"]


def test_counters_that_no_running_process_knows_are_dropped() -> None:
    ended = counted(sent(counters(a=3.0, deleted=9.0)))
    assert text(known(ended, sent(counters(a=0.0)))) == ['events_total{name="a"} 3.0']
    assert text(known(ended, {})) == []
