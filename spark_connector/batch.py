"""[io] `spark.read`: ranges are planned when Spark asks for partitions, and read in its workers.

A reader is pickled: it has options and types, and opens nothing before it is asked.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from spark_connector import node
from spark_connector.offsets import Edge, Offsets
from spark_connector.planning import OffsetRange, beginning, plan
from spark_connector.pushdown import Bounds, between, bounds_of, narrowed
from spark_connector.reading import face, numbers, partitions_of, rows
from spark_connector.schema import fitting
from spark_connector.settings import read_options
from spark_connector.workers import settle

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class BatchReader(DataSourceReader):
    """Reads what lies between two positions, as it is when the query is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(options, streaming=False)
        self._schema = schema
        self._bounds = Bounds()
        fitting(schema, self._options.columns)

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        options = self._options
        assert options.ending is not None
        available = node.available(options.connection, options.streams)
        start = beginning(numbers(options, options.starting, available, Edge.EARLIEST), available)
        ends = beginning(numbers(options, options.ending, available, Edge.LATEST), available)
        begun = {name: one.next for name, one in start.streams.items()}
        planned = plan(start, Offsets(ends.streams, begun=begun), available)
        face(options, planned.losses)
        if options.filter is not None:
            node.check_filter(options.connection, options.streams[0], options.filter)
        found = partitions_of(options, self._at_times(narrowed(planned.ranges, self._bounds)))
        settle()
        return found

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The rows of one task."""
        return rows(self._options, self._schema, partition)

    def _at_times(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """What of ranges is within the query's bounds of time."""
        low_ms, high_ms = self._bounds.low_ms, self._bounds.high_ms
        for stream in {one.stream for one in ranges} if low_ms is not None or high_ms is not None else ():
            indexes = sorted({one.partition for one in ranges if one.stream == stream})
            low = {} if low_ms is None else node.offsets_at(self._options.connection, stream, indexes, low_ms)
            high = {} if high_ms is None else node.offsets_at(self._options.connection, stream, indexes, max(high_ms, 0))
            ranges = [between(one, low.get(one.partition), high.get(one.partition)) if one.stream == stream else one for one in ranges]
        return ranges


class PushingReader(BatchReader):
    """The same where Spark offers conditions; where it does not, having this method at all is an error to it."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 (Spark's name)
        """Take what bounds the ranges. Spark evaluates all of it again."""
        self._bounds = bounds_of(filters)
        return filters


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader for one planned query: the pushing one in the worker that Spark starts to ask about conditions."""
    return (PushingReader if _PUSHING in sys.modules else BatchReader)(options, schema)
