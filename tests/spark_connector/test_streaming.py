"""`spark.readStream`: first the reader as Spark's engine calls it, against a live node, then queries of
Spark.
"""

import json
import logging
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from amqp_streams.client.blocking import Client, connect
from examples.node import NodeProcess
from spark_connector import register
from spark_connector.errors import DataLossError, NodeError, StreamNotFoundError
from spark_connector.node import connections
from spark_connector.node import requests as asked
from spark_connector.options.settings import read_options
from spark_connector.planning.holdings import Available
from spark_connector.planning.offsets import Offsets
from spark_connector.rows.schema import chosen
from spark_connector.streaming import StreamReader
from tests.spark_connector import logs


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[Client]:
    with connect(node.url) as open_:
        yield open_
    connections.drop(read_options({"endpoint": node.url, "stream": "any"}, streaming=False).connection)


class Query:
    """The checkpoint of a query, and the behaviour of Spark's engine with a source. The order of the calls:
    test_admission.py.
    """

    def __init__(self, node: NodeProcess, stream: str, **options: object) -> None:
        self.options = {
            "endpoint": node.url,
            "stream": stream,
            "columns": "partition,offset",
            "pollInterval": "210",
        }
        self.options |= {name: str(value) for name, value in options.items()}
        self.ends: list[str] = []
        self.reader = self.started()

    def started(self) -> StreamReader:
        """Return the reader in a new process, without state of the former one."""
        self.reader = StreamReader(self.options, chosen(self.options))
        return self.reader

    def start(self) -> dict[str, object]:
        return json.loads(self.ends[-1]) if self.ends else self.reader.initialOffset()

    def end(self, limit: ReadLimit | None = None) -> dict[str, object] | None:
        """Return the end of the next batch, as in the checkpoint; None if there are no new events."""
        start = self.start()
        end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        return None if json.dumps(end) == json.dumps(start) else json.loads(json.dumps(end))

    def rows(self, start: dict[str, object], end: dict[str, object]) -> list[tuple[int, int]]:
        copy = pickle.loads(pickle.dumps(StreamReader(self.options, chosen(self.options))))
        found = [
            row
            for task in self.reader.partitions(start, end)
            for batch in copy.read(task)
            for row in batch.to_pylist()
        ]
        return sorted((row["partition"], row["offset"]) for row in found)

    def batch(self, limit: ReadLimit | None = None) -> list[tuple[int, int]] | None:
        start, end = self.start(), self.end(limit)
        if end is None:
            return None
        rows = self.rows(start, end)
        self.ends.append(json.dumps(end))
        return rows


def filled(client: Client, *counts: int) -> str:
    log = logs.made(client, len(counts))
    for partition, count in enumerate(counts):
        logs.send(client, log, [b"x"] * count, partition)
    return log


