"""`spark.read` against a live node: first the reader as Spark calls it, then through Spark."""

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from amqp_streams.client.blocking import Client, connect
from examples.node import NodeProcess
from spark_connector import register
from spark_connector.batch import BatchReader
from spark_connector.errors import DataLossError, OffsetError, OptionError, SchemaError, StreamNotFoundError
from spark_connector.node import connections
from spark_connector.options.settings import read_options
from spark_connector.rows.schema import chosen
from tests.spark_connector import logs

Rows = list[dict[str, object]]


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[Client]:
    with connect(node.url) as open_:
        yield open_
    connections.drop(read_options({"endpoint": node.url, "stream": "any"}, streaming=False).connection)


def reader(node: NodeProcess, log: str, **options: object) -> BatchReader:
    given = {"endpoint": node.url, "stream": log, "columns": "body,partition,offset"} | {
        name: str(value) for name, value in options.items()
    }
    return BatchReader(given, chosen(given))


def read(one: BatchReader) -> Rows:
    """Read as Spark does: the driver plans the partitions, and a copy of the reader reads each of them."""
    tasks = [pickle.loads(pickle.dumps((one, task))) for task in one.partitions()]
    return [row for copy, task in tasks for batch in copy.read(task) for row in batch.to_pylist()]


def places(rows: Rows) -> list[tuple[object, object]]:
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_all_existing_data_is_read(node: NodeProcess, client: Client) -> None:
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
    assert places(read(reader(node, log, startingOffsets=starting, endingOffsets=ending))) == [
        (0, 4),
        (0, 5),
        (1, 0),
        (1, 1),
    ]


def test_a_time_is_where_a_range_begins_and_ends(node: NodeProcess, client: Client) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [b"x"] * 3)
    now = int(datetime.now(UTC).timestamp() * 1000)
    assert (
        len(read(reader(node, log, startingTimestamp=now - 3_600_000, endingTimestamp=now + 3_600_000))) == 3
    )
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
        ({"maxOffsetsPerPartition": 5}, 20),
    ):
        one = reader(node, log, **options)
        assert len(one.partitions()) == count
        assert len(read(one)) == 100


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (
            ({"0": 50}, {}, 0),
            "the log ends before the start; requested offsets 50 to 10, available offsets 0 to 10",
        ),
        (
            ({}, {"0": 50}, 10),
            (
                "the log ends before the end; requested offsets 0 to 50, available offsets 0 to 10 .*, 40"
                " events lost"
            ),
        ),
    ],
)
def test_a_range_that_does_not_exist_fails_or_is_reported(
    node: NodeProcess,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    bounds: tuple[dict[str, int], dict[str, int], int],
    words: str,
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


@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_end_before_the_start_is_an_error_and_no_loss(
    node: NodeProcess, client: Client, fails: str
) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [b"x"] * 10)
    bounds = {"startingOffsets": json.dumps({log: {"0": 8}}), "endingOffsets": json.dumps({log: {"0": 5}})}
    with pytest.raises(OffsetError, match=r"the end, offset 5, is before the start, offset 8 .*partition 0"):
        reader(node, log, **bounds, failOnDataLoss=fails).partitions()


def test_a_recreated_log_fails_at_planning_and_at_reading(
    node: NodeProcess, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [b"old"] * 5)
    state = json.dumps({"version": 1, "streams": {log: {"incarnation": "another", "next": {"0": 2}}}})
    with pytest.raises(DataLossError, match="the log was deleted and recreated"):
        reader(node, log, startingOffsets=state).partitions()
    with pytest.raises(DataLossError, match="the log was deleted and recreated"):
        reader(node, log, endingOffsets=state).partitions()
    assert len(read(reader(node, log, startingOffsets=state, failOnDataLoss="false"))) == 5
    planned, lenient = reader(node, log), reader(node, log, failOnDataLoss="false")
    tasks = planned.partitions()
    logs.made_anew(client, log, 1)
    logs.send(client, log, [b"new"] * 9)
    with pytest.raises(DataLossError, match="offsets 0 to 5: the log was deleted, and perhaps recreated"):
        list(planned.read(tasks[0]))
    with caplog.at_level(logging.WARNING):
        assert list(lenient.read(tasks[0])) == []
    assert "data_lost" in caplog.text


def test_a_log_that_does_not_exist_is_named(node: NodeProcess) -> None:
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


# -- through Spark


@pytest.fixture
def load(spark: SparkSession, node: NodeProcess) -> Callable[..., DataFrame]:
    register(spark)

    def loaded(log: str, schema: str | None = None, **options: Any) -> DataFrame:
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
    assert [tuple(row) for row in load(log, "offset long, body string", startingTimestamp=5).collect()] == [
        (0, "20.5")
    ]


def test_spark_reads_cloudevents(load: Callable[..., DataFrame], client: Client) -> None:
    log = logs.made(client, 1)
    required = {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "t",
        "time": "2026-01-31T12:00:00Z",
        "site": "roof",
    }
    properties = {f"cloudEvents_{name}": value for name, value in required.items()}
    logs.send(client, log, [b"{}"], properties=properties, content_type="application/json")
    [row] = load(log, columns="cloudevents").collect()
    assert (row.id, row.source, row.type, row.subject, row.datacontenttype) == (
        "1",
        "/s",
        "t",
        None,
        "application/json",
    )
    assert (row.time, bytes(row.data), row.extensions) == (datetime(2026, 1, 31, 12), b"{}", {"site": "roof"})


