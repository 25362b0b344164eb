"""Spark as the tests use it."""

from pyspark.sql import SparkSession


def test_spark_counts_rows(spark: SparkSession) -> None:
    assert spark.range(3).count() == 3


def test_python_workers_run_what_they_are_given(spark: SparkSession) -> None:
    rows = spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()
    assert [row.id for row in rows] == [0, 1, 2, 3]
