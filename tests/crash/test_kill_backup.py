"""Backups of a node under load, while the node and the backups are killed at random moments.

Invariants: each complete backup has every event that was accepted before its command began, once, at its
offset, and nothing that was not sent. Damage is found neither in the folder nor in what was restored. A
producer with numbers continues against the restored node without a second copy of an event. No position of a
cursor is beyond the restored events.

`make crash` runs ROUNDS=50, from a seed that it prints.
"""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from amqp_streams.client import Event, ReceivedEvent, RetryPolicy, connect
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.storage import inspect
from amqp_streams.streams.routing import partition_of_key
from examples.node import NodeProcess

LOG = "crash"
PARTITIONS = 3
BATCH = 40
KEYS = ["north", "south", "east", "west"]
ROUNDS = int(os.environ.get("CRASH_ROUNDS") or 3)
SEED = int(
    os.environ.get("CRASH_SEED") or (1 if "CRASH_ROUNDS" not in os.environ else time.time_ns() % 1_000_000)
)
PATIENT = RetryPolicy(first_ms=10, wait_max_ms=100, attempts_max=10_000)
PROGRAM = str(Path(sys.executable).parent / "amqp-streams")


class World:
    """A node with a producer that continues through kills, a group that settles, and a backup folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rng = random.Random(SEED)
        self.node = NodeProcess(folder)
        self.backups = folder / "backups"
        self.accepted = 0
        """How many batches are accepted."""
        self.over = False
        self.killed = self.complete = 0
        self.last = ""
        """The name of the last complete backup."""

    async def produce(self) -> None:
        """Send batches under their numbers, each until it is accepted."""
        while not self.over:
            while not await send(self.node, self.accepted):
                pass
            self.accepted += 1

    async def consume(self) -> None:
        """Settle events in a group, so that its cursor moves."""
        while not self.over:
            try:
                async with (
                    connect(self.node.url, retry=PATIENT) as client,
                    client.group_consumer(LOG, "readers", settle="manual") as member,
                ):
                    while not self.over:
                        member.settle(await member.receive(500, timeout=0.2))
            except AmqpStreamsError:
                await asyncio.sleep(0.02)

    async def back_up(self) -> None:
        """Back up, perhaps with a kill of the command or of the node. A complete backup is restored."""
        accepted, fate = self.accepted, self.rng.choice(["whole", "command", "node", "node"])
        rate = self.rng.choice(["400KiB", "4MiB", "unlimited"])
        words = ["backup", "create", str(self.backups), "--data-dir", str(self.node.data_dir)]
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *words,
            "--rate",
            rate,
            "--keep",
            "3",
            "--json",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        await asyncio.sleep(self.rng.uniform(0.0, 0.4))
        if fate == "node":
            self.node.kill()
            await asyncio.to_thread(self.node.start)
        elif fate == "command" and process.returncode is None:
            process.kill()
        out, errors = await process.communicate()
        if process.returncode == -9:
            self.killed += 1
            return
        assert process.returncode == 0, (out, errors)
        self.complete += 1
        self.last = json.loads(out)["name"]
        await asyncio.to_thread(self.check, accepted)

    def check(self, accepted: int) -> None:
        """Restore the last backup, and compare it with what was accepted before it began."""
        target = self.folder / f"restored-{self.last}"
        run("restore", str(self.backups), str(target), "--backup", self.last)
        run("verify", str(target))
        ends = [len(rows(target, partition)) for partition in range(PARTITIONS)]
        for partition in range(PARTITIONS):
            found = rows(target, partition)
            assert found == expected(self.accepted + 1, partition)[: len(found)]
            assert len(found) >= len(expected(accepted, partition)), "accepted events are missing"
        for key, value in inspect.dump_states(target).items():
            if key.startswith("cursor/"):
                positions = json.loads(value)["next"]
                assert all(position <= ends[int(partition)] for partition, position in positions.items())
        shutil.rmtree(target)

    async def run(self) -> None:
        """Back up until it is enough."""
        async with connect(self.node.url) as client:
            await client.management.create_log(LOG, partitions=PARTITIONS, segment_bytes=64 << 10)
        work = [asyncio.create_task(self.produce()), asyncio.create_task(self.consume())]
        for number in range(ROUNDS):
            await asyncio.sleep(self.rng.uniform(0.05, 0.3))
            await self.back_up()
            print(f"round {number}: {self.accepted} batches, {self.complete} backups, {self.killed} killed")
        self.over = True
        await asyncio.gather(*work)


async def send(node: NodeProcess, *batches: int) -> bool:
    """Send batches under their numbers; returns whether all are accepted."""
    try:
        async with (
            connect(node.url, retry=PATIENT) as client,
            client.producer(LOG, producer_id="query") as producer,
        ):
            for batch in batches:
                rows = range(batch * BATCH, (batch + 1) * BATCH)
                events = [Event(row, key=KEYS[row % len(KEYS)]) for row in rows]
                await producer.post_batch(events, sequence=batch << 32, timeout=60)
            await producer.flush(timeout=60)
            return True
    except AmqpStreamsError:
        return False


def expected(batches: int, partition: int) -> list[int]:
    return [
        row
        for row in range(batches * BATCH)
        if partition_of_key(KEYS[row % len(KEYS)], PARTITIONS) == partition
    ]


def rows(path: Path, partition: int) -> list[object]:
    """The bodies of the events of a partition, in order; their offsets have no gap."""
    found: list[object] = []
    for record in inspect.dump(path, LOG, partition=partition):
        assert record.number == len(found)
        found.append(ReceivedEvent(record.message).body)
    return found


def run(*words: str) -> str:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def test_each_complete_backup_has_what_was_accepted_whatever_is_killed(tmp_path: Path) -> None:
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    world = World(tmp_path / "node")
    with world.node:
        asyncio.run(world.run())
        # The last one is not killed, so that there is one to continue from.
        run("backup", "create", str(world.backups), "--data-dir", str(world.node.data_dir), "--name", "last")
        accepted = world.accepted
        assert world.node.stop() == 0
    assert json.loads(run("backup", "verify", str(world.backups), "--json"))["ok"]
    name = world.last or "last"
    continued = NodeProcess(tmp_path / "continued")
    run("restore", str(world.backups), str(continued.data_dir), "--backup", name)
    with continued:
        # All batches again, as a program that does not know which ones were accepted.
        assert asyncio.run(send(continued, *range(accepted + 2)))
        assert continued.stop() == 0
    for partition in range(PARTITIONS):
        assert rows(continued.data_dir, partition) == expected(accepted + 2, partition)
    assert accepted > ROUNDS, "the kills came before anything happened"
