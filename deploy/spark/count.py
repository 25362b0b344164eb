"""Counts the events of a log with Spark, by partition. The profile `spark` of docker-compose.yml runs it.

Usage: count.py [ENDPOINT [LOG]]
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(endpoint: str = "amqp://node:5672", log: str = "events") -> None:
    """Print a table with a row for each partition that has events."""
    spark = SparkSession.builder.appName(f"count {log}").master("local[*]").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    events = spark.read.format("amqpstreams").option("endpoint", endpoint).load(log)
    counted = events.groupBy("partition").agg(
        f.count("*").alias("events"), f.min("offset").alias("first"), f.max("offset").alias("last")
    )
    counted.orderBy("partition").show()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
