"""`python -m bench.spark`: the connector's speed beside Spark's Kafka source and sink, files of the same rows
and Spark's own rate source, all in one run of local[2]. `make peers` installs Kafka.

Writes events of 100 bytes to a log with Spark, reads them back into Spark's noop sink, and the same rows from
Parquet and JSON files, in turns; then micro-batches beside `rate-micro-batch`. `--memory 10000000` also reads
one range of so many events with one task, and tells how much its Python worker took. Exit status 0 when
everything ran, whatever the figures.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bench.process import busy_seconds, usage
from bench.products.kafka_broker import LOAD, running
from bench.products.places import why_missing
from bench.spark_kafka import PACKAGE, beside, bodies
from bench.spark_kafka import READ_AT_LEAST as READ_RATIO_AT_LEAST
from bench.spark_kafka import WRITE_AT_LEAST as WRITE_RATIO_AT_LEAST
from examples import java
from examples.node import NodeProcess

FORMAT: Final = "amqpstreams"
BODY_BYTES: Final = 100
PARTITIONS: Final = 2
READ_AT_LEAST: Final = 250_000
WRITE_AT_LEAST: Final = 100_000
MEMORY_RATIO_AT_MOST: Final = 1.25
"""Of a worker that reads the large range, to one that reads a tenth of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `rate` is rows/s, or MB, or ms; `met`: a figure was wanted, and this is it."""

    what: str
    rate: float
    unit: str
    ratio: str = ""
    wanted: str = ""
    met: bool | None = None


def main() -> int:
    """Measure, print."""
    options = _options()
    missing = why_missing("kafka", LOAD)
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as name,
        session(() if missing else (PACKAGE,)) as spark,
    ):
        folder = Path(name)
        busy, began = busy_seconds(), time.monotonic()
        with NodeProcess(
            folder / "node", log=[f"events:{PARTITIONS}", f"again:{PARTITIONS}", "large:1"]
        ) as node:
            rows = [] if missing else with_kafka(spark, node, folder, options.rows, options.rounds)
            if options.only_kafka:
                report(options, rows, missing, busy, began)
                return 0
            rows += measured(spark, node, folder, options.rows, options.rounds)
            rows += micro_batches(spark, node, folder, options.rows // 10)
            if options.memory:
                rows += memory(spark, node, options.memory)
        report(options, rows, missing, busy, began)
    return 0


def report(options: argparse.Namespace, rows: list[Row], missing: str, busy: float, began: float) -> None:
    """Print the rows. `missing`: why Kafka was not measured; `busy`, `began`: CPU and time at the start."""
    share = (busy_seconds() - busy) / (time.monotonic() - began) / (os.cpu_count() or 1)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{os.cpu_count()} cores, {share:.0%} busy, load {os.getloadavg()[0]:.1f}")
    print(f"{options.rows:,} events of {BODY_BYTES} bytes, local[2]\n")
    print(table(rows))
    if missing:
        print(f"\nSpark's Kafka source is not measured: kafka {missing}")


@contextmanager
def session(packages: Sequence[str] = ()) -> Iterator[SparkSession]:
    """As docs/spark.md recommends it; quiet. `packages`: of Maven Central, which Spark downloads once."""
    java.provide()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()


# -- Kafka


def with_kafka(spark: SparkSession, node: NodeProcess, folder: Path, count: int, rounds: int) -> list[Row]:
    """Writing and reading beside Spark's own Kafka source and sink, rows of 100 bytes and 1 KiB."""
    found: list[Row] = []
    with running(folder / "kafka") as kafka:
        for size, rows in ((BODY_BYTES, count), (1024, count // 5)):
            each = {one.what: one for one in beside(spark, node, kafka, rows=rows, size=size, rounds=rounds)}
            for what, wanted in (("write", WRITE_RATIO_AT_LEAST), ("read", READ_RATIO_AT_LEAST)):
                ours, theirs = each[f"{what}, ours"], each[f"{what}, Kafka's"]
                ratio = ours.rate / theirs.rate
                found += [
                    Row(
                        f"{what} {size} B",
                        ours.rate,
                        "rows/s",
                        f"{ours.cpu_us:.2f} us CPU, x{ratio:.2f}",
                        f">= x{wanted}",
                        ratio >= wanted,
                    ),
                    Row(f"{what} {size} B: Kafka", theirs.rate, "rows/s", f"{theirs.cpu_us:.2f} us CPU"),
                ]
    return found


# -- batches


def measured(spark: SparkSession, node: NodeProcess, folder: Path, count: int, rounds: int) -> list[Row]:
    """Writing, and reading beside files."""
    # What is slow once: workers start, classes are loaded and compiled.
    into_log(numbers(spark, count // 20), node, "again")
    cpu = usage(node.pid).cpu_seconds
    logs = ["events", *["again"] * (rounds - 1)]

    def write_into(name: str) -> None:
        into_log(numbers(spark, count), node, name)

    write = statistics.median([timed(partial(write_into, name)) for name in logs])
    write_cpu = (usage(node.pid).cpu_seconds - cpu) / rounds
    log = source(spark, node, "events")
    parquet, as_json = str(folder / "parquet"), str(folder / "json")
    log.write.parquet(parquet)
    log.write.json(as_json)
    ways: dict[str, Callable[[], DataFrame]] = {
        "the log": lambda: source(spark, node, "events"),
        "the log, body only": lambda: (
            spark.read.schema("body binary").format(FORMAT).options(**at(node, "events")).load()
        ),
        "Parquet files": lambda: spark.read.parquet(parquet),
        "JSON files": lambda: spark.read.schema(log.schema).json(as_json),
    }
    for way in ways.values():
        read(way())
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            took[name].append(timed(lambda way=way: read(way())))  # type: ignore[misc]
    rates = {name: count / statistics.median(seconds) for name, seconds in took.items()}
    ours = rates["the log"]
    rows = [
        Row(
            f"read {name}",
            rate,
            "rows/s",
            "" if name == "the log" else f"log/this {ours / rate:.2f}",
            *wanted(name, rate),
        )
        for name, rate in rates.items()
    ]
    rate = count / write
    return [
        *rows,
        Row(
            "write to a log",
            rate,
            "rows/s",
            f"node: {write_cpu / count * 1e6:.1f} µs CPU",
            f">= {WRITE_AT_LEAST:,}",
            rate >= WRITE_AT_LEAST,
        ),
    ]


def wanted(name: str, rate: float) -> tuple[str, bool | None]:
    """What the issue of reading is measured by."""
    return (f">= {READ_AT_LEAST:,}", rate >= READ_AT_LEAST) if name == "the log" else ("", None)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    """Rows to write, of 100 bytes."""
    return bodies(spark, count, BODY_BYTES)


def at(node: NodeProcess, log: str) -> dict[str, str]:
    return {"endpoint": node.url, "stream": log}


def into_log(frame: DataFrame, node: NodeProcess, log: str) -> None:
    frame.write.format(FORMAT).mode("append").options(**at(node, log)).save()


def source(spark: SparkSession, node: NodeProcess, log: str) -> DataFrame:
    """All columns that there are by default."""
    return spark.read.format(FORMAT).options(**at(node, log)).load()


def read(frame: DataFrame) -> None:
    """Every row, to nowhere."""
    frame.write.format("noop").mode("overwrite").save()


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# -- micro-batches


def micro_batches(spark: SparkSession, node: NodeProcess, folder: Path, size: int) -> list[Row]:
    """How long a micro-batch takes, beside the same number of rows that are made by a counter in the JVM."""

    def log(rows: int) -> DataFrame:
        places = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
        return spark.readStream.format(FORMAT).options(**at(node, "events"), **places).load()

    def rate(rows: int) -> DataFrame:
        return (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", PARTITIONS)
            .load()
        )

    frames = {
        (name, rows): way(rows)
        for rows in (size, 200)
        for name, way in (("rate-micro-batch", rate), ("the log", log))
    }
    took: dict[tuple[str, int], float] = {}
    for turn in range(2):  # the first is for the JVM to compile what they have in common
        took = {key: batch_ms(frame, folder / f"{key[0]}-{key[1]}-{turn}") for key, frame in frames.items()}
    found = []
    for (name, rows), ms in took.items():
        theirs = took["rate-micro-batch", rows]
        ratio = f"{ms - theirs:+.0f} ms, x{ms / theirs:.1f}" if name == "the log" else ""
        found.append(Row(f"micro-batch of {rows:,} rows: {name}", ms, "ms", ratio))
    return found


def batch_ms(frame: DataFrame, checkpoint: Path, batches: int = 10) -> float:
    """Median of `triggerExecution`, the first micro-batch left out."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        while True:
            done = [progress for progress in query.recentProgress if progress.numInputRows]
            if len(done) >= batches - 1 or query.exception() is not None:
                break
            time.sleep(0.05)
        exception = query.exception()
        if exception is not None:
            raise exception
    finally:
        query.stop()
    return statistics.median(progress.durationMs["triggerExecution"] for progress in done[1 : batches - 1])


# -- memory


def memory(spark: SparkSession, node: NodeProcess, count: int) -> list[Row]:
    """What a Python worker takes at most for one range, a tenth of it first."""
    peaks = []
    for share in (count // 10, count - count // 10):
        into_log(numbers(spark, share), node, "large")
        with watched() as peak:
            read(
                spark.read.format(FORMAT)
                .options(**at(node, "large"), maxOffsetsPerPartition=str(count))
                .load()
            )
        peaks.append(peak[0])
    ratio = peaks[1] / peaks[0]
    return [
        Row(f"a worker's memory, range of {count // 10:,}", peaks[0], "MB"),
        Row(
            f"a worker's memory, range of {count:,}",
            peaks[1],
            "MB",
            f"x{ratio:.2f}",
            f"<= x{MEMORY_RATIO_AT_MOST}",
            ratio <= MEMORY_RATIO_AT_MOST,
        ),
    ]


@contextmanager
def watched() -> Iterator[list[float]]:
    """The largest resident size (MB) of any Python worker of Spark meanwhile."""
    peak, done = [0.0], threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            peak[0] = max([peak[0], *(size_mb(pid) for pid in workers(os.getpid()))])

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def workers(pid: int) -> Iterator[int]:
    """Spark's Python processes below this one."""
    try:
        children = [
            int(one)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for one in (task / "children").read_text().split()
        ]
        for child in children:
            if (
                b"pyspark" in Path(f"/proc/{child}/cmdline").read_bytes()
                and b"java" not in Path(f"/proc/{child}/cmdline").read_bytes()
            ):
                yield child
            yield from workers(child)
    except OSError:
        return


def size_mb(pid: int) -> float:
    """Resident now; 0 of a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


# -- telling


def table(rows: list[Row]) -> str:
    """For people."""
    lines = [f"{'':52}{'':>14} {'':8}{'':24}{'wanted':14}met"]
    for row in rows:
        met = "" if row.met is None else "yes" if row.met else "NO"
        lines.append(
            f"{row.what:52}{row.rate:>14,.0f} {row.unit:8}{row.ratio:24}{row.wanted:14}{met}".rstrip()
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.spark", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="events to write and read (default 1,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="reads of each kind, of which the median counts (default 3)"
    )
    parser.add_argument(
        "--memory",
        type=int,
        default=0,
        metavar="EVENTS",
        help="also the memory of a worker for a range of so many",
    )
    parser.add_argument(
        "--only-kafka", action="store_true", help="only the comparison with Spark's Kafka source and sink"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
