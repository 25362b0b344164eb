"""`spark.read`: ranges are planned when Spark asks for partitions, and read in its workers. [io]"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType


def batch_reader(options: Mapping[str, str], schema: "StructType") -> "DataSourceReader":
    """The reader for one planned query."""
    raise NotImplementedError(len(options), schema)
