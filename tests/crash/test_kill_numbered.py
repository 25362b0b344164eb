"""kill -9 of the node at random moments while numbered events are sent repeatedly: each event is stored once,
and in order.

A meter numbers its events itself and keeps its client through all kills. A task sends batches under its own
numbers, with clients that also end at random moments, and repeats each batch until all of it is accepted.

`make crash` runs ROUNDS=50 kills, from a seed that it prints.
"""

import asyncio
import os
import random
import time
from pathlib import Path

from amqp_streams.client import EARLIEST, Client, Event, RetryPolicy, connect
from amqp_streams.client.aio import Producer
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.storage.inspect import Verified, verify
from amqp_streams.streams.routing import partition_of_key
from examples.node import NodeProcess

PARTITIONS = 3
BATCH = 150
KEYS = ["north", "south", "east", "west"]
ROUNDS = int(os.environ.get("CRASH_ROUNDS") or 2)
SEED = int(
    os.environ.get("CRASH_SEED") or (1 if "CRASH_ROUNDS" not in os.environ else time.time_ns() % 1_000_000)
)
PATIENT = RetryPolicy(first_ms=10, wait_max_ms=100, attempts_max=10_000)


class World:
    """A node that is killed, and two producers that do not mind."""

    def __init__(self, folder: Path) -> None:
        self.rng = random.Random(SEED)
        self.node = NodeProcess(folder, log=f"crash:{PARTITIONS}")
        self.connected = asyncio.Event()
        self.over = False
        self.metered = 0
        self.batches = 0

    async def meter(self) -> None:
        """Sends events one after another, some together, while nodes are killed. It continues by itself."""
        async with (
            connect(self.node.url, retry=PATIENT) as client,
            client.producer("crash", producer_id="meter", window=300) as producer,
        ):
            self.connected.set()
            while not self.over:
                count = self.rng.choice([1, 5, 60])
                await producer.post_batch(
                    [Event(self.metered + number) for number in range(count)], partition=0, timeout=None
                )
                self.metered += count
                await asyncio.sleep(0.001)
            await producer.flush(timeout=60)

    async def task(self) -> None:
        """Send batches under its own numbers, each until it succeeds. An attempt may end at any moment."""
        while not self.over:
            while not await self._try(self.batches):
                pass
            self.batches += 1

    async def _try(self, batch: int) -> bool:
        try:
            async with (
                connect(self.node.url, retry=PATIENT) as client,
                client.producer("crash", producer_id="query/0") as producer,
            ):
                sending = asyncio.create_task(self._send(producer, batch))
                if self.rng.random() < 0.5:
                    await asyncio.wait([sending], timeout=self.rng.uniform(0, 0.05))
                    if not sending.done():
                        sending.cancel()
                        await asyncio.wait([sending])
                        return False
                return await sending
        except AmqpStreamsError:
            return False

    async def _send(self, producer: Producer, batch: int) -> bool:
        events = [Event(batch * BATCH + row, key=KEYS[row % len(KEYS)]) for row in range(BATCH)]
        await producer.post_batch(events, sequence=batch << 32, timeout=60)
        await producer.flush(timeout=60)
        return True

    async def run(self) -> None:
        """Kill and start until it is enough; then everybody ends in peace."""
        senders = [asyncio.create_task(self.meter()), asyncio.create_task(self.task())]
        # The meter continues after a loss of its connection; its first attempt to connect must succeed.
        await self.connected.wait()
        for _ in range(ROUNDS):
            await asyncio.sleep(self.rng.uniform(0.05, 0.4))
            self.node.kill()
            await asyncio.to_thread(self.node.start)
        await asyncio.sleep(0.2)
        self.over = True
        await asyncio.gather(*senders)

    async def stored(self) -> list[list[tuple[object, str | None]]]:
        """Body and key of every event, by partition."""
        async with connect(self.node.url) as client:
            return [await self._partition(client, partition) for partition in range(PARTITIONS)]

    async def _partition(self, client: Client, partition: int) -> list[tuple[object, str | None]]:
        found: list[tuple[object, str | None]] = []
        async with client.consumer("crash", partition=partition, start=EARLIEST) as consumer:
            while batch := await consumer.receive_retained(1000, 60.0):
                found += [(event.body, event.key) for event in batch]
        return found


def test_every_numbered_event_is_stored_once_and_in_order_whichever_process_is_killed(tmp_path: Path) -> None:
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    world = World(tmp_path)
    with world.node:
        asyncio.run(world.run())
        found = asyncio.run(world.stored())
    assert world.batches > 0
    rows = [
        (batch * BATCH + row, KEYS[row % len(KEYS)]) for batch in range(world.batches) for row in range(BATCH)
    ]
    assert [body for body, key in found[0] if key is None] == list(range(world.metered))
    for partition in range(PARTITIONS):
        expected = [row for row in rows if partition_of_key(row[1], PARTITIONS) == partition]
        assert [row for row in found[partition] if row[1] is not None] == expected
    counts = Verified()
    assert not [
        finding for finding in verify(world.node.data_dir, counts=counts) if finding.severity.name == "DAMAGE"
    ]
    assert counts.producers >= 2
    print(f"{world.metered} metered, {world.batches} batches")
