"""`make demo`: a year of temperatures through a log, with the node killed on the way, then through the
gateway (gateway.py).

1 if anything is missing or out of order.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqp_streams.client import Event, Pending, Producer, Receipt, connect
from examples.node import NodeProcess
from examples.temperatures.gateway import through_the_gateway
from examples.temperatures.spark import statistics_of
from examples.temperatures.telling import check, say, title
from interop.clients import Command, MissingError, prepare

CSV: Final = Path(__file__).parent / "seattle-temps.csv"
LOG: Final = "temps"
FOREIGN_LOG: Final = "temps-again"
ON_THE_WAY: Final = 240
"""Events posted behind the last known acceptance when the node is killed: ten days."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as it was read back."""

    partition: str
    offset: int
    time: str
    row: str


def main() -> int:
    """Show it."""
    began = time.monotonic()
    rows = CSV.read_text().splitlines()[1:]
    folder = Path(tempfile.mkdtemp(prefix="amqp-streams-demo-"))
    with NodeProcess(folder, log=[f"{LOG}:4", f"{FOREIGN_LOG}:4"]) as node:
        title("A node on this machine, its log in a folder")
        say(
            f"amqp-streams serve --data-dir {node.data_dir} --log {LOG}:4    (process {node.pid}, {node.url})"
        )
        title(f"Send {len(rows):,} hourly temperatures, keyed by day; kill -9 the node half way")
        attempts = asyncio.run(send_with_a_kill(node, rows))
        title("Read the year back")
        year = from_the_earliest(node, rows, attempts)
        from_an_offset(node, year)
        from_a_time(node, year)
        title("Kill it once more, now that all is stored")
        kill_and_restart(node)
        check(
            by_place(read(node, "--from", "earliest")) == by_place(year),
            "the same events at the same offsets",
        )
        statistics_of(node, rows, folder / "statistics")
        title("The same with a client that is not ours")
        with_another_client(node, rows)
        title("Stop it, and look at the files without it")
        check(node.stop() == 0, "SIGTERM: it ended with 0")
        print(command(node, "verify", str(node.data_dir)).rstrip())
    shutil.rmtree(folder)
    through_the_gateway(rows)
    print(f"\nAll of it is there and in order. {time.monotonic() - began:.0f} s.")
    return 0


# -- sending


async def send_with_a_kill(node: NodeProcess, rows: Sequence[str]) -> list[int]:
    """How often each row was sent: the producer sends again what had no outcome when its connection broke."""
    half = len(rows) // 2
    async with connect(node.url) as client, client.producer(LOG) as producer:
        pending = await post(producer, rows[:half])
        await pending[half - ON_THE_WAY]
        pending += await post(producer, rows[half : half + ON_THE_WAY])
        await asyncio.sleep(0)  # one turn of the loop: the bytes leave
        accepted = sum(one.done for one in pending)
        node.kill()
        say(f"kill -9 with {accepted:,} events accepted and {len(pending) - accepted:,} on their way")
        await asyncio.to_thread(node.start)
        say(
            f"started again on the same folder (process {node.pid}); the producer connects again and sends on"
        )
        pending += await post(producer, rows[len(pending) :])
        receipts: list[Receipt] = [await one for one in pending]
    check(len(receipts) == len(rows), f"{len(rows):,} events accepted: each of them is on the disk")
    again = sum(receipt.attempts > 1 for receipt in receipts)
    say(f"{again:,} of them were sent twice, because the kill swallowed the answer to the first sending")
    return [receipt.attempts for receipt in receipts]


async def post(producer: Producer, rows: Iterable[str]) -> list[Pending]:
    """Send without waiting for the outcomes; events of a day have one key, so they stay in one partition, in
    their order.
    """
    return [await producer.post(Event(row, key=day(row))) for row in rows]


def kill_and_restart(node: NodeProcess) -> None:
    """kill -9 and a new process on the same folder."""
    node.kill()
    began = time.monotonic()
    node.start()
    say(f"kill -9, started again: it listens after {time.monotonic() - began:.2f} s")


# -- reading back


def from_the_earliest(node: NodeProcess, rows: Sequence[str], attempts: Sequence[int]) -> list[Stored]:
    """Everything, counted exactly: each row at least once, more often only if it was sent more often."""
    year = read(node, "--from", "earliest")
    copies = Counter(one.row for one in year)
    check(
        all(copies[row] for row in rows) and len(copies) == len(rows),
        f"{len(year):,} events, {len(copies):,} different: none is missing",
    )
    check(
        all(copies[row] <= sent for row, sent in zip(rows, attempts, strict=True)),
        "each is there once, or twice if it was sent twice",
    )
    twice = [row for row in rows if copies[row] > 1]
    say(
        f"there twice: {len(twice)}"
        + (f", {twice[0]!r} to {twice[-1]!r}: stored, then killed before the answer" if twice else "")
    )
    check(
        in_order(year, rows),
        "in order: offsets without a gap in each partition, the hours of each partition as they were sent",
    )
    for partition in sorted({one.partition for one in year}):
        events = [one for one in year if one.partition == partition]
        say(f"partition {partition}: {len(events):,} events, {events[0].row!r} to {events[-1].row!r}")
    return year


