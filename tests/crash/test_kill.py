"""kill -9 at random moments with hundreds of events in flight, repeatedly on the same data.

Invariants: an event that was accepted, or seen by a reader, is stored permanently, once, at one offset, with
its content. The events of each link keep their order in each partition. An event that was sent once and not
accepted is stored at most once.

`make crash` runs ROUNDS=50 from a seed that it prints. `SEED=n` repeats the same moments.
"""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amqp_streams.client import (
    EARLIEST,
    NO_RETRY,
    AfterOffset,
    Client,
    Event,
    Pending,
    ReceivedEvent,
    connect,
)
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.streams.routing import partition_of_key
from examples.node import NodeProcess

LOG = "crash"
PARTITIONS = 4
WINDOW = 200
CLIENTS = 3
EVENTS_MAX = 1500
"""Sent by one link in one round, at most."""
ACCEPTED_MIN = 100
"""Events that are accepted in one round before the kill."""
WHOLE_EVERY = 10
"""Rounds between two readings of the whole log. The other rounds read new events only; the last round reads
everything.
"""

ROUNDS = int(os.environ.get("CRASH_ROUNDS") or 4)
SEED = int(
    os.environ.get("CRASH_SEED") or (1 if "CRASH_ROUNDS" not in os.environ else time.time_ns() % 1_000_000)
)

Position = tuple[str, int]
"""Partition, offset."""


@dataclass
class Link:
    """One producer in one round: its events, in order, and the outcomes that it learned."""

    name: str
    partition: int | None = None
    key: str | None = None
    sent: list[bytes] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    accepted: set[bytes] = field(default_factory=set)

    @property
    def home(self) -> int | None:
        """The partition of all its events; None: the events are distributed."""
        return partition_of_key(self.key, PARTITIONS) if self.key is not None else self.partition

    def next_body(self) -> bytes:
        """Unique, of many sizes; now and then too large for one frame."""
        number = len(self.sent)
        size = 300_000 if number % 401 == 400 else number * 37 % 900
        return f"{self.name}.{number:06d}.".encode() + b"x" * size


@dataclass
class History:
    """What the other processes have learned so far."""

    sent: set[bytes] = field(default_factory=set)
    accepted: set[bytes] = field(default_factory=set)
    seen: dict[Position, bytes] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """The latest offset that was checked, by partition."""

    def note(self, events: list[ReceivedEvent]) -> None:
        """Someone read these: they may never change."""
        for event in events:
            position = _position(event)
            body = event.body
            assert isinstance(body, bytes)
            assert self.seen.setdefault(position, body) == body, (
                f"{position} had {self.seen[position][:40]!r}, now has {body[:40]!r}"
            )


async def produce(client: Client, link: Link) -> None:
    """Send until the node ends, with as many events in flight as the window allows."""
    try:
        async with client.producer(LOG, partition=link.partition, window=WINDOW) as producer:
            while len(link.sent) < EVENTS_MAX:
                body = link.next_body()
                link.pending.append(await producer.post(Event(body, key=link.key)))
                link.sent.append(body)
            await asyncio.Event().wait()
    except AmqpStreamsError:
        pass
    finally:
        for body, pending in zip(link.sent, link.pending, strict=False):
            if pending.done and await _was_accepted(pending):
                link.accepted.add(body)


async def _was_accepted(pending: Pending) -> bool:
    try:
        await pending
    except AmqpStreamsError:
        return False
    return True


async def watch(client: Client, history: History) -> None:
    """Read new events as they arrive, until the node ends."""
    try:
        async with client.consumer(LOG) as consumer:
            while True:
                history.note(await consumer.receive())
    except AmqpStreamsError:
        pass


async def under_way(links: list[Link]) -> None:
    """Wait until enough events are accepted, and more are in flight."""
    async with asyncio.timeout(60):
        # No event reports it.
        while sum(_leading(link) for link in links) <= ACCEPTED_MIN:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def _leading(link: Link) -> int:
    """How many of the first events have an outcome."""
    return sum(1 for _ in itertools.takewhile(lambda pending: pending.done, link.pending))


async def one_round(node: NodeProcess, number: int, chance: random.Random, history: History) -> list[Link]:
    """Many links send, readers read, and then it is dark."""
    links = [
        link
        for index in range(CLIENTS)
        for link in (
            Link(f"{number}.bound{index}", partition=index),
            Link(f"{number}.keyed{index}", key=f"key {number} {index}"),
            Link(f"{number}.dealt{index}"),
        )
    ]
    clients = [connect(node.url, retry=NO_RETRY) for _ in range(CLIENTS)]
    for client in clients:
        await client.connect()
    tasks = [asyncio.create_task(produce(clients[index % CLIENTS], link)) for index, link in enumerate(links)]
    tasks += [asyncio.create_task(watch(client, history)) for client in clients[:2]]
    await under_way(links)
    await asyncio.sleep(chance.uniform(0, 0.15))
    if chance.random() < 0.3:  # a pause of the machine, then the end
        os.kill(node.pid, signal.SIGSTOP)
        await asyncio.sleep(0.05)
        os.kill(node.pid, signal.SIGCONT)
        await asyncio.sleep(chance.uniform(0, 0.02))
    node.kill()
    await asyncio.gather(*tasks)
    for client in clients:
        await client.close()
    for link in links:
        history.sent.update(link.sent)
        history.accepted.update(link.accepted)
    return links


