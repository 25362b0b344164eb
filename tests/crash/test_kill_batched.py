"""kill -9 of the node while it stores batches of many kilobytes, on a disk with space and on a full one.

Invariants: an event that was accepted is stored once, with its content. The events of each link keep their
order in each partition. An event that was sent once and not accepted is stored at most once.

`make crash` runs ROUNDS=50 kills of each kind, from a seed that it prints.
"""

import asyncio
import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amqp_streams.client import EARLIEST, NO_RETRY, Client, Event, Pending, connect
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.storage.inspect import verify
from examples.node import NodeProcess

PARTITIONS = 3
ROUNDS = int(os.environ.get("CRASH_ROUNDS") or 2)
SEED = int(
    os.environ.get("CRASH_SEED") or (1 if "CRASH_ROUNDS" not in os.environ else time.time_ns() % 1_000_000)
)
DISK_BYTES = 40 << 20
"""Of the disk that becomes full. The journal of a node in tests takes 8 MiB."""
BALLAST = "ballast"
FULL = "disk_full"
"""Of the log line of a node."""


@dataclass
class Link:
    """A producer: its events, in order, and the outcomes that it learned."""

    name: str
    partition: int | None = None
    batch_bytes: int = 256 << 10
    compression: str | None = None
    sent: list[tuple[bytes, Pending]] = field(default_factory=list)

    async def produce(self, client: Client, log: str, chance: random.Random) -> None:
        """Send until the node ends. A full disk refuses events, and then others are sent."""
        try:
            async with client.producer(
                log,
                partition=self.partition,
                window=4000,
                batch_bytes=self.batch_bytes,
                compression=self.compression,
            ) as producer:
                while True:
                    for _ in range(chance.choice((1, 40, 1500))):
                        body = f"{self.name}.{len(self.sent)}.".encode() + chance.randbytes(
                            chance.choice((0, 90, 1000, 4000, 4000, 60_000))
                        )
                        self.sent.append((body, await producer.post(Event(body))))
                    await asyncio.sleep(chance.choice((0, 0, 0.01)))
        except AmqpStreamsError:
            pass

    async def accepted(self) -> list[bytes]:
        """The events whose outcome was accepted before the node ended."""
        found: list[bytes] = []
        for body, pending in self.sent:
            if pending.done:
                try:
                    await pending
                except AmqpStreamsError:
                    continue
                found.append(body)
        return found

    @property
    def answered(self) -> int:
        """How many events have an outcome."""
        return sum(pending.done for _, pending in self.sent)


async def one_round(node: NodeProcess, log: str, chance: random.Random, *, full: bool) -> list[Link]:
    """Send to a new log, and kill the node."""
    links = [
        Link(f"{log}.plain"),
        Link(f"{log}.bound", partition=1),
        Link(f"{log}.packed", compression="zstd"),
        Link(f"{log}.single", batch_bytes=0),
    ]
    clients = [connect(node.url, retry=NO_RETRY) for _ in links]
    for client in clients:
        await client.connect()
    await clients[0].management.create_log(log, partitions=PARTITIONS, segment_bytes=1 << 20)
    tasks = [
        asyncio.create_task(link.produce(client, log, random.Random(chance.random())))
        for link, client in zip(links, clients, strict=True)
    ]
    if full:
        await fill(node, chance)
    else:
        await until(lambda: any(link.answered for link in links))
    await asyncio.sleep(chance.uniform(0, 0.5))
    node.kill()
    await asyncio.gather(*tasks)
    for client in clients:
        await client.close()
    (node.data_dir / BALLAST).unlink(missing_ok=True)
    return links


async def fill(node: NodeProcess, chance: random.Random) -> None:
    """Wait until the node has found its disk full.

    Sometimes another program takes the reserve of the node as well, so that writes fail in the middle, and
    sometimes this program makes space again.
    """
    reports, ballast = node.words.count(FULL), node.data_dir / BALLAST
    if chance.random() < 0.7:
        await asyncio.sleep(chance.uniform(0, 0.3))
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(64 << 10))
    await until(lambda: node.words.count(FULL) > reports)
    if chance.random() < 0.5:
        ballast.unlink(missing_ok=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event reports."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def stored(node: NodeProcess, log: str) -> list[list[bytes]]:
    """The events of each partition, in their order."""
    found: list[list[bytes]] = []
    async with connect(node.url) as client:
        for partition in range(PARTITIONS):
            found.append([])
            async with client.consumer(log, partition=partition, start=EARLIEST) as consumer:
                while batch := await consumer.receive_retained(1000, 20.0):
                    for event in batch:
                        assert isinstance(event.body, bytes)
                        found[-1].append(event.body)
    return found


async def check(node: NodeProcess, log: str, links: list[Link]) -> tuple[int, int]:
    """Compare the log with the outcomes. Returns how many events were sent, and how many accepted."""
    found = await stored(node, log)
    counts = Counter(body for bodies in found for body in bodies)
    assert max(counts.values(), default=0) <= 1, "an event is stored twice"
    sent = {body for link in links for body, _ in link.sent}
    assert not counts.keys() - sent, "an event is stored that nobody sent"
    accepted = [body for link in links for body in await link.accepted()]
    lost = [body[:40] for body in accepted if body not in counts]
    assert not lost, f"{len(lost)} accepted events are lost: {lost[:3]}"
    for link in links:
        numbers = {body: number for number, (body, _) in enumerate(link.sent)}
        for bodies in found:
            mine = [numbers[body] for body in bodies if body in numbers]
            assert mine == sorted(mine), f"{link.name} is out of order"
        if link.partition is not None:
            assert sum(body in numbers for body in found[link.partition]) == sum(
                body in numbers for body in counts
            )
    return len(sent), len(accepted)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a node whose data directory is on a file system that is soon full."""
    path = tmp_path / "data"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


async def kill_again_and_again(node: NodeProcess, *, full: bool) -> None:
    print(f"\nSEED={SEED} ROUNDS={ROUNDS}")
    chance, everything = random.Random(SEED), 0
    for number in range(ROUNDS):
        log = f"crash{number}"
        links = await one_round(node, log, chance, full=full)
        damage = [each for each in verify(node.data_dir) if each.severity.name == "DAMAGE"]
        assert not damage, damage
        await asyncio.to_thread(node.start)
        sent, accepted = await check(node, log, links)
        print(f"round {number}: {sent} sent, {accepted} accepted")
        everything += accepted
        async with connect(node.url) as client:
            await client.management.delete_log(log)
    assert everything > 100 * ROUNDS, "the kills came before anything happened"
    assert "Traceback" not in node.words, node.words


@pytest.mark.timeout(60 + 20 * ROUNDS)
async def test_no_accepted_batch_is_lost_doubled_or_moved_by_kills(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        await kill_again_and_again(node, full=False)


@pytest.mark.heavy
@pytest.mark.timeout(60 + 20 * ROUNDS)
async def test_no_accepted_batch_is_lost_doubled_or_moved_by_kills_on_a_full_disk(small_disk: Path) -> None:
    with NodeProcess(small_disk) as node:
        await kill_again_and_again(node, full=True)