def test_batches_have_everything_once_within_the_limit(node: NodeProcess, client: Client) -> None:
    log = filled(client, 25, 5)
    query = Query(node, log, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    batches = [query.batch(), query.batch(), query.batch()]
    assert [len(rows or ()) for rows in batches] == [10, 10, 10]
    assert sorted(row for rows in batches for row in rows or ()) == [(0, number) for number in range(25)] + [
        (1, number) for number in range(5)
    ]
    assert query.batch() is None
    logs.send(client, log, [b"x"], 1)
    assert query.batch() == [(1, 5)]


def test_a_query_from_latest_has_its_beginning_in_the_checkpoint_before_anything_comes(
    node: NodeProcess, client: Client
) -> None:
    log = filled(client, 3)
    query = Query(node, log)
    assert query.batch() == []
    query.started()
    logs.send(client, log, [b"x"] * 2, 0)
    query.started()
    assert query.batch() == [(0, 3), (0, 4)]


def test_events_between_two_requests_of_the_first_batch_survive_a_crash(
    node: NodeProcess, client: Client
) -> None:
    log = filled(client, 3)
    query = Query(node, log)
    query.reader.initialOffset()
    logs.send(client, log, [b"x"] * 2, 0)
    query.reader._watch.fresh()  # some time has passed
    end = query.end()
    assert end is not None
    logs.send(client, log, [b"x"] * 2, 0)
    query.started()
    assert query.rows(query.start(), end) == [(0, 3), (0, 4)]
    query.ends.append(json.dumps(end))
    assert query.batch() == [(0, 5), (0, 6)]


def test_a_batch_is_read_again_as_it_was(node: NodeProcess, client: Client) -> None:
    log = filled(client, 40)
    query = Query(node, log, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    start, end = query.start(), query.end()
    assert end is not None
    tasks = query.reader.partitions(start, end)
    logs.send(client, log, [b"x"] * 10, 0)
    query.started()
    assert list(map(repr, query.reader.partitions(query.start(), end))) == list(map(repr, tasks))


def test_available_now_is_what_was_there_at_the_start(node: NodeProcess, client: Client) -> None:
    log = filled(client, 25)
    query = Query(node, log, startingOffsets="earliest", maxOffsetsPerTrigger=10, minOffsetsPerTrigger=1000)
    query.reader.prepareForTriggerAvailableNow()
    logs.send(client, log, [b"x"] * 10, 0)
    sizes = []
    while (rows := query.batch()) is not None:
        sizes.append(len(rows))
    assert sizes == [10, 10, 5]
    query.started()
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == [(0, number) for number in range(25, 35)]
    assert query.batch() is None


def test_once_reads_everything_whatever_the_limits(node: NodeProcess, client: Client) -> None:
    query = Query(
        node,
        filled(client, 25),
        startingOffsets="earliest",
        maxOffsetsPerTrigger=10,
        minOffsetsPerTrigger=1000,
    )
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert len(query.batch(ReadAllAvailable()) or ()) == 25
    assert Query(node, "any").reader.getDefaultReadLimit() == ReadAllAvailable()


def test_too_little_waits_until_it_is_enough_or_the_time_is_over(node: NodeProcess, client: Client) -> None:
    log = filled(client, 5)
    query = Query(node, log, startingOffsets="earliest", minOffsetsPerTrigger=8, maxTriggerDelay="1h")
    assert query.batch() == []
    assert query.batch() is None
    logs.send(client, log, [b"x"] * 3, 0)
    assert len(query.batch() or ()) == 8
    quick = Query(node, log, startingOffsets="earliest", minOffsetsPerTrigger=100, maxTriggerDelay="0")
    assert len(quick.batch() or ()) == 8


def test_bytes_bound_a_batch_by_the_average_size(node: NodeProcess, client: Client) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [bytes(1000)] * 100)
    query = Query(node, log, startingOffsets="earliest", maxBytesPerTrigger="20k")
    sizes = []
    while (rows := query.batch()) is not None:
        sizes.append(len(rows))
    assert sum(sizes) == 100
    assert all(15 <= size <= 20 for size in sizes[:-1])


def test_an_idle_query_asks_rarely_and_reporting_asks_no_node(
    node: NodeProcess, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(node, filled(client, 1))
    assert query.reader.reportLatestOffset() is None
    query.batch()
    count = 0
    real = asked.available

    def counted(*given: object, **more: object) -> Available:
        nonlocal count
        count += 1
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(asked, "available", counted)
    for _ in range(3):
        assert query.end() is None
        assert Offsets.of(query.reader.reportLatestOffset()).streams
    assert count <= 3


def test_progress_shows_the_lag(node: NodeProcess, client: Client) -> None:
    log = filled(client, 30)
    query = Query(node, log, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    query.batch()
    end, latest = Offsets.of(json.loads(query.ends[0])), Offsets.of(query.reader.reportLatestOffset())
    assert (end.streams[log].next, latest.streams[log].next) == ({0: 10}, {0: 30})
    going_on = Query(node, log, startingOffsets=query.ends[0])
    assert len(going_on.batch() or ()) == 20


@pytest.mark.parametrize("recreate", [True, False])
def test_a_deleted_log_fails_the_query_or_is_reported(
    node: NodeProcess, client: Client, caplog: pytest.LogCaptureFixture, recreate: bool
) -> None:
    log, other = filled(client, 5), filled(client, 5)
    strict = Query(node, log, startingOffsets="earliest")
    lenient = Query(node, f"{log},{other}", startingOffsets="earliest", failOnDataLoss="false")
    strict.batch()
    assert len(lenient.batch() or ()) == 10
    client.management.delete_log(log)
    if recreate:
        logs.made(client, 1, log)
        logs.send(client, log, [b"x"] * 2)
    with pytest.raises(DataLossError if recreate else StreamNotFoundError, match=log):
        strict.batch()
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == ([(0, 0), (0, 1)] if recreate else None)
        assert lenient.batch() is None
    assert ("recreated" if recreate else "stream_missing") in caplog.text
    if not recreate:
        logs.made(client, 1, log)
        logs.send(client, log, [b"x"])
        assert lenient.batch() == [(0, 0)]


def test_retention_that_passed_the_checkpoint_fails_the_query_or_is_counted(
    node: NodeProcess, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    log = logs.made(client, 1, segment_bytes=64 << 10)
    logs.send(client, log, [bytes(1000)] * 2500)
    strict, lenient = (
        Query(node, log, startingOffsets="earliest", maxOffsetsPerTrigger=5, failOnDataLoss=value)
        for value in ("true", "false")
    )
    assert strict.batch() == lenient.batch() == [(0, number) for number in range(5)]
    planned = strict.reader.partitions(strict.start(), json.loads(json.dumps(strict.end())))
    client.management.update_log(log, {"retention-bytes": 1 << 20})
    while (earliest := client.extents(log)[log].partitions[0].earliest) == 0:
        time.sleep(0.05)  # the node checks every few seconds, and no event reports it
    with pytest.raises(
        DataLossError,
        match=r"offsets 5 to .*: (retention has removed them since this was planned|the log has no more)",
    ):
        list(strict.started().read(planned[0]))
    with pytest.raises(
        DataLossError,
        match=(
            rf"retention has removed them; requested offsets 5 to {earliest + 5}, available offsets"
            rf" {earliest} to 2500"
        ),
    ):
        strict.batch()
    with caplog.at_level(logging.WARNING):
        lenient.started()
        assert lenient.batch() == [(0, number) for number in range(earliest, earliest + 5)]
    assert f"{earliest - 5} events lost" in caplog.text


def test_a_filter_that_cannot_be_read_fails_on_the_driver(node: NodeProcess, client: Client) -> None:
    query = Query(node, filled(client, 5), startingOffsets="earliest", filter="n >>> 5")
    with pytest.raises(NodeError, match="the filter is not valid"):
        query.batch()


def test_a_log_that_never_existed_fails_with_any_setting_for_loss(node: NodeProcess) -> None:
    with pytest.raises(StreamNotFoundError, match="'nowhere'"):
        Query(node, "nowhere", failOnDataLoss="false").batch()


def test_a_node_that_restarts_between_batches_is_only_a_pause(start_node: Callable[..., NodeProcess]) -> None:
    running = start_node(log="temps:1")
    query = Query(running, "temps", startingOffsets="earliest", retries=200, retryInterval="20")
    with connect(running.url) as client:
        logs.send(client, "temps", [b"x"] * 5)
    assert len(query.batch() or ()) == 5
    running.kill()
    running.launch()
    assert query.batch() is None
    connections.drop(query.reader._options.connection)


# -- through Spark


def documented_lag(query: StreamingQuery) -> object:
    """Return the lag by the recipe of docs/spark.md."""
    doc = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    recipe = doc.partition("# how many events a streaming query is behind")[2].partition("\n\n")[0]
    names = {"query": query, "json": json}
    exec(compile(recipe.partition("\n")[2], "docs/spark.md", "exec"), names)
    return names["behind"]


def test_spark_runs_a_query_from_its_checkpoint(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    register(spark)
    log = filled(client, 30, 5)
    seen: list[tuple[int, int]] = []

    def keep(frame: DataFrame, number: int) -> None:
        seen.append((number, frame.count()))

    def run(**trigger: Any) -> StreamingQuery:
        stream = (
            spark.readStream.format("amqpstreams")
            .options(endpoint=node.url, startingOffsets="earliest", maxOffsetsPerTrigger=20)
            .load(log)
        )
        query = (
            stream.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**trigger)
            .start()
        )
        assert query.awaitTermination(60)
        assert query.lastProgress is not None
        return query

    query = run(availableNow=True)
    assert query.lastProgress is not None
    assert documented_lag(query) == {(log, "0"): 0, (log, "1"): 0}
    progress = json.loads(query.lastProgress.json)["sources"][0]
    assert seen == [(0, 20), (1, 15)]
    assert progress["endOffset"]["streams"][log]["next"] == {"0": 30, "1": 5}
    assert progress["latestOffset"]["streams"][log]["next"] == {"0": 30, "1": 5}
    logs.send(client, log, [b"x"] * 45, 1)
    last = run(once=True).lastProgress
    assert last is not None
    again = last.json
    assert seen[2:] in ([(2, 45)], [(2, 20), (3, 20), (4, 5)])
    frame = spark.readStream.format("amqpstreams").options(endpoint=node.url, startingOffsets=again).load(log)
    assert frame.isStreaming
