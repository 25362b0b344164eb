"""Writes rows to a log: the code of `write` and `writeStream` on the driver and in tasks. [io]

Rows are appended, never replaced. A task that runs again, and a micro-batch that is replayed, write under the
same names as before, so the log does not store rows twice. In streaming, the name consists of the query's id
(which is in the checkpoint), the micro-batch and the task. In a batch, it consists of the transaction (random
for each write, or set by the user) and the task.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, MapType, StringType, StructType

from spark_connector.errors import ConnectorError, OptionError
from spark_connector.options.settings import WriteOptions, write_options
from spark_connector.reporting import shortly
from spark_connector.workers import settle
from spark_connector.writing.chunks import Chunk, Cutter
from spark_connector.writing.layout import Column, Layout, plan
from spark_connector.writing.messages import Encoder
from spark_connector.writing.sending import Sending, partition_count
from spark_connector.writing.spark_input import input_is_whole

logger: Final = logging.getLogger(__name__)

_PART_BYTES_MAX: Final = 256 << 20
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The totals of one task. All its rows are durable."""

    spark_partition: int
    rows: int
    bytes: int


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "BatchWriter":
    """Return the writer for `write`.

    Sends a request to the node, so that errors appear before the job begins.

    Raises:
        OptionError, SchemaError: an option or a column is not valid.
        StreamNotFoundError: the log does not exist.
        NodeError: all retries failed, or the node refused the request.
    """
    if overwrite:
        raise _append_only("mode", '.mode("append")')
    chosen = write_options(options, streaming=False)
    layout = plan(columns_of(schema))
    partition_count(chosen)
    return BatchWriter(chosen, layout, chosen.transaction or uuid4().hex)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "StreamWriter":
    """Return the writer for `writeStream`.

    Spark calls it for every micro-batch, so it does not send a request.

    Raises:
        OptionError, SchemaError: an option or a column is not valid.
    """
    if overwrite:
        raise _append_only("outputMode", '.outputMode("append")')
    return StreamWriter(write_options(options, streaming=True), plan(columns_of(schema)))


class BatchWriter(DataSourceArrowWriter):
    """One write. Created on the driver, run in tasks.

    `write_id` is the same in all tasks and all their repetitions.
    """

    def __init__(self, options: WriteOptions, layout: Layout, write_id: str) -> None:
        self._options = options
        self._layout = layout
        self._write_id = write_id

    @shortly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return _write(
            self._options, self._layout, iterator, f"write/{self._write_id}", crc32(self._write_id.encode())
        )

    @shortly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the totals. All rows are durable before Spark calls this."""
        logger.info("written log=%s %s", self._options.stream, _totals(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the totals of a write that failed. Rows of completed tasks stay in the log."""
        logger.warning(
            "write_failed log=%s %s: these rows stay in the log", self._options.stream, _totals(messages)
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a query."""

    def __init__(self, options: WriteOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    @shortly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if self._options.deduplicate and (query is None or batch is None):
            raise ConnectorError(
                "Spark does not report the id of the query or of the micro-batch",
                remedy="Without them the sink cannot recognize repeated rows: set deduplicate to false",
            )
        return _write(self._options, self._layout, iterator, f"query/{query}/{batch}", int(batch or 0))

    # The names of the parameters are Spark's, here and below.
    @shortly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the totals. All rows are durable before Spark calls this."""
        logger.info("written log=%s micro_batch=%d %s", self._options.stream, batchId, _totals(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the totals of a micro-batch that failed. Spark replays it when the query starts again."""
        logger.warning(
            "write_failed log=%s micro_batch=%d %s", self._options.stream, batchId, _totals(messages)
        )


def columns_of(schema: StructType) -> list[Column]:
    """Return the columns of a DataFrame, as arguments of `layout.plan`."""
    return [
        Column(field.name, field.dataType.simpleString(), _inside(field.dataType)) for field in schema.fields
    ]


def _inside(kind: DataType) -> dict[str, str] | None:
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return {"*": kind.valueType.simpleString()}
    return (
        {field.name: field.dataType.simpleString() for field in kind.fields}
        if isinstance(kind, StructType)
        else None
    )


def _write(
    options: WriteOptions, layout: Layout, batches: Iterator[pa.RecordBatch], write: str, number: int
) -> Written:
    """Write the rows of one task.

    `number`: the same for each repetition of the write. It selects the partition for rows without a key, so
    that small writes use all partitions.
    """
    task = _context().partitionId()
    rows = size = 0
    # Spark passes empty batches as well.
    batches = (batch for batch in batches if len(batch))
    first = next(batches, None)
    if first is None:  # Spark also runs tasks without rows: they need no connection
        return Written(task, 0, 0)
    partitions = partition_count(options)
    encoder = Encoder(layout, partitions, (task + number) % partitions)
    cutter = Cutter(sort=options.sort_rows)
    with Sending(options, f"{write}/{task}") as sending:
        for chunk in _chunks(encoder, cutter, _chain(first, batches)):
            sending.send(chunk)
            rows, size = rows + chunk.rows, size + chunk.bytes
    settle()
    return Written(task, rows, size)


def _chunks(encoder: Encoder, cutter: Cutter, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
    for batch in batches:
        for part in _parts(batch):
            yield from cutter.add(*encoder.encode(part))
    # Before the last chunk: an incomplete chunk would get another name when the task runs again, and be
    # stored twice.
    if not input_is_whole():
        raise ConnectorError(
            "the input of this task ended early, because the producer of its rows failed",
            remedy="See the error before this one",
        )
    yield from cutter.rest()


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide a batch whose messages may not fit into one Arrow column, which has at most 2 GiB."""
    if batch.nbytes <= _PART_BYTES_MAX or len(batch) == 1:
        yield batch
        return
    half = len(batch) // 2
    yield from _parts(batch[:half])
    yield from _parts(batch[half:])


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls write in a task"
    return context


def _append_only(what: str, remedy: str) -> OptionError:
    return OptionError(f"a log accepts appended rows only; this {what} is not supported", "", f"Use {remedy}")


def _totals(messages: Sequence[WriterCommitMessage | None]) -> str:
    written = [message for message in messages if isinstance(message, Written)]
    return (
        f"tasks={len(written)} rows={sum(one.rows for one in written)}"
        f" bytes={sum(one.bytes for one in written)}"
    )
