"""`spark.read` against a live node: first the reader as Spark drives it, then through Spark."""

import json
import logging
import pickle
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from amqp_streams.client.blocking import Client, connect
from examples.node import NodeProcess
from spark_connector import links, register
from spark_connector.batch import BatchReader, PushingReader, batch_reader
from spark_connector.errors import DataLossError, OffsetError, OptionError, SchemaError, StreamNotFoundError
from spark_connector.schema import chosen
from spark_connector.settings import read_options
from tests.spark_connector import logs

Rows = list[dict[str, object]]


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[Client]:
    with connect(node.url) as open_:
        yield open_
    links.drop(read_options({"endpoint": node.url, "stream": "any"}, streaming=False).connection)


def reader(node: NodeProcess, log: str, **options: object) -> BatchReader:
    given = {"endpoint": node.url, "stream": log, "columns": "body,partition,offset"} | {
        name: str(value) for name, value in options.items()
    }
    return BatchReader(given, chosen(given))


def read(one: BatchReader) -> Rows:
    """As Spark does: partitions on the driver, each read by a copy of the reader."""
    tasks = [pickle.loads(pickle.dumps((one, task))) for task in one.partitions()]
    return [row for copy, task in tasks for batch in copy.read(task) for row in batch.to_pylist()]


def places(rows: Rows) -> list[tuple[object, object]]:
    return sorted((row["partition"], row["offset"]) for row in rows)  # type: ignore[type-var]


def test_everything_that_is_there_is_read(node: NodeProcess, client: Client) -> None:
    log = logs.made(client)
    logs.send(client, log, [b"a%d" % number for number in range(30)], partition=0)
    logs.send(client, log, [b"b"], partition=1)
    rows = read(reader(node, log))
    assert places(rows) == [(0, number) for number in range(30)] + [(1, 0)]
    assert {row["body"] for row in rows} == {b"b", *(b"a%d" % number for number in range(30))}


def test_an_empty_log_is_an_empty_table(node: NodeProcess, client: Client) -> None:
    assert reader(node, logs.made(client)).partitions() == []


def test_several_logs_are_one_table(node: NodeProcess, client: Client) -> None:
    one, other = logs.made(client), logs.made(client)
    logs.send(client, one, [b"1"], partition=0)
    logs.send(client, other, [b"2"], partition=0)
    assert {row["body"] for row in read(reader(node, f"{one},{other}"))} == {b"1", b"2"}


def test_ranges_are_between_offsets(node: NodeProcess, client: Client) -> None:
    log = logs.made(client)
    logs.send(client, log, [b"x"] * 10, partition=0)
    logs.send(client, log, [b"x"] * 10, partition=1)
    starting, ending = json.dumps({log: {"0": 4, "1": "earliest"}}), json.dumps({log: {"0": 6, "1": 2}})
    assert places(read(reader(node, log, startingOffsets=starting, endingOffsets=ending))) == [(0, 4), (0, 5), (1, 0), (1, 1)]


def test_a_time_is_where_a_range_begins_and_ends(node: NodeProcess, client: Client) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [b"x"] * 3)
    now = int(datetime.now(UTC).timestamp() * 1000)
    assert len(read(reader(node, log, startingTimestamp=now - 3_600_000, endingTimestamp=now + 3_600_000))) == 3
    assert read(reader(node, log, startingTimestamp=now + 3_600_000)) == []
    assert read(reader(node, log, endingTimestamp=now - 3_600_000)) == []
    with pytest.raises(OffsetError, match="no event at or after"):
        read(reader(node, log, startingTimestamp=now + 3_600_000, startingOffsetsByTimestampStrategy="error"))


