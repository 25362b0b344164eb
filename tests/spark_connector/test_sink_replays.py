"""Rows that are written again because a commit, a task or a whole query failed. The log has each row once."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from amqp_streams.client import EARLIEST
from amqp_streams.client.blocking import Client, connect
from examples.node import NodeProcess
from spark_connector import register
from spark_connector.source import AmqpStreamsDataSource
from spark_connector.writing.chunks import ROWS_MAX
from tests.spark_connector.logs import made


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[Client]:
    with connect(node.url) as open_:
        yield open_


@pytest.fixture
def log(client: Client) -> str:
    """A log of this test's own."""
    name = f"replays-{uuid4().hex}"
    client.management.create_log(name, partitions=2)
    return name


@pytest.fixture(autouse=True)
def known(spark: SparkSession) -> None:
    register(spark)


def bodies(client: Client, log: str) -> list[object]:
    """All that is in a log, sorted."""
    found: list[object] = []
    with client.consumer(log, start=EARLIEST, credit=5000) as consumer:
        while batch := consumer.receive_retained(5000):
            found += [event.body for event in batch]
    return sorted(found, key=str)


def failing_once(marker: Path) -> type[DataSource]:
    """Return a sink whose first commit fails after all tasks have written. The class is defined here, so that
    Spark's workers get it by value.
    """

    class Failing(AmqpStreamsDataSource):
        @classmethod
        def name(cls) -> str:
            return "failing-once"

        # Spark's name.
        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
            return FailingWriter(AmqpStreamsDataSource(self.options).streamWriter(schema, overwrite))

    class FailingWriter(DataSourceStreamArrowWriter):
        def __init__(self, writer: DataSourceStreamArrowWriter) -> None:
            self.writer = writer

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self.writer.write(iterator)

        # Spark's name.
        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            if not marker.exists():
                marker.touch()
                raise RuntimeError("the first commit fails")

    return Failing


def lines(folder: Path, *files: Sequence[str]) -> None:
    folder.mkdir()
    for number, rows in enumerate(files):
        (folder / f"{number}.txt").write_text("".join(f"{row}\n" for row in rows))


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """Each file is a micro-batch."""
    return (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .text(str(folder))
        .select(f.col("value").alias("body"))
    )


def run(frame: DataFrame, sink: str, checkpoint: Path, **options: str) -> None:
    """All micro-batches there are."""
    query = (
        frame.writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.parametrize("deduplicate", [True, False])
def test_a_micro_batch_whose_commit_failed_is_stored_once(  # noqa: PLR0917 (fixtures)
    spark: SparkSession, node: NodeProcess, client: Client, log: str, tmp_path: Path, deduplicate: bool
) -> None:
    """Without deduplication the rows are stored twice, which shows that the first attempt had written
    them.
    """
    lines(tmp_path / "in", ["a", "b"], ["b", "c"])
    spark.dataSource.register(failing_once(tmp_path / "failed"))
    options = {"endpoint": node.url, "stream": log, "deduplicate": str(deduplicate)}
    with pytest.raises(StreamingQueryException, match="the first commit fails"):
        run(read(spark, tmp_path / "in"), "failing-once", tmp_path / "checkpoint", **options)
    first = bodies(client, log)
    assert first in (["a", "b"], ["b", "c"])
    run(read(spark, tmp_path / "in"), "failing-once", tmp_path / "checkpoint", **options)
    assert bodies(client, log) == sorted(["a", "b", "b", "c", *([] if deduplicate else first)], key=str)


def test_rows_without_a_key_of_small_micro_batches_are_spread_over_the_partitions(
    spark: SparkSession, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    """Each micro-batch has one task."""
    log = made(client, 3)
    lines(tmp_path / "in", *([f"{number}a", f"{number}b"] for number in range(3)))
    run(read(spark, tmp_path / "in"), "amqpstreams", tmp_path / "checkpoint", endpoint=node.url, stream=log)
    assert [one.next - one.earliest for one in client.extents(log)[log].partitions] == [2, 2, 2]


def test_a_task_that_failed_half_way_is_stored_once(
    spark: SparkSession, node: NodeProcess, client: Client, log: str, tmp_path: Path
) -> None:
    """The rows of its first chunks are in the log already when it is run again."""
    rows = [f"{number:06d}" for number in range(ROWS_MAX + 20_000)]
    lines(tmp_path / "in", rows)
    marker = tmp_path / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 5 and not marker.exists():
                marker.touch()
                raise RuntimeError("the task fails")
            yield batch

    frame = read(spark, tmp_path / "in").mapInArrow(fail_once, "body string")
    with pytest.raises(StreamingQueryException, match="the task fails"):
        run(frame, "amqpstreams", tmp_path / "checkpoint", endpoint=node.url, stream=log)
    stored = bodies(client, log)
    assert stored, "else this shows nothing"
    assert stored == rows[: len(stored)]
    run(frame, "amqpstreams", tmp_path / "checkpoint", endpoint=node.url, stream=log)
    assert bodies(client, log) == rows


def test_a_query_of_another_checkpoint_is_another_write(
    spark: SparkSession, node: NodeProcess, client: Client, log: str, tmp_path: Path
) -> None:
    lines(tmp_path / "in", ["a"])
    for checkpoint in ("one", "two"):
        run(read(spark, tmp_path / "in"), "amqpstreams", tmp_path / checkpoint, endpoint=node.url, stream=log)
    assert bodies(client, log) == ["a", "a"]


def test_a_batch_written_again_under_its_name_is_stored_once(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    frame = spark.range(100, numPartitions=3).select(f.col("id").cast("string").alias("body"))
    writer = frame.write.format("amqpstreams").mode("append").options(endpoint=node.url, stream=log)
    for _ in range(2):
        writer.option("transactionId", "2010-01-01").save()
    assert len(bodies(client, log)) == 100
    writer.option("transactionId", "2010-01-02").save()
    assert len(bodies(client, log)) == 200


def test_a_batch_without_a_name_is_another_write_each_time(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    writer = (
        spark.sql("select 'x' as body")
        .write.format("amqpstreams")
        .mode("append")
        .options(endpoint=node.url, stream=log)
    )
    writer.save()
    writer.save()
    assert bodies(client, log) == ["x", "x"]


def test_rows_in_another_order_are_known_again_when_they_are_sorted(
    spark: SparkSession, node: NodeProcess, client: Client, log: str
) -> None:
    """After a shuffle, rows may arrive in any order. Without sorting they are stored twice: duplicates are
    better than missing rows.
    """
    rows = [str(number) for number in range(10)]
    for order in (rows, rows[::-1]):
        frame = spark.createDataFrame([(row,) for row in order], "body string").coalesce(1)
        writer = frame.write.format("amqpstreams").mode("append").options(endpoint=node.url, stream=log)
        writer.options(transactionId="sorted", sortRows="true").save()
        writer.options(transactionId="as they come", sortRows="false").save()
    assert bodies(client, log) == sorted(3 * rows)
