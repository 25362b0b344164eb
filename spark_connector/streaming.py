"""`spark.readStream`: micro-batches of offset ranges. [io]"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class StreamReader(DataSourceStreamReader):
    """One of these lives for one run of a query."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The rows of one task."""
        raise NotImplementedError(partition)
