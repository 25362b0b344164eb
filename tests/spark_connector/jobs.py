"""Driver programs in separate processes: `python -m tests.spark_connector.jobs NAME GIVEN ANSWER_FILE`.

They act like a user's program: nothing is registered, and every option is given.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark_connector import sessions

FORMAT: Final = "amqpstreams"


def session(given: dict[str, Any]) -> SparkSession:
    """Create a session, with a cluster or through Spark Connect."""
    if "connect" in given:
        return SparkSession.builder.remote(given["connect"]).getOrCreate()
    builder = SparkSession.builder.master(given["master"])
    for name, value in (sessions.QUICK | {"spark.executor.memory": "512m"}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def totals(frame: DataFrame) -> dict[str, int]:
    """Rows, positions, and the sum of the numbers in the bodies: the same for all readers of the same
    events.
    """
    number = f.col("body").cast("string").cast("long")
    row = frame.agg(
        f.count("*").alias("rows"),
        f.count_distinct("partition", "offset").alias("places"),
        f.sum(number).alias("sum"),
    ).head()
    assert row is not None
    return row.asDict()


def batch(given: dict[str, Any]) -> Any:
    """Read a log. With `gate`, tasks write their names into that folder and wait there until they may
    continue.
    """
    frame = session(given).read.format(FORMAT).options(**given["source"]).load()
    return totals(held(frame, given["gate"]) if "gate" in given else frame)


def held(frame: DataFrame, gate: str) -> DataFrame:
    """Each task waits in the middle of its range."""

    def wait(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for one in batches:
            Path(gate, str(os.getpid())).touch()
            while not Path(gate, "open").exists():
                time.sleep(0.01)
            yield one

    return frame.mapInArrow(wait, frame.schema)


def copy(given: dict[str, Any]) -> Any:
    """Copy a log to another one and to files, in micro-batches, until all that is there now has been
    copied.
    """
    source = session(given).readStream.format(FORMAT).options(**given["source"]).load()
    queries = []
    if "log" in given:
        write = source.select("body", "partition").writeStream.format(FORMAT).options(**given["log"])
        queries.append(
            write.option("checkpointLocation", given["checkpoints"] + "/to-log")
            .trigger(availableNow=True)
            .start()
        )
    if "files" in given:
        write = source.writeStream.format("parquet").option("path", given["files"])
        queries.append(
            write.option("checkpointLocation", given["checkpoints"] + "/to-files")
            .trigger(availableNow=True)
            .start()
        )
    for query in queries:
        query.awaitTermination()
    return [batches(query) for query in queries]


def files(given: dict[str, Any]) -> Any:
    """Return what `copy` wrote."""
    return totals(session(given).read.parquet(given["files"]))


def batches(query: StreamingQuery) -> int:
    """Return the number of micro-batches since the checkpoint was created."""
    last = query.lastProgress
    return 0 if last is None else last.batchId + 1


JOBS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {"batch": batch, "copy": copy, "files": files}

if __name__ == "__main__":
    found = JOBS[sys.argv[1]](json.loads(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(found))
