"""How Spark finds the source."""

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_connector import register
from spark_connector.source import AmqpStreamsDataSource

NOT_FOUND = "DATA_SOURCE_NOT_FOUND"


def refusal(spark: SparkSession, name: str) -> str:
    """The error of a source without options."""
    with pytest.raises((PySparkException, Py4JJavaError)) as refused:
        spark.read.format(name).load()
    return str(refused.value)


def test_the_format_is_known_without_a_call(spark: SparkSession) -> None:
    """Spark's own search for installed sources, in a separate process; here the editable install. No other
    test may register the source.
    """
    assert NOT_FOUND in refusal(spark, "amqpstream")
    assert NOT_FOUND not in refusal(spark, "amqpstreams")


def test_it_can_be_registered_where_the_search_does_not_reach(spark: SparkSession) -> None:
    register(spark)  # once more: it replaces itself
    assert NOT_FOUND not in refusal(spark, "amqpstreams")


def test_the_shim_gives_the_source() -> None:
    import pyspark_amqpstreams  # noqa: PLC0415 - its import is what is tested

    assert pyspark_amqpstreams.DefaultSource is AmqpStreamsDataSource
