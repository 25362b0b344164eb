"""Writing rows to a log. [io]"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_connector.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType


def batch_writer(options: Mapping[str, str], schema: "StructType", *, overwrite: bool) -> "DataSourceArrowWriter":
    """For `write`."""
    raise ConnectorError(f"nothing can be written yet: {len(options)} {schema} {overwrite}")


def stream_writer(options: Mapping[str, str], schema: "StructType", *, overwrite: bool) -> "DataSourceStreamArrowWriter":
    """For `writeStream`."""
    raise ConnectorError(f"nothing can be written yet: {len(options)} {schema} {overwrite}")
