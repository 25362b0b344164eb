"""A Spark job: daily and hourly statistics of the temperatures in a log, into a second log and into Parquet
files.

    python -m examples.temperatures.statistics --endpoint amqp://127.0.0.1:5672 --folder statistics

Reads the log `temps`, rows such as `2010/01/01 00:00,39.4`. It takes what is there and ends; run it again,
and it goes on where it ended.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from examples import java

STATISTICS: Final = "temps-daily"
LATE: Final = "30 days"
"""How much later than a newer reading an older one may come. A day's readings are in one partition, and when
a log is read that has been filled for a long time, one partition may be read some weeks ahead of another."""


def main() -> None:
    """Both statistics."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--endpoint", default="amqp://127.0.0.1:5672", help="where the log node listens")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("statistics"),
        help="for the Parquet files, and for how far each query has come",
    )
    chosen = parser.parse_args()
    spark = session()
    try:
        run(spark, chosen.endpoint, chosen.folder)
    finally:
        spark.stop()


def session() -> SparkSession:
    """Spark in this process, on two threads.

    On a cluster that is `spark-submit --master …` and the same job.
    """
    java.provide()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python processes are this one
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        ),  # of use for short jobs: starts in half the time
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",  # quicker between Spark and its Python processes
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",  # a year of hours needs no more
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("temperatures")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, endpoint: str, folder: Path) -> None:
    """What is in the log now; each query remembers in its checkpoint what it has read and written, so nothing
    counts twice.
    """
    readings = read(spark, endpoint)
    to_log = (
        daily(readings)
        .writeStream.format("amqpstreams")
        .options(endpoint=endpoint, stream=STATISTICS, createPartitions=1, sortRows=True)
    )
    to_files = hourly(readings).writeStream.format("parquet").option("path", str(folder / "hourly"))
    for name, writer in (("daily", to_log), ("hourly", to_files)):
        checkpoint = str(folder / "checkpoints" / name)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def read(spark: SparkSession, endpoint: str) -> DataFrame:
    """The readings, each once: who sent one twice because its connection broke has sent the same
    text twice.
    """
    rows = (
        spark.readStream.format("amqpstreams")
        .options(endpoint=endpoint, stream="temps", startingOffsets="earliest", maxOffsetsPerTrigger=5000)
        .load()
    )
    parts = f.split(f.col("body").cast("string"), ",")
    readings = rows.select(
        f.to_timestamp(parts[0], "yyyy/MM/dd HH:mm").alias("time"),
        parts[1].cast("double").alias("fahrenheit"),
    )
    return readings.withWatermark("time", LATE).dropDuplicatesWithinWatermark(["time"])


def daily(readings: DataFrame) -> DataFrame:
    """For each day its mean, lowest and highest, as messages:

    JSON, with the month as key and the day as subject.
    """
    days = readings.groupBy(f.window("time", "1 day")).agg(*measures())
    day = f.date_format("window.start", "yyyy-MM-dd")
    return days.select(
        f.to_json(f.struct(day.alias("day"), "mean", "lowest", "highest", "readings")).alias("body"),
        f.date_format("window.start", "yyyy-MM").alias("key"),
        day.alias("subject"),
        f.lit("application/json").alias("content_type"),
        f.struct("mean", "readings").alias("properties"),
    )


def hourly(readings: DataFrame) -> DataFrame:
    """For each hour the mean, lowest and highest of the 24 hours that end with it."""
    hours = readings.groupBy(f.window("time", "24 hours", "1 hour")).agg(*measures())
    return hours.select(f.col("window.end").alias("until"), "mean", "lowest", "highest", "readings")


def measures() -> list[Column]:
    """What is told of each window."""
    value = f.col("fahrenheit")
    return [
        f.round(f.avg(value), 2).alias("mean"),
        f.min(value).alias("lowest"),
        f.max(value).alias("highest"),
        f.count(value).alias("readings"),
    ]


if __name__ == "__main__":
    main()
