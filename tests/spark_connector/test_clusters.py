"""Spark as it is deployed: a standalone cluster whose processes are killed, and Spark Connect. Nothing is
registered.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.node import NodeProcess
from tests.spark_connector.clusters import Cluster, Connect, Job, descendants, kill, wait_until
from tests.spark_connector.filled import bodies, fill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 80_000
EXACT = {"rows": ROWS, "places": ROWS, "sum": sum(range(ROWS))}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node with a log of numbers."""
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        fill(node.url, "numbers", range(ROWS))
        yield node.url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster") / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    with Connect(tmp_path_factory.mktemp("connect") / "connect") as running:
        yield running


def source(url: str, **more: str) -> dict[str, str]:
    return {"endpoint": url, "stream": "numbers", "startingOffsets": "earliest", **more}


def test_a_batch_is_exact_although_an_executor_and_a_python_worker_are_killed_in_its_midst(
    url: str, cluster: Cluster, tmp_path: Path
) -> None:
    job = Job(
        tmp_path,
        "batch",
        master=cluster.url,
        source=source(url, minPartitions="8"),
        gate=str(tmp_path / "gate"),
    )
    (tmp_path / "gate").mkdir()
    try:
        wait_until("two tasks are reading", lambda: len(workers(tmp_path / "gate")) == 2, alive=job)
        first, second = cluster.executors()
        kill(first)
        kill(next(pid for pid in workers(tmp_path / "gate") if pid in descendants(second)))
        (tmp_path / "gate" / "open").touch()
        assert job.answer() == EXACT
        assert first not in cluster.executors()
    finally:
        job.kill()


def workers(gate: Path) -> list[int]:
    """Return the Python processes that have reached the gate."""
    return [int(path.name) for path in gate.iterdir() if path.name.isdigit()]


def test_a_stream_is_exact_although_executors_and_the_driver_are_killed(
    url: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Into another log and into files, with the same driver. test_spark_kill.py kills more processes, at
    random.
    """
    given = copying(tmp_path, url, "numbers-again", maxOffsetsPerTrigger=str(ROWS // 8))
    fill(url, "numbers-again", [])
    kills = [lambda job: job.kill(), lambda job: kill(cluster.executors()[0])]
    job = Job(tmp_path, "copy", master=cluster.url, **given)
    try:
        for number, strike in enumerate(kills):
            wait_until("micro-batches", lambda number=number: committed(tmp_path) > 2 * number, alive=job)  # type: ignore[misc]
            strike(job)
            if job.process.poll() is not None:
                job = Job(tmp_path, "copy", master=cluster.url, **given)
        assert job.answer() == [8, 8]
    finally:
        job.kill()
    assert bodies(url, "numbers-again") == bodies(url, "numbers")
    assert totals_of_files(cluster, tmp_path) == EXACT


def copying(folder: Path, url: str, to: str, **more: str) -> dict[str, Any]:
    """Return the arguments of the job `copy`."""
    return {
        "checkpoints": str(folder / "checkpoints"),
        "source": source(url, **more),
        "log": {"endpoint": url, "stream": to},
        "files": str(folder / "files"),
    }


def committed(folder: Path) -> int:
    """Micro-batches that both queries have done."""
    return min(
        len(list((folder / "checkpoints" / name / "commits").glob("[0-9]*")))
        for name in ("to-log", "to-files")
    )


def totals_of_files(cluster: Cluster, folder: Path) -> Any:
    """Return the totals that Spark reads from the files. Only Spark knows which files count."""
    return Job(folder, "files", master=cluster.url, files=str(folder / "files")).answer()


def test_spark_connect_reads_a_batch_with_the_connector_on_the_server(
    url: str, connect: Connect, tmp_path: Path
) -> None:
    assert Job(tmp_path, "batch", connect=connect.url, source=source(url)).answer() == EXACT


def test_spark_connect_copies_a_stream(url: str, connect: Connect, tmp_path: Path) -> None:
    fill(url, "numbers-connected", [])
    given = copying(tmp_path, url, "numbers-connected", maxOffsetsPerTrigger=str(ROWS // 2))
    assert Job(tmp_path, "copy", connect=connect.url, **given).answer() == [2, 2]
    assert bodies(url, "numbers-connected") == bodies(url, "numbers")
