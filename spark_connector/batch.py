"""[io] `spark.read`: the driver plans ranges when Spark asks for partitions, and Spark's workers read them.

A reader is pickled. It contains options and types, and does not open connections before Spark calls it.

The reader does not have `pushFilters`: Spark 4.2 and 4.3 keep one plan for each frame or view, so the
conditions of one query would also apply to every other query of the same frame (SPARK-58551).
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_connector.node import requests
from spark_connector.options.settings import read_options
from spark_connector.planning.offsets import Edge, Offsets
from spark_connector.planning.ranges import beginning, check_order, plan
from spark_connector.reading import numbers, partitions_of, report_losses, rows
from spark_connector.reporting import shortly, shortly_each
from spark_connector.rows.schema import fitting
from spark_connector.workers import settle

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchReader(DataSourceReader):
    """Reads the events between two positions. Spark plans a frame or view once, at its first action."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(options, streaming=False)
        self._schema = schema
        fitting(schema, self._options.columns)

    @shortly
    def partitions(self) -> list[InputPartition]:
        """Plan the tasks of the batch."""
        options = self._options
        assert options.ending is not None
        # One request for the start and the end, so that both are of the same moment.
        available = requests.available(options.connection, options.streams)
        start = beginning(numbers(options, options.starting, available, Edge.EARLIEST), available)
        ends = beginning(numbers(options, options.ending, available, Edge.LATEST), available)
        begun = {name: one.next for name, one in start.streams.items()}
        check_order(start, ends, available)
        planned = plan(start, Offsets(ends.streams, begun=begun), available)
        report_losses(options, planned.losses)
        if options.filter is not None:
            # On the driver: a mistake must fail once and not in every task.
            requests.check_filter(options.connection, options.streams[0], options.filter)
        found = partitions_of(options, planned.ranges)
        settle()
        return found

    @shortly_each
    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Yield the rows of one task."""
        return rows(self._options, self._schema, partition)