def test_spark_reads_in_tasks(load: Callable[..., DataFrame], client: Client) -> None:
    log = logs.made(client, 3)
    for partition in range(3):
        logs.send(client, log, [b"x"] * 200, partition)
    frame = load(log, minPartitions=6, batchRows=70)
    assert frame.rdd.getNumPartitions() == 6
    assert sorted(tuple(row) for row in frame.groupBy("partition").count().collect()) == [
        (partition, 200) for partition in range(3)
    ]


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Spark offers the conditions of queries to sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("pushdown")
def test_a_frame_with_one_condition_reads_all_rows_for_the_next(
    spark: SparkSession, load: Callable[..., DataFrame], client: Client
) -> None:
    """One frame or view, used twice. Spark keeps one plan for it, so a source that applied conditions itself
    would lose rows.
    """
    log = logs.made(client, 2)
    for partition in range(2):
        logs.send(client, log, [b"x"] * 100, partition)

    def frame() -> DataFrame:
        return load(log)

    one = frame()
    assert [one.where("partition = 0").count(), one.count()] == [100, 200]
    one = frame()
    assert one.where("partition = 0").union(one.where("partition = 1")).count() == 200
    one = frame()
    assert (
        one.where("partition = 0").join(one.where("partition = 1").select("offset"), "offset").count() == 100
    )
    one = frame().select("partition", "offset")
    assert one.where("partition = 1").exceptAll(one.where("offset < 5")).count() == 95
    frame().createOrReplaceTempView("twice")
    [counts] = spark.sql(
        "select (select count(*) from twice where partition = 0), (select count(*) from twice)"
    ).collect()
    assert tuple(counts) == (100, 200)
    assert spark.table("twice").count() == 200


def test_a_frame_shows_the_log_as_it_was_at_its_first_action(
    load: Callable[..., DataFrame], client: Client
) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [b"x"] * 2)
    frame = load(log)
    assert frame.count() == 2
    logs.send(client, log, [b"x"] * 3)
    assert [frame.count(), load(log).count()] == [2, 5]
    logs.made_anew(client, log, 1)
    logs.send(client, log, [b"new"])
    with pytest.raises(PySparkException, match=r"planned once, at its first action: call load\(\) again"):
        frame.collect()
    assert load(log).count() == 1


def test_sql_reads_and_writes_by_views_and_by_tables_with_options(
    spark: SparkSession, node: NodeProcess, client: Client
) -> None:
    log = logs.made(client, 1)
    logs.send(client, log, [b"x"] * 3)
    where = f"(endpoint = '{node.url}', stream = '{log}')"
    spark.sql(f"create or replace temporary view by_view using amqpstreams options {where}")
    assert spark.sql("select count(*) from by_view").first() == (3,)
    spark.sql(
        "create or replace temporary view to_write (body string, key string) using amqpstreams options"
        f" {where}"
    )
    spark.sql("insert into to_write values ('written', 'k')")
    assert spark.sql("select count(*) from by_view").first() == (3,)
    spark.sql(
        "create table by_table (body binary, offset bigint) using amqpstreams comment 'c' tblproperties ('x'"
        " = 'y')"
    )
    try:
        assert spark.sql(f"select max(offset) from by_table with {where}").first() == (3,)
        with pytest.raises(PySparkException, match=r"no log is given.*keeps no options.*WITH \(endpoint"):
            spark.sql("select * from by_table").collect()
    finally:
        spark.sql("drop table by_table")


def test_a_table_takes_its_columns_from_its_options(
    spark: SparkSession, node: NodeProcess, client: Client
) -> None:
    """Spark's catalogue hands the options, `provider`, `owner`, the comment and the properties of the table
    all as options.
    """
    log = logs.made(client, 1)
    register(spark)
    options = f"options (endpoint '{node.url}', stream '{log}', columns 'body,offset')"
    spark.sql(f"create table with_options using amqpstreams {options} comment 'c' tblproperties ('x' = 'y')")
    try:
        assert spark.table("with_options").columns == ["body", "offset"]
    finally:
        spark.sql("drop table with_options")
    with pytest.raises(PySparkException, match=r"unknown option 'steam'\. Did you mean 'stream'"):
        spark.sql(f"create table misspelt using amqpstreams options (endpoint '{node.url}', steam '{log}')")


def test_spark_shows_errors_and_no_secrets(load: Callable[..., DataFrame], client: Client) -> None:
    log = logs.made(client, 1)
    with pytest.raises(PySparkException, match=r"unknown option 'starting'\. Did you mean 'startingOffsets'"):
        load(log, starting="earliest").collect()
    secret = load(log, user="me", password="S3CRET", retries=0)
    assert "S3CRET" not in secret._jdf.queryExecution().logical().toString()
    with pytest.raises(PySparkException, match="login failed") as refused:
        secret.collect()
    assert "S3CRET" not in str(refused.value)


def test_rows_are_counted_without_their_events(
    node: NodeProcess, client: Client, spark: SparkSession
) -> None:
    log = logs.made(client)
    logs.send(client, log, [b"x"] * 30, partition=0)
    logs.send(client, log, [b"x"] * 12, partition=1)
    for schema in (StructType([]), "offset long", "partition int, offset long"):
        frame = spark.read.schema(schema).format("amqpstreams").options(endpoint=node.url, stream=log).load()
        assert frame.count() == 42
