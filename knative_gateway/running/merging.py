"""The metrics of all workers as those of one gateway. Pure.

Counters and histograms are sums. A gauge is a sum, too, unless the sum would say nothing: ages and versions
take the maximum; what must hold in every worker takes the minimum. The limits that are gauges are parts of
the limits of the gateway, so their sums are the limits.

Law: while a time series is reported by any worker, its counter does not fall when a worker ends: what the
worker had counted when it was last asked stays part of the sum.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

_MAXIMA: Final = frozenset(
    {
        "knative_gateway_build_info",
        "knative_gateway_positions_kept_seconds",
        "knative_gateway_subscriber_lag_seconds",
        # Each worker knows it.
        "knative_gateway_subscriber_paused",
        "process_open_fds",
        "python_info",
    }
)
_MINIMA: Final = frozenset(
    {
        "knative_gateway_certificate_expiry_timestamp_seconds",
        "knative_gateway_event_log_connected",
        "knative_gateway_ready",
        "process_max_fds",
        # The age of the gateway is that of its oldest process, the parent.
        "process_start_time_seconds",
    }
)
_COUNTED: Final = frozenset({"counter", "histogram"})

Series = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a sample, and its labels."""
Values = dict[Series, float]


class Family:
    """The samples of one metric, of one process or of several."""

    __slots__ = ("help", "kind", "name", "values")

    def __init__(self, name: str, kind: str, help_: str, values: Values) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.help: Final = help_
        self.values: Final = values


Families = Mapping[str, Family]


def packed(metrics: Iterable[Metric]) -> bytes:
    """Return the metrics of one process as it sends them to another."""
    families = [
        [
            metric.name,
            metric.type,
            metric.documentation,
            [[sample.name, list(sample.labels.items()), sample.value] for sample in metric.samples],
        ]
        for metric in metrics
    ]
    return json.dumps(families, separators=(",", ":")).encode()


def pack_registry(registry: CollectorRegistry) -> bytes:
    """Return all metrics of a registry, packed."""
    return packed(registry.collect())


def unpacked(data: bytes) -> Families:
    """Return the metrics that `packed` has written."""
    return {
        name: Family(
            name,
            kind,
            help_,
            {(sample, tuple(map(tuple, labels))): value for sample, labels, value in samples},
        )
        for name, kind, help_, samples in json.loads(data)
    }


def merged(parts: Iterable[Families]) -> Families:
    """Return the metrics of several processes as those of one."""
    result: dict[str, Family] = {}
    for families in parts:
        for name, family in families.items():
            into = result.get(name)
            if into is None:
                result[name] = Family(name, family.kind, family.help, dict(family.values))
            else:
                _merge(name, into.values, family.values)
    return result


def counted(families: Families) -> Families:
    """Return what stays after a process has ended: its counters and histograms."""
    return {name: family for name, family in families.items() if family.kind in _COUNTED}


def known(ended: Families, running: Families) -> Families:
    """Return the counters of ended processes that a running process reports as well.

    The others belong to objects that were deleted. Without this, they would stay in memory without end.
    """
    return {
        name: Family(
            name,
            family.kind,
            family.help,
            {series: value for series, value in family.values.items() if series in running[name].values},
        )
        for name, family in ended.items()
        if name in running
    }


def _merge(name: str, into: Values, values: Values) -> None:
    if name in _MAXIMA or name in _MINIMA:
        choose: Any = max if name in _MAXIMA else min
        for series, value in values.items():
            into[series] = choose(into.get(series, value), value)
    else:
        for series, value in values.items():
            into[series] = into.get(series, 0.0) + value


class Merged(Collector):
    """A collector that yields merged metrics, for the text of `/metrics`."""

    def __init__(self, families: Families) -> None:
        self._families: Final = families

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        for family in self._families.values():
            metric = Metric(family.name, family.help, family.kind)
            for (name, labels), value in family.values.items():
                metric.add_sample(name, dict(labels), value)
            yield metric
