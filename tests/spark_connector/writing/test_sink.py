"""DataFrames that are written to a live node, and read with the engine's own client."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqp_streams.client import EARLIEST, ReceivedEvent
from amqp_streams.client.blocking import Client, connect
from amqp_streams.client.raw import bare
from event_formats import amqp_binding
from examples.node import NodeProcess
from spark_connector import register
from tests.amqp_streams.decoded import binary

PARTITIONS = 4


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[Client]:
    with connect(node.url) as open_:
        yield open_


@pytest.fixture
def log(client: Client) -> str:
    """A log of this test's own."""
    name = f"sink-{uuid4().hex}"
    client.management.create_log(name, partitions=PARTITIONS)
    return name


@pytest.fixture(autouse=True)
def known(spark: SparkSession) -> None:
    register(spark)


def events(client: Client, log: str) -> dict[int, list[ReceivedEvent]]:
    """The events of a log, by partition."""
    found: dict[int, list[ReceivedEvent]] = {number: [] for number in range(PARTITIONS)}
    with client.consumer(log, start=EARLIEST) as consumer:
        while batch := consumer.receive_retained():
            for event in batch:
                found[int(event.partition or "")].append(event)
    return found


def bodies(client: Client, log: str) -> list[object]:
    return sorted((event.body for one in events(client, log).values() for event in one), key=str)


def write(frame: DataFrame, node: NodeProcess, log: str, **options: Any) -> None:
    frame.write.format("amqpstreams").mode("append").options(endpoint=node.url, stream=log, **options).save()


