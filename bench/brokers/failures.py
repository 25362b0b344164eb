"""`make kafka-failures`: what producers, readers, a gateway and a Spark job see of each failure of Kafka and
of nodes.

Three brokers, two nodes. Each failure has a log of its own, with 3 producers, 4 readers and a Spark query,
and a Broker of a gateway. In the end each accepted event must be in the log, in order, and each reader and
the query must have got exactly what is in Kafka, unless the failure is that the log is gone. Times are
printed, not judged.

    python -m bench.brokers.failures [--only broker-killed,node-stopped] [--json]

Exit status 0 when all of that holds; 1 otherwise.
"""

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from amqp_streams.client import connect
from amqp_streams.errors import AmqpStreamsError
from bench.brokers import disturbing
from bench.brokers.disturbing import FAILURES, Failure
from bench.brokers.load import Load, Reader, Writer, longest
from bench.brokers.verdict import Verdict, judge
from bench.brokers.watchers import ACCEPTED, Gateway, Spark
from bench.brokers.world import PREFIX, World, running, stored
from bench.spark import session
from examples.gateway import GatewayProcess

PARTITIONS: Final = 4
WRITERS: Final = 3
NODES: Final = 2
BEFORE_S: Final = 6.0
AFTER_S: Final = 10.0
SETTLED_S_MAX: Final = 180.0
_RATE: Final = 20.0
_COLUMNS: Final = ("failure", "producers", "readers", "gateway", "Spark")


@dataclass(frozen=True, slots=True)
class Row:
    """One failure: what each kind of client saw, in words, and the promises that were not kept."""

    failure: str
    held_s: float
    producers: str
    readers: str
    gateway: str
    spark: str
    accepted: int
    lost: int
    reordered: int
    doubled: int
    violations: tuple[str, ...]


@dataclass(slots=True)
class Trial:
    """One failure with all its clients."""

    failure: Failure
    world: World
    load: Load
    gateway: Gateway
    spark: Spark
    began: float = 0.0
    ended: float = 0.0

    async def run(self) -> Row:
        """Make the failure, and judge."""
        try:
            self.load.start()
            await asyncio.to_thread(self.gateway.start)
            self.spark.start()
            await asyncio.to_thread(self.spark.reached, {0: 0}, SETTLED_S_MAX)
            await asyncio.sleep(BEFORE_S)
            self.began = time.monotonic()
            await self.failure.make(self.world, self.failure.name, self.failure.hold_s)
            await asyncio.sleep(AFTER_S)
            self.ended = time.monotonic()
            return await self._judged()
        finally:
            await asyncio.to_thread(self.spark.stop)
            self.gateway.close()

    async def _judged(self) -> Row:
        faults, verdict = list[str](), Verdict(0, 0, 0, 0, 0, 0, 0, ())
        # The events from before are gone with their log.
        since = self.ended - AFTER_S if self.failure.log_gone else 0.0
        try:
            await self.load.stop_writing(SETTLED_S_MAX)
        except TimeoutError:
            faults.append("an event had no outcome in time")
        await asyncio.to_thread(self.gateway.stop)
        left = await asyncio.to_thread(self.gateway.delivered, since, SETTLED_S_MAX)
        if disturbing.topics(self.world, self.failure.name):
            verdict = await self._compared(since, faults)
        else:
            await self.load.stop_reading({}, 0.0)
        if left:
            faults.append(f"the gateway did not deliver {left} events that it had accepted")
        if self.failure.unclean:
            # Lost events are what this failure does.
            faults.clear()
        return Row(
            self.failure.what,
            self.failure.hold_s,
            _words(self._producers(verdict)),
            _words(self._readers()),
            _words(self._gateway()),
            _words(self._spark()),
            verdict.accepted,
            verdict.lost,
            verdict.reordered,
            verdict.doubled,
            tuple(faults),
        )

    async def _compared(self, since: float, faults: list[str]) -> Verdict:
        name = self.failure.name
        found = await asyncio.to_thread(stored, self.world.cluster.servers, name, PARTITIONS)
        ends = {partition: places[-1].offset for partition, places in found.items() if places}
        patience = AFTER_S if self.failure.unclean else SETTLED_S_MAX
        if not await self.load.stop_reading(ends, patience):
            faults.append("a reader did not reach the end in time")
        read = {each.name: {each.partition: each.got} for each in self.load.readers}
        if not self.failure.log_gone:
            if not await asyncio.to_thread(self.spark.reached, ends, patience):
                faults.append("the Spark query did not reach the end in time")
            read["Spark"] = {index: self.spark.got().get(index, []) for index in range(PARTITIONS)}
        verdict = judge(found, self.load.accepted(since), read, self.load.refused())
        faults += verdict.violations
        return verdict

    def _producers(self, verdict: Verdict) -> Iterable[str]:
        writers = self.load.writers
        yield f"pause {max(each.pause(self.began, self.ended) for each in writers):.0f} s"
        if resent := sum(each.resent for each in writers):
            yield f"{resent} events sent again"
        if verdict.doubled:
            yield f"{verdict.doubled} stored twice"
        if verdict.lost:
            yield f"{verdict.lost} accepted events lost"
        for number, node in enumerate(self.world.nodes, 1):
            if named := lost_offsets(node.words, self.failure.name):
                yield f"node {number} names {named} lost offsets"
        yield from _errors(text for each in writers for _, text in each.seen.errors)

    def _readers(self) -> Iterable[str]:
        readers = self.load.readers
        yield f"pause {max(each.pause(self.began, self.ended) for each in readers):.0f} s"
        yield from _errors(text for each in readers for _, text in each.seen.errors)

    def _gateway(self) -> Iterable[str]:
        within = [
            (moment, status) for moment, status in self.gateway.answers if self.began <= moment <= self.ended
        ]
        accepted = [moment for moment, status in within if status == ACCEPTED]
        yield f"{longest(accepted, self.began, self.ended):.0f} s without 202"
        for status, count in sorted(Counter(status for _, status in within if status != ACCEPTED).items()):
            yield f"{count} x {status or 'no answer'}"
        if self.gateway.doubled:
            yield f"{self.gateway.doubled} delivered again"

    def _spark(self) -> Iterable[str]:
        yield f"pause {longest(self.spark.times, self.began, self.ended):.0f} s"
        yield from _errors(text for _, text in self.spark.errors)


