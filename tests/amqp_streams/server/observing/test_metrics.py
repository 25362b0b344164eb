"""The exposition, read back with Prometheus's own parser."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from amqp_streams.config import LogSettings
from amqp_streams.errors import LogDeletedError, StorageError
from amqp_streams.server.observing.metrics import Metrics
from amqp_streams.server.observing.partition_metrics import SAMPLES_A_PART
from amqp_streams.server.observing.status import (
    ConsumerStatus,
    GroupStatus,
    LogStatus,
    NodeStatus,
    QuotaStatus,
)
from amqp_streams.storage.ports import CommitDone, PartitionFacts, Use
from amqp_streams.storage.questions import Figure
from amqp_streams.streams.steps import Steps
from amqp_streams.testing import MemoryStore

GOOD = PartitionFacts(
    start=10, end=35, bytes=4096, first_timestamp_ms=1_500, last_timestamp_ms=2_500, failure=None
)
EMPTY = PartitionFacts(
    start=0, end=0, bytes=0, first_timestamp_ms=None, last_timestamp_ms=None, failure="input/output error"
)
STATUS = NodeStatus(
    ready=True,
    connections=3,
    producer_links=2,
    consumer_links=4,
    pending_bytes=77,
    logs=(LogStatus("temps", (GOOD, EMPTY), events_in=100, bytes_in=1000, events_out=300, bytes_out=3000),),
    consumers=(ConsumerStatus("temps", 0, "container", "link", position=30, lag=5),),
    groups=(GroupStatus("temps", "g", members=2, waiting=1, moves=4, lags={0: 5, 1: 0}),),
    access_refused=7,
    deliveries_refused={"amqp:not-found": 2, "amqp:decode-error": 1},
    quotas=(QuotaStatus("alice", 1, 1500, 2, 2500, connections_refused=3, links_refused=4),),
)


class Source:
    def __init__(self, status: NodeStatus) -> None:
        self.now = status

    def not_ready(self) -> str | None:
        return self.now.hindered

    def status(self) -> Steps[NodeStatus]:
        yield
        return self.now


def scrape(metrics: Metrics) -> dict[str, float]:
    return parse(asyncio.run(metrics.text()))


def parse(text: bytes) -> dict[str, float]:
    """Samples by their name and labels."""
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in samples, "a series twice: Prometheus refuses such a scrape"
            samples[name] = sample.value
    return samples


def of(status: NodeStatus) -> dict[str, float]:
    metrics = Metrics()
    metrics.source = Source(status)
    return scrape(metrics)


def test_every_figure_of_the_node_is_there() -> None:
    samples = of(STATUS)
    expected = {
        "ready": 1,
        "connections": 3,
        "links{role=producer}": 2,
        "links{role=consumer}": 4,
        "pending_bytes": 77,
        "events_total{direction=in,log=temps}": 100,
        "events_total{direction=out,log=temps}": 300,
        "bytes_total{direction=in,log=temps}": 1000,
        "bytes_total{direction=out,log=temps}": 3000,
        "partition_events{log=temps,partition=0}": 25,
        "partition_bytes{log=temps,partition=0}": 4096,
        "partition_start_offset{log=temps,partition=0}": 10,
        "partition_end_offset{log=temps,partition=0}": 35,
        "partition_failed{log=temps,partition=0}": 0,
        "partition_failed{log=temps,partition=1}": 1,
        "partition_first_timestamp_seconds{log=temps,partition=0}": 1.5,
        "partition_last_timestamp_seconds{log=temps,partition=0}": 2.5,
        "consumer_position{container=container,link=link,log=temps,partition=0}": 30,
        "consumer_lag_events{container=container,link=link,log=temps,partition=0}": 5,
        "consumers_not_shown": 0,
        "group_members{group=g,log=temps}": 2,
        "group_waiting{group=g,log=temps}": 1,
        "group_moves_total{group=g,log=temps}": 4,
        "group_lag_events{group=g,log=temps,partition=0}": 5,
        "group_lag_events{group=g,log=temps,partition=1}": 0,
        "groups_not_shown": 0,
        "access_refused_total": 7,
        "deliveries_refused_total{condition=amqp:decode-error}": 1,
        "deliveries_refused_total{condition=amqp:not-found}": 2,
        "quota_waits_total{direction=in,user=alice}": 1,
        "quota_wait_seconds_total{direction=in,user=alice}": 1.5,
        "quota_waits_total{direction=out,user=alice}": 2,
        "quota_wait_seconds_total{direction=out,user=alice}": 2.5,
        "quota_refused_total{quota=connections,user=alice}": 3,
        "quota_refused_total{quota=links,user=alice}": 4,
    }
    assert {name: samples[f"amqp_streams_{name}"] for name in expected} == expected
    assert "amqp_streams_partition_first_timestamp_seconds{log=temps,partition=1}" not in samples


def test_figures_are_those_of_the_moment_of_the_scrape() -> None:
    metrics, source = Metrics(), Source(STATUS)
    metrics.source = source
    assert scrape(metrics)["amqp_streams_connections"] == 3
    source.now = replace(STATUS, connections=8, ready=False)
    assert scrape(metrics)["amqp_streams_connections"] == 8
    assert scrape(metrics)["amqp_streams_ready"] == 0


def test_before_a_node_exists_the_process_can_be_scraped() -> None:
    samples = scrape(Metrics())
    assert samples["process_open_fds"] > 0
    assert "amqp_streams_connections" not in samples


def test_a_certificate_has_the_time_at_which_it_expires() -> None:
    name = "amqp_streams_certificate_expiry_timestamp_seconds"
    assert scrape(Metrics(expires_at=lambda: 1.7e9))[name] == 1.7e9
    assert name not in scrape(Metrics())


async def test_a_scrape_of_many_partitions_lets_others_run() -> None:
    """The status is read once."""
    metrics, source = Metrics(), Source(STATUS)
    metrics.source = source
    scraping = asyncio.create_task(metrics.text())
    turns = 0
    while not scraping.done():
        await asyncio.sleep(0)
        turns += 1
        source.now = replace(STATUS, connections=turns, producer_links=turns)
    assert turns > 10
    samples = parse(scraping.result())
    assert samples["amqp_streams_connections"] == samples["amqp_streams_links{role=producer}"]


def test_series_beyond_the_bounds_are_counted_instead_of_shown() -> None:
    samples = of(replace(STATUS, consumers_more=5, groups_more=6))
    assert samples["amqp_streams_consumers_not_shown"] == 5
    assert samples["amqp_streams_groups_not_shown"] == 6


def test_bounds_faults_and_hindrances_are_figures() -> None:
    samples = of(
        replace(STATUS, uses={"cursors": Use(3, 10)}, faults={"retention": 2}, hindered="the disk is full")
    )
    assert samples["amqp_streams_bound_used{bound=cursors}"] == 3
    assert samples["amqp_streams_bound_limit{bound=cursors}"] == 10
    assert samples["amqp_streams_faults_total{step=retention}"] == 2
    assert samples["amqp_streams_hindered"] == 1
    assert of(STATUS)["amqp_streams_hindered"] == 0


async def test_requests_within_a_second_get_the_same_exposition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics, source = Metrics(), Source(STATUS)
    metrics.source = source
    first, second = await asyncio.gather(metrics.shared_text(), metrics.shared_text())
    source.now = replace(STATUS, connections=8)
    assert first is second is await metrics.shared_text()
    monkeypatch.setattr("amqp_streams.server.observing.metrics.SHARED_S", -1.0)
    assert parse(await metrics.shared_text())["amqp_streams_connections"] == 8


async def test_a_scrape_that_failed_is_not_shared_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, source = Metrics(), Source(STATUS)
    metrics.source = source
    monkeypatch.setattr(source, "now", None)
    with pytest.raises(AttributeError):
        await metrics.shared_text()
    monkeypatch.setattr(source, "now", STATUS)
    assert b"amqp_streams_connections 3.0" in await metrics.shared_text()


@pytest.mark.parametrize(
    "name", ['quoted " \\ and \n lines', "\ud800 alone", "x" * 100_000, "", "{}", "a=b,c"]
)
def test_the_scrape_parses_with_any_name_of_a_peer(name: str) -> None:
    twins = (ConsumerStatus("temps", 0, name, name, 1, 1), ConsumerStatus("temps", 0, name, name, 2, 2))
    samples = of(
        replace(
            STATUS,
            consumers=twins,
            groups=(GroupStatus("temps", name, 1, 0, 0), GroupStatus("temps", name, 2, 0, 0)),
        )
    )
    assert sum(sample.startswith("amqp_streams_group_members{") for sample in samples) == 1
    assert sum(sample.startswith("amqp_streams_consumer_position{") for sample in samples) == 1
    assert samples["amqp_streams_consumers_not_shown"] == 1
    assert max(map(len, samples)) < 1000


def test_figures_of_the_store_are_shown_by_their_names_and_labels() -> None:
    figures = (
        Figure("kafka_pending_events", "Waiting.", {(): 3}),
        Figure("kafka_errors", "Errors.", {("transport",): 2, ("other",): 1}, ("kind",), counter=True),
    )
    samples = of(replace(STATUS, figures=figures))
    assert samples["amqp_streams_kafka_pending_events"] == 3
    assert samples["amqp_streams_kafka_errors_total{kind=transport}"] == 2
    assert samples["amqp_streams_kafka_errors_total{kind=other}"] == 1


def test_commits_are_counted_by_duration_and_size() -> None:
    metrics = Metrics()
    (partition,) = MemoryStore().create("temps", LogSettings(), incarnation="i").partitions
    queue, failures = partition.queue, {partition: StorageError("no")}
    deleted = {partition: LogDeletedError("deleted")}
    metrics.commits.observe(CommitDone(queue, 1, events=500, bytes=50_000, seconds=0.002, failures={}))
    metrics.commits.observe(CommitDone(queue, 2, events=1, bytes=100, seconds=3.0, failures=failures))
    metrics.commits.observe(CommitDone(queue, 3, events=1, bytes=100, seconds=0.002, failures=deleted))
    samples = scrape(metrics)
    assert samples["amqp_streams_commit_seconds_count"] == 3
    assert samples["amqp_streams_commit_seconds_sum"] == pytest.approx(3.004)
    assert samples["amqp_streams_commit_seconds_bucket{le=0.0025}"] == 2
    assert samples["amqp_streams_commit_events_sum"] == 502
    assert samples["amqp_streams_commit_events_bucket{le=1.0}"] == 2
    assert samples["amqp_streams_commit_bytes_sum"] == 50_200
    assert samples["amqp_streams_commit_failures_total"] == 1


def test_room_on_the_disk_and_refused_connections_are_asked_at_the_scrape(tmp_path: Path) -> None:
    samples = scrape(Metrics(data_dir=tmp_path, refused=lambda: 6))
    free, used, size = (samples[f"amqp_streams_disk_{what}_bytes"] for what in ("free", "used", "size"))
    assert free > 0
    assert free + used <= size
    assert samples["amqp_streams_connections_refused_total"] == 6


def test_a_missing_data_directory_costs_only_its_own_figures(tmp_path: Path) -> None:
    metrics = Metrics(data_dir=tmp_path / "gone")
    metrics.source = Source(STATUS)
    samples = scrape(metrics)
    assert "amqp_streams_disk_free_bytes" not in samples
    assert samples["amqp_streams_connections"] == 3


def test_users_whose_names_are_alike_once_cut_are_one_series() -> None:
    """The same series twice would invalidate the whole scrape."""
    long = "u" * 200
    samples = of(
        replace(STATUS, quotas=(QuotaStatus(long + "1", waits_in=1), QuotaStatus(long + "2", waits_in=2)))
    )
    assert samples[f"amqp_streams_quota_waits_total{{direction=in,user={long[:128]}}}"] == 3


async def test_a_family_of_many_series_is_built_in_parts_and_has_one_head() -> None:
    parts = 5
    wide = LogStatus("wide", (GOOD,) * parts * SAMPLES_A_PART, 0, 0, 0, 0)
    lags = dict.fromkeys(range(parts * SAMPLES_A_PART), 7)
    metrics = Metrics()
    metrics.source = Source(replace(STATUS, logs=(wide,), groups=(GroupStatus("wide", "g", 1, 0, 0, lags),)))
    turns = 0
    scraping = asyncio.create_task(metrics.text())
    while not scraping.done():
        await asyncio.sleep(0)
        turns += 1
    text = scraping.result()
    assert text.count(b"# TYPE amqp_streams_partition_events gauge\n") == 1
    assert text.count(b"# HELP amqp_streams_group_lag_events ") == 1
    samples = parse(text)
    for index in range(parts * SAMPLES_A_PART):
        assert samples[f"amqp_streams_partition_events{{log=wide,partition={index}}}"] == 25
        assert samples[f"amqp_streams_group_lag_events{{group=g,log=wide,partition={index}}}"] == 7
    assert turns > 8 * parts
