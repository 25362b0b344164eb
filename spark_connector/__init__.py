"""format("amqpstreams"): the event log as a Spark data source.

Spark finds the installed source by the package `pyspark_amqpstreams`. If that search fails, call `register`.
"""

from typing import TYPE_CHECKING

from spark_connector.reporting import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["reason", "register"]


def register(spark: "SparkSession") -> None:
    """Register `format("amqpstreams")` in this session. Has no effect if Spark has found the source itself.

    Spark searches for sources once for each JVM, with the interpreter that PYSPARK_DRIVER_PYTHON or
    PYSPARK_PYTHON names. If any installed package `pyspark_…` cannot be imported, Spark finds no sources.
    """
    # - other modules of this package work without Spark
    from spark_connector.source import AmqpStreamsDataSource  # noqa: PLC0415

    spark.dataSource.register(AmqpStreamsDataSource)