def test_tasks_are_as_many_as_asked_for(node: NodeProcess, client: Client) -> None:
    log = logs.made(client, 4)
    for partition in range(4):
        logs.send(client, log, [b"x"] * 25, partition)
    for options, count in (
        ({}, 1),
        ({"minPartitions": 8}, 8),
        ({"minPartitions": 4, "maxPartitions": 2}, 2),
        ({"maxOffsetsPerPartition": 5}, 1),
    ):
        one = reader(node, log, **options)
        assert len(one.partitions()) == count
        assert len(read(one)) == 100


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (({"0": 50}, {}, 0), "the log ends before the start; wanted offsets 50 to 10, available offsets 0 to 10"),
        (({"0": 8}, {"0": 5}, 0), "the end is before the start; wanted offsets 8 to 5"),
        (({}, {"0": 50}, 10), "the log ends before the end; wanted offsets 0 to 50, available offsets 0 to 10 .*, 40 events lost"),
    ],
)
def test_a_range_that_is_not_there_fails_or_is_told(
    node: NodeProcess, client: Client, caplog: pytest.LogCaptureFixture, bounds: tuple[dict[str, int], dict[str, int], int], words: str
) -> None:
    starting, ending, there = bounds
    log = logs.made(client, 1)
    logs.send(client, log, [b"x"] * 10)
    options = {"startingOffsets": json.dumps({log: starting}), "endingOffsets": json.dumps({log: ending})}
    with pytest.raises(DataLossError, match=words):
        read(reader(node, log, **options))
    with caplog.at_level(logging.WARNING):
        assert len(read(reader(node, log, **options, failOnDataLoss="false"))) == there
    assert "data_lost" in caplog.text


def test_a_log_that_was_made_anew_fails_at_planning_and_at_reading(
    node: NodeProcess, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [b"old"] * 5)
    state = json.dumps({"version": 1, "streams": {log: {"incarnation": "another", "next": {"0": 2}}}})
    with pytest.raises(DataLossError, match="the log was deleted and made anew"):
        reader(node, log, startingOffsets=state).partitions()
    with pytest.raises(DataLossError, match="the log was deleted and made anew"):
        reader(node, log, endingOffsets=state).partitions()
    assert len(read(reader(node, log, startingOffsets=state, failOnDataLoss="false"))) == 5
    planned, lenient = reader(node, log), reader(node, log, failOnDataLoss="false")
    tasks = planned.partitions()
    logs.made_anew(client, log, 1)
    logs.send(client, log, [b"new"] * 9)
    with pytest.raises(DataLossError, match="offsets 0 to 5: the log was deleted, and perhaps made anew"):
        list(planned.read(tasks[0]))
    with caplog.at_level(logging.WARNING):
        assert list(lenient.read(tasks[0])) == []
    assert "data_lost" in caplog.text


def test_a_log_that_is_not_there_is_named(node: NodeProcess) -> None:
    with pytest.raises(StreamNotFoundError, match="'nowhere'"):
        reader(node, "nowhere").partitions()


def test_the_node_filters(node: NodeProcess, client: Client) -> None:
    log = logs.made(client, 1)
    for number in range(5):
        logs.send(client, log, [b""], properties={"n": number})
    assert places(read(reader(node, log, filter="n > 2"))) == [(0, 3), (0, 4)]


def test_options_and_columns_are_checked_before_anything_is_opened() -> None:
    with pytest.raises(OptionError, match="Did you mean 'stream'"):
        BatchReader({"endpoint": "h", "steam": "t"}, chosen({}))
    with pytest.raises(SchemaError, match="'id'"):
        BatchReader({"endpoint": "h", "stream": "t"}, chosen({"columns": "cloudevents"}))


def test_a_reader_crosses_processes_and_opens_nothing() -> None:
    one = BatchReader({"endpoint": "amqp://127.0.0.1:1", "stream": "t"}, chosen({}))
    assert len(pickle.dumps(one)) < 5000


def test_conditions_narrow_what_is_read(node: NodeProcess, client: Client) -> None:
    log = logs.made(client)
    logs.send(client, log, [b"x"] * 10, partition=0)
    logs.send(client, log, [b"x"] * 10, partition=1)
    given = {"endpoint": node.url, "stream": log, "columns": "partition,offset"}
    conditions = [EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 3), LessThan(("offset",), 6)]
    one = PushingReader(given, chosen(given))
    assert one.pushFilters(list(conditions)) == conditions
    assert places(read(one)) == [(1, 3), (1, 4), (1, 5)]
    later = PushingReader(given, chosen(given))
    later.pushFilters([GreaterThanOrEqual(("enqueued_time",), datetime.now(UTC) + timedelta(hours=1))])
    assert later.partitions() == []
    earlier = PushingReader(given, chosen(given))
    earlier.pushFilters([LessThan(("enqueued_time",), datetime.now(UTC) + timedelta(hours=1))])
    assert len(read(earlier)) == 20


