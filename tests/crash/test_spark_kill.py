"""Drivers and executors of a Spark job are killed at random moments, the node too: every event arrives once,
in a log and in files.
"""

import os
import random
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.node import NodeProcess
from tests.spark_connector.clusters import Cluster, Job, kill, wait_until
from tests.spark_connector.conftest import spark
from tests.spark_connector.filled import bodies, fill
from tests.spark_connector.jobs import totals

__all__ = ["spark"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("CRASH_SPARK_KILLS") or 4)
SEED = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(1 << 32))
BATCHES = 40
ROWS = 80_000


def test_every_event_arrives_once_whichever_process_is_killed(tmp_path: Path, spark: SparkSession) -> None:
    """One driver copies a log in 40 micro-batches to another log and to files. At random moments the driver
    with all its children ends, or an executor, or the node. Spark repeats unfinished work, and it counts
    once.
    """
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    moments = sorted(rng.sample(range(1, BATCHES - 1), KILLS))
    victims = ["driver", "executor", *rng.choices(["driver", "executor", "node"], k=max(0, KILLS - 2))]
    rng.shuffle(victims)
    victims = victims[:KILLS]  # of one kill there is one victim
    with NodeProcess(tmp_path / "node") as node, Cluster(tmp_path / "cluster") as cluster:
        fill(node.url, "numbers", range(ROWS))
        fill(node.url, "copied", [])
        given = {
            "checkpoints": str(tmp_path / "checkpoints"),
            "source": {
                "endpoint": node.url,
                "stream": "numbers",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": ROWS // BATCHES,
            },
            "log": {"endpoint": node.url, "stream": "copied"},
            "files": str(tmp_path / "files"),
        }
        job = Job(tmp_path, "copy", master=cluster.url, **given)
        try:
            for moment, victim in zip(moments, victims, strict=True):
                wait_until(
                    f"micro-batch {moment}",
                    partial(lambda least: committed(tmp_path) >= least, moment),
                    alive=job,
                    seconds=300,
                )
                print(f"kill {victim} at {moment} of {BATCHES} micro-batches")
                match victim:
                    case "driver":
                        job.kill()
                        job = Job(tmp_path, "copy", master=cluster.url, **given)
                    case "executor":
                        for pid in rng.sample(executors := cluster.executors(), k=min(1, len(executors))):
                            kill(pid)
                    case _:
                        node.kill()
                        node.start()
            assert job.answer() == [BATCHES, BATCHES]
        finally:
            job.kill()
        copied = bodies(node.url, "copied")
        assert copied == bodies(node.url, "numbers")
        assert len(copied) == ROWS
    assert totals(spark.read.parquet(str(tmp_path / "files"))) == {
        "rows": ROWS,
        "places": ROWS,
        "sum": sum(range(ROWS)),
    }


def committed(folder: Path) -> int:
    """Micro-batches that either query has done."""
    return max(
        len(list((folder / "checkpoints" / name / "commits").glob("[0-9]*")))
        for name in ("to-log", "to-files")
    )
