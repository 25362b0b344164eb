"""format("amqpstreams"): the event log as a Spark data source.

Installed, it needs no call: Spark finds it by the package `pyspark_amqpstreams`. `register` is for where that search does not reach.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `format("amqpstreams")` known to this session, whatever Spark's own search finds.

    That search runs once for a JVM and in the interpreter that PYSPARK_DRIVER_PYTHON or PYSPARK_PYTHON names; another installed package
    `pyspark_…` that cannot be imported ends it for all. A source that was found is replaced by this one, which is the same.
    """
    from spark_connector.source import AmqpStreamsDataSource  # noqa: PLC0415 - rooms of this package are used without Spark, too

    spark.dataSource.register(AmqpStreamsDataSource)