def test_conditions_are_taken_only_where_spark_offers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"endpoint": "h", "stream": "t"}
    assert type(batch_reader(given, chosen({}))) is BatchReader
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", sys)
    assert type(batch_reader(given, chosen({}))) is PushingReader


# -- through Spark


@pytest.fixture
def load(spark: SparkSession, node: NodeProcess) -> Callable[..., DataFrame]:
    register(spark)

    def loaded(log: str, schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("amqpstreams").options(endpoint=node.url, **options)
        return (reader if schema is None else reader.schema(schema)).load(log)

    return loaded


def test_spark_reads_rows_of_all_columns(load: Callable[..., DataFrame], client: Client) -> None:
    log = logs.made(client)
    logs.send(client, log, [b"20.5"], partition=1, key="k", properties={"site": "roof", "n": 5}, subject="s")
    [row] = load(log, columns="default,subject,message_id").collect()
    assert (bytes(row.body), row.stream, row.partition, row.offset, row.key) == (b"20.5", log, 1, 0, "k")
    assert (row.properties, row.subject, row.message_id) == ({"site": "roof", "n": "5"}, "s", None)
    assert abs(row.enqueued_time.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(hours=1)
    assert [tuple(row) for row in load(log, "offset long, body string", startingTimestamp=5).collect()] == [(0, "20.5")]


def test_spark_reads_cloudevents(load: Callable[..., DataFrame], client: Client) -> None:
    log = logs.made(client, 1)
    required = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2026-01-31T12:00:00Z", "site": "roof"}
    properties = {f"cloudEvents_{name}": value for name, value in required.items()}
    logs.send(client, log, [b"{}"], properties=properties, content_type="application/json")
    [row] = load(log, columns="cloudevents").collect()
    assert (row.id, row.source, row.type, row.subject, row.datacontenttype) == ("1", "/s", "t", None, "application/json")
    assert (row.time, bytes(row.data), row.extensions) == (datetime(2026, 1, 31, 12), b"{}", {"site": "roof"})


def test_spark_reads_in_tasks_and_hands_conditions_on_where_it_is_told_to(
    spark: SparkSession, load: Callable[..., DataFrame], client: Client
) -> None:
    log = logs.made(client, 3)
    for partition in range(3):
        logs.send(client, log, [b"x"] * 200, partition)
    frame = load(log, minPartitions=6, batchRows=70)
    assert frame.rdd.getNumPartitions() == 6
    assert sorted(tuple(row) for row in frame.groupBy("partition").count().collect()) == [(partition, 200) for partition in range(3)]
    condition = "partition = 1 and offset >= 195 and enqueued_time > '2020-01-01'"
    assert load(log, minPartitions=60).where(condition).rdd.getNumPartitions() == 60
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        narrow = load(log, minPartitions=60).where(condition)
        assert narrow.rdd.getNumPartitions() == 5
        assert load(log).where(condition).where("offset != 197").count() == 4
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_spark_shows_errors_and_no_secrets(load: Callable[..., DataFrame], client: Client) -> None:
    log = logs.made(client, 1)
    with pytest.raises(PySparkException, match=r"there is no option 'starting'\. Did you mean 'startingOffsets'"):
        load(log, starting="earliest").collect()
    secret = load(log, user="me", password="S3CRET", retries=0)
    assert "S3CRET" not in secret._jdf.queryExecution().logical().toString()  # type: ignore[operator]
    with pytest.raises(PySparkException, match="logging in failed") as refused:
        secret.collect()
    assert "S3CRET" not in str(refused.value)
