"""`spark.read`: ranges are planned when Spark asks for partitions, and read in its workers. [io]

A reader is pickled: it has options and types, and opens nothing before it is asked.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_connector import node
from spark_connector.offsets import Edge, Offsets, Positions
from spark_connector.planning import beginning, plan, replaced
from spark_connector.reading import face, numbers, partitions_of, rows
from spark_connector.schema import fitting
from spark_connector.settings import read_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchReader(DataSourceReader):
    """Reads what lies between two positions, as it is when the query is planned."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(options, streaming=False)
        self._schema = schema
        fitting(schema, self._options.columns)

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        options = self._options
        assert options.ending is not None
        available = node.available(options.connection, options.streams)
        if isinstance(options.starting, Positions):
            face(options, replaced(options.starting, available))
        start = beginning(numbers(options, options.starting, available, Edge.EARLIEST), available)
        ends = beginning(numbers(options, options.ending, available, Edge.LATEST), available)
        begun = {name: one.next for name, one in start.streams.items()}
        planned = plan(start, Offsets(ends.streams, begun=begun), available)
        face(options, planned.losses)
        return partitions_of(options, planned.ranges)

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The rows of one task."""
        return rows(self._options, self._schema, partition)


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader for one planned query."""
    return BatchReader(options, schema)