def lost_offsets(words: str, log: str) -> int:
    """How many offsets of a log the lines `events_lost` of a node name."""
    lines = [line for line in words.splitlines() if " events_lost " in line and f" log={log} " in line]
    found = [dict(re.findall(r"(first|last)=(\d+)", line)) for line in lines]
    return sum(int(each["last"]) - int(each["first"]) + 1 for each in found)


def _errors(texts: Iterable[str]) -> Iterable[str]:
    """Different errors with their counts. Names, numbers and places differ from one to the next."""
    shown = Counter(re.sub(r"'[^']*'|\d+", "…", text.split(" (")[0])[:160] for text in texts)
    return [f"{count} x `{text}`" for text, count in shown.most_common(4)]


def _words(parts: Iterable[str]) -> str:
    return "; ".join(parts)


async def run(chosen: Sequence[Failure], folder: Path, spark: SparkSession) -> list[Row]:
    """Try the failures one after the other.

    Raises:
        RuntimeError: something does not start.
    """
    options = ("--kafka-weak", "--log-level", "info")
    rows = []
    async with running(folder, nodes=NODES, options=options) as world:
        gateway = GatewayProcess(folder / "gateway", "--amqp", ",".join(world.urls))
        try:
            await asyncio.to_thread(gateway.start)
            for failure in chosen:
                print(f"{failure.what} …", file=sys.stderr, flush=True)
                try:
                    row = await (await _trial(failure, world, gateway, spark, folder)).run()
                except (RuntimeError, OSError, KafkaException, AmqpStreamsError) as error:
                    # The other rows are worth having; this one counts as a broken promise.
                    row = _failed(failure, error)
                rows.append(row)
                print(line(row), file=sys.stderr, flush=True)
        finally:
            gateway.__exit__()
    return rows


async def _trial(
    failure: Failure, world: World, gateway: GatewayProcess, spark: SparkSession, folder: Path
) -> Trial:
    if failure.unclean:
        for name in (failure.name, f"broker.default.{failure.name}"):
            topic = disturbing.unclean_topic(f"{PREFIX}.log.{name}")
            await asyncio.to_thread(disturbing.create, world, topic)
    else:
        async with connect(world.urls) as client:
            await client.management.create_log(failure.name, partitions=PARTITIONS)
    name, urls = failure.name, world.urls_from
    load = Load(
        [Writer(f"w{index}", urls(index), name, PARTITIONS, _RATE) for index in range(WRITERS)],
        [Reader(f"r{index}", urls(index), name, index) for index in range(PARTITIONS)],
    )
    query = Spark(spark, world.urls, name, folder / "checkpoints" / name)
    return Trial(failure, world, load, Gateway(gateway, name), query)


def _failed(failure: Failure, error: Exception) -> Row:
    """The row of a trial that did not come to its end."""
    text = f"the trial ended with {type(error).__name__}: {error}"
    return Row(failure.what, failure.hold_s, "", "", "", "", 0, 0, 0, 0, (text,))


def line(row: Row) -> str:
    """A row of the table in docs/kafka.md."""
    cells = (f"{row.failure} ({row.held_s:.0f} s)", row.producers, row.readers, row.gateway, row.spark)
    return "| " + " | ".join(cells) + " |"


def table(rows: Sequence[Row]) -> str:
    """The table in docs/kafka.md."""
    head = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    return "\n".join([*head, *map(line, rows)])


def main() -> int:
    """Run what the command line says."""
    names = [failure.name for failure in FAILURES]
    parser = argparse.ArgumentParser(prog="python -m bench.brokers.failures", description=__doc__)
    parser.add_argument("--only", default=",".join(names), help="names of failures, with commas")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    wanted = given.only.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"{', '.join(unknown)}: not a failure; the failures are {', '.join(names)}")
    chosen = [failure for failure in FAILURES if failure.name in wanted]
    folder = Path(tempfile.mkdtemp(prefix="kafka-failures-"))
    try:
        with session() as spark:
            rows = asyncio.run(run(chosen, folder, spark))
    except RuntimeError as error:
        print(f"{error} (what the processes wrote is in {folder})", file=sys.stderr)
        return 1
    print(json.dumps([asdict(row) for row in rows]) if given.json else table(rows))
    broken = [f"{row.failure}: {text}" for row in rows for text in row.violations]
    for text in broken:
        print(f"VIOLATION {text}", file=sys.stderr)
    if broken:
        print(f"what the processes wrote is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