def from_an_offset(node: NodeProcess, year: Sequence[Stored]) -> None:
    """One partition from an offset on."""
    wanted = [one for one in year if one.partition == "2" and one.offset >= 1000]
    got = read(node, "--partition", "2", "--from", "1000")
    check(
        got == wanted, f"{len(got):,} events from {got[0].row!r} (offset {got[0].offset}) to {got[-1].row!r}"
    )


def from_a_time(node: NodeProcess, year: Sequence[Stored]) -> None:
    """All partitions from a moment on: that when the middle one of all was stored."""
    moment = sorted(one.time for one in year)[len(year) // 2]
    wanted = [one for one in year if one.time >= moment]
    got = read(node, "--from", moment)
    check(
        0 < len(got) < len(year) and by_place(got) == by_place(wanted),
        f"{len(got):,} events stored at that moment or later, and no other",
    )


def in_order(events: Sequence[Stored], rows: Sequence[str]) -> bool:
    """Offsets count up from 0 in each partition; what is new there comes in the order of sending; a day is in
    one partition.
    """
    place = {row: number for number, row in enumerate(rows)}
    for partition in {one.partition for one in events}:
        ours = [one for one in events if one.partition == partition]
        if [one.offset for one in ours] != list(range(len(ours))):
            return False
        new = [place[row] for row in dict.fromkeys(one.row for one in ours)]
        if new != sorted(new):
            return False
    return len({(one.partition, day(one.row)) for one in events}) == len({day(row) for row in rows})


# -- another client


def with_another_client(node: NodeProcess, rows: Sequence[str]) -> None:
    """Send, read from the earliest, from an offset, from a time: rhea from npm, or else Qpid Proton."""
    name, client = another_client()
    accepted = client.run("send", node.url, FOREIGN_LOG, lines="".join(f"{row}\n" for row in rows))
    check(int(accepted) == len(rows), f"{name} sent {int(accepted):,} events, all accepted")
    year = foreign_read(client, node, "earliest", len(rows))
    check(
        sorted(one.row for one in year) == sorted(rows) and in_order(year, rows),
        f"{name} read all {len(year):,} from the earliest, in order",
    )
    after = 1999
    wanted = [one for one in year if one.offset > after]
    got = foreign_read(client, node, f"offset:{after:016d}", len(wanted))
    check(
        by_place(got) == by_place(wanted),
        f"{name} read the {len(got):,} with an offset greater than {after}, of all partitions",
    )
    moment = sorted(one.time for one in year)[len(year) // 2]
    wanted = [one for one in year if int(one.time) > int(moment)]
    got = foreign_read(client, node, f"time:{moment}", len(wanted))
    check(by_place(got) == by_place(wanted), f"{name} read the {len(got):,} stored after {moment} ms")


def another_client() -> tuple[str, Command]:
    """rhea if this machine can have it."""
    try:
        return "rhea (JavaScript)", prepare("rhea")
    except MissingError as error:
        say(f"rhea is not to be had: {error}; so it is Qpid Proton's BlockingConnection")
    return "Qpid Proton's BlockingConnection", prepare("proton")


def foreign_read(client: Command, node: NodeProcess, where: str, count: int) -> list[Stored]:
    """What it prints: partition, offset, timestamp, body."""
    lines = client.run("receive", node.url, FOREIGN_LOG, where, str(count)).splitlines()
    fields = [line.split("\t") for line in lines]
    return [Stored(partition, int(offset), moment, row) for partition, offset, moment, row in fields]


# -- words and commands


def read(node: NodeProcess, *options: str) -> list[Stored]:
    """What `amqp-streams receive` prints."""
    lines = command(node, "receive", LOG, *options, hidden=("--format", "json")).splitlines()
    events = [json.loads(line) for line in lines]
    return [Stored(one["partition"], int(one["offset"]), one["timestamp"], one["body"]) for one in events]


def command(node: NodeProcess, *arguments: str, hidden: Sequence[str] = ()) -> str:
    """Run our command line, showing the command."""
    print(f"  $ amqp-streams {' '.join(arguments)}")
    program = str(Path(sys.executable).parent / "amqp-streams")
    environment = {**os.environ, "AMQP_STREAMS_URL": node.url}
    return subprocess.run(
        [program, *arguments, *hidden],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=60,
    ).stdout


def by_place(events: Iterable[Stored]) -> list[Stored]:
    """Partition after partition: how partitions alternate on a link is nobody's promise."""
    return sorted(
        events, key=lambda one: one.partition
    )  # stable: within a partition the order stays as it came


def day(row: str) -> str:
    """2010/01/01 of `2010/01/01 00:00,39.4`."""
    return row[:10]


if __name__ == "__main__":
    sys.exit(main())