async def read(node: NodeProcess, after: dict[str, int]) -> list[ReceivedEvent]:
    """The present log, each partition in its order, after the given offsets."""
    events: list[ReceivedEvent] = []
    async with connect(node.url) as client:
        info = await client.info(LOG)
        for one in info.partitions:
            last = after.get(one.partition)
            if one.latest_offset is None or one.latest_offset == last:
                continue
            start = EARLIEST if last is None else AfterOffset(last)
            async with client.consumer(LOG, partition=one.partition, start=start) as consumer:
                while not events or (events[-1].partition, events[-1].offset) != (
                    one.partition,
                    one.latest_offset,
                ):
                    batch = await consumer.receive(2000, timeout=60)
                    assert batch, f"partition {one.partition} ends before {one.latest_offset}"
                    events += batch
    return events


def _position(event: ReceivedEvent) -> Position:
    assert event.partition is not None
    assert event.offset is not None
    return event.partition, event.offset


def check(events: list[ReceivedEvent], links: list[Link], history: History) -> None:
    """Compare the new events of the log with the outcomes. `history` has the events that were read before."""
    new = {_position(event) for event in events}
    for position in history.seen.keys() - new:
        assert position[1] <= history.ends.get(position[0], -1), f"{position} was seen and is gone"
    history.note(events)
    for partition in range(PARTITIONS):
        offsets = [event.offset for event in events if event.partition == str(partition)]
        first = history.ends.get(str(partition), -1) + 1
        assert offsets == list(range(first, first + len(offsets))), "offsets leave gaps or go back"
        if offsets:
            history.ends[str(partition)] = first + len(offsets) - 1
    stored = set(history.seen.values())
    assert len(stored) == len(history.seen), "an event is stored twice"
    assert not history.accepted - stored, f"{len(history.accepted - stored)} accepted events are lost"
    assert not stored - history.sent, "events that nobody sent"
    for link in links:
        check_link(link, events)


def check_link(link: Link, events: list[ReceivedEvent]) -> None:
    """Its events are in the order of sending; where all have one partition, no earlier one is missing."""
    numbers = {body: number for number, body in enumerate(link.sent)}
    for partition in range(PARTITIONS):
        stored = [
            numbers[event.body]
            for event in events
            if event.partition == str(partition) and event.body in numbers
        ]
        assert stored == sorted(stored), f"{link.name} is out of order in partition {partition}: {stored}"
        if link.home == partition:
            assert stored == list(range(len(stored))), f"{link.name} has a gap"
        elif link.home is not None:
            assert not stored, f"{link.name} belongs to partition {link.home}, not {partition}"


def restart(node: NodeProcess, chance: random.Random) -> int:
    """Start it, sometimes in another sync mode, sometimes killing it once or twice while it recovers; how
    often.
    """
    # A killed process takes nothing with it that was written, synced or not.
    node.options[:] = ["--sync", chance.choice(("always", "always", "interval:20", "never"))]
    again = chance.choice((0, 0, 1, 2))
    for _ in range(again):
        node.launch()
        time.sleep(chance.uniform(0.2, 0.9))
        node.kill()
    node.start()
    return again


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path) as running:
        yield running


@pytest.mark.timeout(60 + 20 * ROUNDS)
async def test_nothing_accepted_is_lost_doubled_or_moved_by_kills(node: NodeProcess) -> None:
    """Small segments, so that kills meet rolling as well."""
    print(f"\nseed {SEED}, {ROUNDS} rounds")
    chance, history = random.Random(SEED), History()
    async with connect(node.url) as client:
        await client.management.create_log(LOG, partitions=PARTITIONS, segment_bytes=64 << 10)
    for number in range(ROUNDS):
        mode = tuple(node.options)
        links = await one_round(node, number, chance, history)
        again = await asyncio.to_thread(restart, node, chance)
        whole = number % WHOLE_EVERY == WHOLE_EVERY - 1 or number == ROUNDS - 1
        if whole:
            history.ends.clear()
        events = await read(node, history.ends)
        sent, accepted = sum(len(link.sent) for link in links), sum(len(link.accepted) for link in links)
        print(
            f"round {number}: {' '.join(mode)} {sent} sent, {accepted} accepted, {sent - accepted} in flight;"
            f" killed {again} times in recovery; {len(events)} read{' from the earliest on' if whole else ''}"
        )
        check(events, links, history)
    assert len(history.accepted) > ACCEPTED_MIN * ROUNDS, "the kills came before anything happened"
    assert len(history.sent) - len(history.accepted) > 50 * ROUNDS, "nothing was in flight"
    assert node.stop() == 0, node.words
    assert "Traceback" not in node.words, node.words
    verify = [str(Path(sys.executable).parent / "amqp-streams"), "verify", str(node.data_dir)]
    verified = await asyncio.to_thread(
        subprocess.run, verify, capture_output=True, text=True, timeout=60, check=False
    )
    assert verified.returncode == 0, verified.stdout
