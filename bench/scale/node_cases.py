"""The node with many links, groups and connections, all at default settings."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqp_streams.client import EARLIEST, LATEST, Client, Consumer, Event, connect
from bench import connections
from bench.scale.probe import Probed, probing
from bench.scale.report import REST_S, Found, Meter, found
from bench.server import Server
from examples.node import NodeProcess

ATTACHING_AT_ONCE: Final = 32
ATTACHED_S_MAX: Final = 300.0
ARRIVED_S_MAX: Final = 300.0
LOG: Final = "events"


@dataclass
class Running:
    """A node with default settings, a client of it, and the meter of its process."""

    node: NodeProcess
    client: Client
    meter: Meter
    probed: Probed


@asynccontextmanager
async def running(folder: Path, partitions: int, rest_s: float) -> AsyncIterator[Running]:
    """Start it with one log in an empty folder, and watch `/readyz` all the while."""
    with NodeProcess(folder, "--admin-listen", "127.0.0.1:0", log=f"{LOG}:{partitions}") as node:
        with probing(node.addresses["admin"][0]) as probed:
            async with connect(node.url, container_id="scale") as client:
                yield Running(node, client, Meter({"node": node.pid}, rest_s), probed)
        if node.stop() != 0:
            message = f"the node did not end well: {node.words[-1000:]}"
            raise RuntimeError(message)


async def many_links(folder: Path, count: int, partitions: int, events: int, rest_s: float = REST_S) -> Found:
    """`count` consumers, each of all `partitions` of one log; then `events` events, each for every
    consumer.
    """
    async with running(folder, partitions, rest_s) as on, AsyncExitStack() as stack:
        began = time.monotonic()
        consumers = [on.client.consumer(LOG, start=LATEST, credit=100) for _ in range(count)]
        await _attached(stack, consumers)
        ready_s = time.monotonic() - began
        events_s = await _arrived(on.client, consumers, events)
        costs = await asyncio.to_thread(on.meter.costs)
    name = f"{count} consumer links on a log of {partitions} partitions"
    return found(
        name,
        ready_s=ready_s,
        events_s=events_s,
        costs=costs,
        probed=on.probed,
        notes={"deliveries": count * events},
    )


async def many_groups(folder: Path, count: int, events: int, rest_s: float = REST_S) -> Found:
    """`count` consumer groups of one log with a member each, whose position the node keeps."""
    async with running(folder, 1, rest_s) as on, AsyncExitStack() as stack:
        began = time.monotonic()
        consumers = [
            on.client.consumer(
                LOG, partition=0, group=f"g{number}", durable=f"c{number}", start=EARLIEST, credit=100
            )
            for number in range(count)
        ]
        await _attached(stack, consumers)
        ready_s = time.monotonic() - began
        events_s = await _arrived(on.client, consumers, events)
        listing = time.monotonic()
        groups = await on.client.management.list_groups(LOG)
        listed_s = time.monotonic() - listing
        if len(groups) != count:
            message = f"the node lists {len(groups)} groups, not {count}"
            raise RuntimeError(message)
        costs = await asyncio.to_thread(on.meter.costs)
    notes = {"deliveries": count * events, "seconds to list them": listed_s}
    return found(
        f"{count} groups of one log",
        ready_s=ready_s,
        events_s=events_s,
        costs=costs,
        probed=on.probed,
        notes=notes,
    )


async def many_connections(folder: Path, count: int, rest_s: float = REST_S) -> Found:
    """`count` connections with two links each, idle; then each sends an event and gets one."""
    async with running(folder, 1, rest_s) as on:
        host_port = on.node.addresses["amqp"][0]
        assert on.node.process is not None
        server = Server(on.node.process, int(host_port.rpartition(":")[2]), on.node.data_dir)
        connections.allow_files(count + connections.SPARE_FILES)
        began = time.monotonic()
        figures = await connections.measure(
            server, count, idle_seconds=max(0.1, rest_s), patience=ARRIVED_S_MAX
        )
        elapsed = time.monotonic() - began
        costs = await asyncio.to_thread(on.meter.costs)
    notes = {
        name: figures[name] for name in ("rss_open_MB", "KiB_per_idle_connection", "cpu_percent_while_idle")
    }
    ready_s = count / figures["opened_per_second"]
    return found(
        f"{count} connections", ready_s=ready_s, events_s=elapsed, costs=costs, probed=on.probed, notes=notes
    )


async def _attached(stack: AsyncExitStack, consumers: Sequence[Consumer]) -> None:
    waiting = iter(consumers)

    async def some() -> None:
        for consumer in waiting:
            await stack.enter_async_context(consumer)

    async with asyncio.timeout(ATTACHED_S_MAX):
        await asyncio.gather(*(some() for _ in range(ATTACHING_AT_ONCE)))


async def _arrived(client: Client, consumers: Sequence[Consumer], events: int) -> float:
    """Send events and read them with all consumers; the seconds.

    Raises:
        TimeoutError: a consumer did not get all of them in time.
    """
    began = time.monotonic()
    async with client.producer(LOG) as producer:
        for number in range(events):
            await producer.send(Event(number))

    async def all_of(consumer: Consumer) -> None:
        missing = set(range(events))
        while missing:
            missing -= {event.body for event in await consumer.receive(events, timeout=ARRIVED_S_MAX)}

    async with asyncio.timeout(ARRIVED_S_MAX):
        await asyncio.gather(*(all_of(consumer) for consumer in consumers))
    return time.monotonic() - began