def test_a_frame_is_in_the_log_when_the_write_returns(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    write(
        spark.range(0, 1000, numPartitions=3).select(f.col("id").cast("string").cast("binary").alias("body")),
        node,
        log,
    )
    found = events(client, log)
    assert bodies(client, log) == sorted((str(number).encode() for number in range(1000)), key=str)
    sizes = [len(found[partition]) for partition in range(PARTITIONS)]
    assert sizes in [[333, 333, 334, 0][turn:] + [333, 333, 334, 0][:turn] for turn in range(PARTITIONS)], (
        "a partition for each task"
    )
    for one in found.values():
        numbers = [int(binary(event.body)) for event in one]
        assert numbers == sorted(numbers)


def test_small_writes_without_a_key_do_not_all_go_to_one_partition(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    """Each write has one task, so the number of the task alone would always choose partition 0. A repeated
    write goes to the partition of the first one.
    """
    for number in range(3):
        for _ in range(2):
            write(
                spark.createDataFrame([(f"{number}",)], "body string").coalesce(1),
                node,
                log,
                transactionId=f"daily/{number}",
            )
    found = {event.body: partition for partition, one in events(client, log).items() for event in one}
    assert found == {f"{number}": crc32(f"daily/{number}".encode()) % PARTITIONS for number in range(3)}
    assert len(set(found.values())) > 1


def test_columns_become_the_fields_of_a_message(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    row = spark.sql(
        "select 'text' as body, 'k' as key, 3 as partition, struct(20.5D as temp, 'roof' as site, 7 as n) as"
        " properties, 's' as subject, 'text/plain' as content_type, 'm-1' as message_id"
    )
    write(row, node, log)
    [event] = events(client, log)[3]
    assert (event.body, event.key, event.subject, event.content_type, event.message_id) == (
        "text",
        "k",
        "s",
        "text/plain",
        "m-1",
    )
    assert event.properties == {"temp": 20.5, "site": "roof", "n": 7}


def test_rows_of_a_key_are_in_the_partition_of_the_key(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    frame = spark.range(100).select(
        f.format_string("%d", "id").alias("body"), f.format_string("device-%d", f.col("id") % 7).alias("key")
    )
    write(frame, node, log)
    found = events(client, log)
    assert sum(map(len, found.values())) == 100
    for partition, one in found.items():
        assert {crc32((event.key or "").encode()) % PARTITIONS for event in one} <= {partition}


def test_cloudevents_are_read_as_the_gateway_reads_them(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    frame = spark.sql(
        "select 'e1' as id, '/spark' as source, 'temperature.daily' as type, timestamp'2010-01-01 00:00:00'"
        " as time, 'application/json' as datacontenttype, '{}' as data, map('partitionkey', 'roof', 'site',"
        " 'seattle') as extensions"
    )
    write(frame, node, log)
    [event] = [event for one in events(client, log).values() for event in one]
    read = amqp_binding.decode(event.message)
    assert read.data == b"{}"
    assert read.attributes == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/spark",
        "type": "temperature.daily",
        "time": "2010-01-01T00:00:00Z",
        "datacontenttype": "application/json",
        "partitionkey": "roof",
        "site": "seattle",
    }
    assert datetime.fromisoformat(str(read.attributes["time"])) == datetime(2010, 1, 1, tzinfo=UTC)


def test_an_empty_table_gives_no_events(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    write(spark.range(0).select(f.lit("x").alias("body")), node, log)
    assert bodies(client, log) == []


def test_a_log_is_made_when_that_is_asked_for(spark: SparkSession, node: NodeProcess, client: Client) -> None:
    name = f"made-{uuid4().hex}"
    frame = spark.sql("select 'x' as body")
    with pytest.raises(PySparkException, match=f"the log '{name}' does not exist.*createPartitions"):
        write(frame, node, name)
    write(frame, node, name, createPartitions=2)
    assert len(client.info(name).partitions) == 2
    assert bodies(client, name) == ["x"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select 1 as body", "column body is int. Expected: binary or string; cast it"),
        (
            "select 'x' as body, 4 as partition",
            r"column partition is 4: the log has partitions 0 to 3 \(row 0 of its batch\)",
        ),
        ("select 'x' as body, 'y' as offset", "column offset is set by the log"),
    ],
)
def test_a_row_that_cannot_be_written_is_reported(  # noqa: PLR0917 (fixtures)
    spark: SparkSession, node: NodeProcess, client: Client, log: str, query: str, words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        write(spark.sql(query), node, log)
    assert bodies(client, log) == []


def test_a_log_is_not_overwritten(spark: SparkSession, node: NodeProcess, log: str, tmp_path: Path) -> None:
    frame = spark.sql("select 'x' as body")
    with pytest.raises(PySparkException, match=r"this mode is not supported. Use .mode\(\"append\"\)"):
        frame.write.format("amqpstreams").mode("overwrite").options(endpoint=node.url, stream=log).save()


def test_an_unknown_option_is_refused_before_anything_runs(
    spark: SparkSession, node: NodeProcess, log: str
) -> None:
    with pytest.raises(
        PySparkException, match=r"unknown option 'transactionid_' for write. Did you mean 'transactionId'"
    ):
        write(spark.sql("select 'x' as body"), node, log, transactionId_="x")


def test_rows_that_were_read_can_be_written_again(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    """A log is copied, except for the columns that the log itself sets."""
    fields = "subject,content_type,message_id,correlation_id,creation_time"
    row = spark.sql(
        "select 'k' as key, cast('x' as binary) as body, map('site', 'roof') as properties, 's' as subject,"
        " 'text/plain' as content_type, 'm' as message_id, 'c' as correlation_id, timestamp'2010-01-01"
        " 00:00:00.123' as creation_time, 2 as partition"
    )
    write(row, node, log)
    again = (
        spark.read.format("amqpstreams")
        .options(endpoint=node.url, stream=log, columns=f"default,{fields}")
        .load()
    )
    write(again.drop("stream", "offset", "enqueued_time"), node, log)
    one, other = events(client, log)[2]
    assert (
        one.body,
        one.key,
        one.properties,
        one.subject,
        one.content_type,
        one.message_id,
        one.correlation_id,
        one.creation_time_ms,
    ) == (
        b"x",
        "k",
        {"site": "roof"},
        "s",
        "text/plain",
        "m",
        "c",
        1262304000123,
    )
    assert bare(other.message) == bare(one.message)
