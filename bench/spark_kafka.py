"""Spark's own Kafka source and sink beside ours: the same rows, in turns, in one session of Spark.

`make peers` installs Kafka; Spark itself gets the source from Maven Central. Both products have logs of as
many partitions and a server of their own on the same machine, and both have a batch on the disk before they
accept it (`bench.products.kafka_broker`).
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.process import TICKS_PER_SECOND
from bench.products.kafka_broker import PARTITIONS, Kafka
from examples.node import NodeProcess

PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest that Maven Central has; Spark 4.3 runs it."""
READ_AT_LEAST: Final = 2.0
WRITE_AT_LEAST: Final = 1.5
"""Our rows/s as multiples of Kafka's."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The median of some runs: rows in a second, and CPU of all processes, in microseconds for a row."""

    what: str
    size: int
    rate: float
    cpu_us: float


def beside(
    spark: SparkSession, node: NodeProcess, kafka: Kafka, *, rows: int, size: int, rounds: int
) -> list[Measured]:
    """Write and read `rows` rows of `size` bytes with both, in turns."""
    ours = {"endpoint": node.url}
    theirs = {"kafka.bootstrap.servers": kafka.server}

    def write_ours(log: str, count: int) -> None:
        out = bodies(spark, count, size).write.format("amqpstreams").mode("append")
        out.options(**ours, stream=log, createPartitions=PARTITIONS).save()

    def write_theirs(topic: str, count: int) -> None:
        values = bodies(spark, count, size).withColumnRenamed("body", "value")
        values.write.format("kafka").options(**theirs, topic=topic).save()

    def read_ours() -> None:
        to_nowhere(spark.read.format("amqpstreams").options(**ours, stream=f"read-{size}").load())

    def read_theirs() -> None:
        source = spark.read.format("kafka").options(**theirs, subscribe=f"read-{size}")
        to_nowhere(source.option("startingOffsets", "earliest").load())

    # The first runs are slow: the JVMs compile, and workers start.
    for warm_up in range(2):
        write_ours(f"warm-{size}-{warm_up}", rows // 4)
        write_theirs(f"warm-{size}-{warm_up}", rows // 4)
    write_ours(f"read-{size}", rows)
    write_theirs(f"read-{size}", rows)
    for way in (read_ours, read_theirs):
        way()
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        ways: dict[str, Callable[[], None]] = {
            "write, ours": partial(write_ours, f"write-{size}-{number}", rows),
            "write, Kafka's": partial(write_theirs, f"write-{size}-{number}", rows),
            "read, ours": read_ours,
            "read, Kafka's": read_theirs,
        }
        for what, way in ways.items():
            found.setdefault(what, []).append(_cost(way))
    return [
        Measured(
            what,
            size,
            rows / statistics.median(seconds for seconds, _ in runs),
            statistics.median(cpu for _, cpu in runs) / rows * 1e6,
        )
        for what, runs in found.items()
    ]


def bodies(spark: SparkSession, count: int, size: int) -> DataFrame:
    """Rows to write, made of a number as cheaply as Spark can: `lpad` alone is 2 us of CPU a row."""
    number = (f.col("id") + 10**18).cast("string")
    return spark.range(count, numPartitions=PARTITIONS).select(
        f.concat(f.lit("0" * (size - 19)), number).cast("binary").alias("body")
    )


def to_nowhere(frame: DataFrame) -> None:
    """Read every row."""
    frame.write.format("noop").mode("overwrite").save()


def _cost(way: Callable[[], None]) -> tuple[float, float]:
    """Seconds, and CPU seconds of all processes of this run."""
    cpu, began = family_cpu_seconds(), time.perf_counter()
    way()
    return time.perf_counter() - began, family_cpu_seconds() - cpu


def family_cpu_seconds() -> float:
    """CPU seconds of this process and everything that it started: Spark, its workers, both servers."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has ended
            parents[int(folder.name)] = int(fields[1])
            # With its children that have ended.
            seconds[int(folder.name)] = sum(map(int, fields[11:15])) / TICKS_PER_SECOND
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(seconds[pid] for pid in ours if pid in seconds)
