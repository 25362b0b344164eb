"""`format("amqpstreams")`: creates the readers and writers for Spark. [io]

Spark creates a data source for each query that it plans, in separate processes, so a source does not open
connections before it is read. Imports are late, because Spark also loads this module only to get its name.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from service_parts.extras import needs_extra
from spark_connector.reporting import shortly

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

NAME = "amqpstreams"
_WHAT = f'format("{NAME}")'


class AmqpStreamsDataSource(DataSource):
    """The data source. See docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = options

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return NAME

    @shortly
    def schema(self) -> "StructType":
        """Return the columns that the options choose, for a query without `.schema(…)`."""
        from spark_connector.options.given import without_catalogue  # noqa: PLC0415
        from spark_connector.options.settings import first_look  # noqa: PLC0415
        from spark_connector.rows.schema import chosen  # noqa: PLC0415

        options = without_catalogue(self.options)
        first_look(options)
        return chosen(options)

    @shortly
    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Return the reader for `spark.read`."""
        with needs_extra(_WHAT, "spark"):
            from spark_connector.batch import BatchReader  # noqa: PLC0415

        return BatchReader(self.options, schema)

    @shortly
    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802 (Spark's name)
        """Return the reader for `spark.readStream`."""
        with needs_extra(_WHAT, "spark"):
            from spark_connector.streaming import StreamReader  # noqa: PLC0415

        return StreamReader(self.options, schema)

    @shortly
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        """Return the writer for `write`."""
        with needs_extra(_WHAT, "spark"):
            from spark_connector.writing.sink import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite=overwrite)

    # The signature is Spark's.
    @shortly
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":  # noqa: N802
        """Return the writer for `writeStream`."""
        with needs_extra(_WHAT, "spark"):
            from spark_connector.writing.sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite=overwrite)
