"""Three nodes on Kafka are restarted one after the other, while groups and subscriptions are read and events
are sent all the time.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pytest

from amqp_streams.client import Client, ConnectionLostError, Event, LinkError, connect
from amqp_streams.client.received import ReceivedEvent
from examples.node import NodeProcess
from tests.acceptance.kafka_nodes import LOG, start

__all__ = ["start"]

StartNode = Callable[..., NodeProcess]
Tasks = list["asyncio.Task[None]"]
GROUPS = ("one", "two")
SUBSCRIPTIONS = ("first", "second")
SEND_S = 0.02
WAIT_S = 90.0


@dataclass(eq=False)
class Stint:
    """A member has a partition. `at_s`: when it received each event first."""

    at_s: dict[int, float] = field(default_factory=dict)


@dataclass
class Seen:
    """What the clients saw. All times are of one clock, and events have numbers."""

    sent_s: dict[int, float] = field(default_factory=dict)
    """When the sending of each accepted event began."""
    stints: dict[tuple[str, str], list[Stint]] = field(default_factory=lambda: defaultdict(list))
    """By group and partition, in the order of the assignments."""
    received: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By group and subscription."""
    last_s: dict[str, float] = field(default_factory=dict)
    longest_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The longest time without an event."""

    def note(self, reader: str, number: int) -> None:
        now = time.monotonic()
        self.received[reader].add(number)
        self.longest_s[reader] = max(self.longest_s[reader], now - self.last_s.get(reader, now))
        self.last_s[reader] = now

    def has_all(self) -> bool:
        """Whether each reader got every event: no cursor was ahead of what was read."""
        return all(self.sent_s.keys() <= self.received[each] for each in (*GROUPS, *SUBSCRIPTIONS))

    def overlaps(self) -> list[str]:
        """Events that an owner got although they were sent after a later owner had got its first."""
        return [
            f"{slot}: {number}"
            for slot, stints in self.stints.items()
            for position, old in enumerate(stints)
            for new in stints[position + 1 :]
            for number in old.at_s
            if new.at_s and self.sent_s.get(number, 0.0) > min(new.at_s.values())
        ]


async def send(client: Client, seen: Seen, stop: asyncio.Event) -> None:
    async with client.producer(LOG) as producer:
        number = 0
        while not stop.is_set():
            began = time.monotonic()
            await producer.send(Event(b"%d" % number, key=str(number % 7)))
            seen.sent_s[number] = began
            number += 1
            await asyncio.sleep(SEND_S)


async def join(client: Client, seen: Seen, group: str, stop: asyncio.Event) -> None:
    mine: dict[str, Stint] = {}

    def assigned(partition: str) -> None:
        mine[partition] = Stint()
        seen.stints[group, partition].append(mine[partition])

    async with client.group_consumer(LOG, group, on_assigned=assigned, credit=20) as consumer:
        while not stop.is_set():
            for event in await consumer.receive(timeout=0.2):
                number = _number(event)
                assert event.partition is not None
                mine[event.partition].at_s.setdefault(number, time.monotonic())
                seen.note(group, number)


async def subscribe(client: Client, seen: Seen, name: str, stop: asyncio.Event) -> None:
    async with client.consumer(LOG, durable=name, start="earliest", credit=20) as consumer:
        while not stop.is_set():
            for event in await consumer.receive(timeout=0.2):
                seen.note(name, _number(event))


def _number(event: ReceivedEvent) -> int:
    assert isinstance(event.body, bytes)
    return int(event.body)


async def take_over(client: Client, epoch: int) -> None:
    """Own a partition with this epoch, and leave it."""
    async with client.consumer(LOG, partition=0, group="claimed", epoch=epoch, start="earliest"):
        pass


async def until(condition: Callable[[], object], tasks: Tasks) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)


async def restart(node: NodeProcess, seen: Seen, tasks: Tasks) -> None:
    """SIGTERM, and a new process when it has ended, as an upgrade does."""
    process = node.process
    assert process is not None
    process.terminate()
    # While it is away, the other nodes serve everything.
    sent = len(seen.sent_s)
    await until(lambda: process.poll() is not None and len(seen.sent_s) > sent + 20, tasks)
    assert process.poll() == 0
    newest = max(seen.sent_s)
    await until(lambda: all(max(each) >= newest for each in seen.received.values()), tasks)
    node.launch()
    await asyncio.to_thread(node.await_ready)
    # Otherwise the next stop meets a group of nodes that is not settled yet, and takes longer.
    await until(lambda: is_home(node), tasks)


def is_home(node: NodeProcess) -> bool:
    """Whether the node decides about groups."""
    with urlopen(f"http://{node.addresses['admin'][0]}/metrics") as answer:
        return b"amqp_streams_home_buckets{" in answer.read()


async def test_nodes_restart_one_after_the_other_under_load(
    start: StartNode, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 40 + "\n")
    homes = ("--node-listen", "127.0.0.1:0", "--node-secret-file", str(secret))
    options = (*homes, "--admin-listen", "127.0.0.1:0")
    nodes = [await asyncio.to_thread(start, name, *options) for name in ("a", "b", "c")]
    urls, seen = [node.url for node in nodes], Seen()
    stop, enough = asyncio.Event(), asyncio.Event()
    clients = [connect(urls, container_id=f"client {number}") for number in range(8)]
    work = [send(clients[0], seen, enough)]
    work += [join(clients[1 + number], seen, GROUPS[number % 2], stop) for number in range(4)]
    work += [subscribe(clients[5 + number], seen, name, stop) for number, name in enumerate(SUBSCRIPTIONS)]
    tasks: Tasks = [asyncio.create_task(each) for each in work]
    try:
        for client in clients:
            await client.connect()
        await until(lambda: len(seen.received) == 4 and min(map(len, seen.received.values())) > 50, tasks)
        for epoch, node in enumerate(nodes, 2):
            await take_over(clients[7], epoch)
            seen.longest_s.clear()
            began = time.monotonic()
            await restart(node, seen, tasks)
            took = round(time.monotonic() - began, 1)
            pauses = {name: round(longest, 2) for name, longest in seen.longest_s.items()}
            record_property(node.folder.name, {"restart_s": took, "longest_pauses_s": pauses})
            print(f"restart of {node.folder.name}: {took} s, longest pauses {pauses}")
            with pytest.raises(LinkError, match="is lower than a previous one"):
                await take_over(clients[7], epoch - 1)
        enough.set()
        await until(seen.has_all, tasks[1:])
        assert seen.overlaps() == []
    finally:
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            with suppress(ConnectionLostError):
                await client.close()
