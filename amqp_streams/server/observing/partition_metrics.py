"""The figures of partitions for Prometheus, in parts: a node may have ten thousand partitions.

Law: building a part takes about a millisecond, however many partitions there are.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from amqp_streams.server.observing.status import LogStatus
from amqp_streams.storage.ports import PartitionFacts

PREFIX: Final = "amqp_streams_"
"""The beginning of the names of all metrics of the node."""
SAMPLES_A_PART: Final = 256
"""How many samples a part has: it is written in about a millisecond."""


def partition_metrics(logs: Sequence[LogStatus]) -> Iterator[Metric]:
    """Each family of metrics, in parts of at most `SAMPLES_A_PART` samples that follow each other."""
    for name, documentation, figure in _FAMILIES:
        family = _family(name, documentation)
        for log in logs:
            for index, facts in enumerate(log.partitions):
                value = figure(facts)
                if value is None:
                    continue
                if len(family.samples) == SAMPLES_A_PART:
                    yield family
                    family = _family(name, documentation)
                family.add_metric([log.name, str(index)], value)
        yield family


def _family(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, documentation, labels=["log", "partition"])


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_FAMILIES: Final[tuple[tuple[str, str, Callable[[PartitionFacts], float | None]], ...]] = (
    ("partition_events", "Retained events.", lambda facts: facts.end - facts.start),
    ("partition_bytes", "Bytes of the retained events.", lambda facts: facts.bytes),
    ("partition_start_offset", "Offset of the earliest retained event.", lambda facts: facts.start),
    ("partition_end_offset", "Offset after the latest durable event.", lambda facts: facts.end),
    (
        "partition_failed",
        "1 when the partition is stopped after a failed write.",
        lambda facts: float(facts.failure is not None),
    ),
    (
        "partition_first_timestamp_seconds",
        "Time of the earliest retained event.",
        lambda facts: _seconds(facts.first_timestamp_ms),
    ),
    (
        "partition_last_timestamp_seconds",
        "Time of the latest durable event.",
        lambda facts: _seconds(facts.last_timestamp_ms),
    ),
)
