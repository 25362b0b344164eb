"""Clients of a node whose store has gaps between offsets: each of them reads all events, and ends."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from amqp_streams import names
from amqp_streams.client import EARLIEST, connect
from amqp_streams.config import Listener, LogSettings, NodeSettings
from amqp_streams.server.run import serve
from amqp_streams.storage.ports import Store
from amqp_streams.testing import MemoryStore, Uneven
from event_formats.amqp_binding import encode
from event_formats.event import CloudEvent
from knative_gateway.engine.event_log import AmqpEventLog
from spark_connector.node import requests
from spark_connector.options.settings import ReadOptions, read_options
from spark_connector.planning.ranges import OffsetRange
from spark_connector.reading import RangesPartition, rows
from spark_connector.rows.schema import chosen

LOG = "temps"
COUNT = 40
PROGRAM = Path(sys.executable).with_name("amqp-streams")


class Served(NamedTuple):
    """A node, and its store."""

    url: str
    store: Store


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A node with one log of one partition. In front of its end are numbers that belong to no event."""
    store = MemoryStore(uneven=Uneven((0, 2, 0, 0, 5)))
    partition = store.create(LOG, LogSettings(), incarnation="i").partitions[0]
    for number in range(0, COUNT, 4):
        messages = [encode(event(each)) for each in range(number, number + 4)]
        partition.append(messages, bytes(4), 1_700_000_000_000 + number)
        store.commit()
    settings = NodeSettings(
        data_dir=Path(tmp_path_factory.mktemp("data")), listen=(Listener(host="127.0.0.1", port=0),)
    )
    addresses: list[str] = []
    ready, stopping = threading.Event(), list[Callable[[], object]]()

    def on_ready(bound: dict[str, list[str]]) -> None:
        addresses.extend(bound["amqp"])
        ready.set()

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        await serve(settings, ready=on_ready, stop=stop, store=store)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(60)
    yield Served(f"amqp://{addresses[0]}", store)
    stopping[0]()
    thread.join(60)
    assert not thread.is_alive()


def event(number: int) -> CloudEvent:
    attributes = {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t"}
    return CloudEvent({**attributes}, b"%d" % number)


def offsets(node: Served) -> list[int]:
    """The offsets of the events."""
    partition = node.store.logs[LOG].partitions[0]
    found: list[int] = []
    at = 0
    while (chunk := partition.read(at, 1)) is not None:
        found.append(chunk.base)
        at = chunk.end
    assert len(found) == COUNT
    assert found[-1] + 1 < partition.end, "the last number belongs to no event"
    return found


async def test_the_client_reads_what_is_retained_and_a_whole_range(node: Served) -> None:
    async with connect(node.url) as client:
        extent = (await client.extents([LOG]))[LOG].partitions[0]
        assert extent.gaps
        assert (await client.info(LOG)).partitions[0].gaps
        async with client.consumer(LOG, start=EARLIEST, settle="none") as consumer:
            received = []
            while events := await consumer.receive_retained(timeout=60):
                received += [each.offset for each in events]
                assert not any(names.EVENTS_SKIPPED in each.delivery_annotations for each in events)
        assert received == offsets(node)
        runs = client.read_range(LOG, 0, extent.earliest, extent.next)
        assert [offset async for run in runs for offset in run.offsets] == offsets(node)


def test_the_command_prints_all_events_and_ends(node: Served) -> None:
    command = [str(PROGRAM), "receive", LOG, "--url", node.url, "--format", "body"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(number) for number in range(COUNT)]


async def test_the_gateway_reads_all_events_and_knows_which_are_stored(node: Served) -> None:
    async with AmqpEventLog(node.url) as logs:
        await logs.wait_connected(60)
        read = []
        async with asyncio.timeout(60):
            async for stored in logs.read(LOG, {0: None}):
                read += [int(each.offset) for each in stored]
                if len(read) >= COUNT:
                    break
        assert read == offsets(node)


def options(node: Served, **given: str) -> ReadOptions:
    return read_options({"endpoint": node.url, "stream": LOG, **given}, streaming=False)


@pytest.mark.parametrize("columns", ["offset,body", "offset"])
def test_spark_reads_all_events_and_reports_no_loss(node: Served, columns: str) -> None:
    given = options(node)
    held = requests.available(given.connection, [LOG])[LOG].partitions[0]
    wanted = OffsetRange(LOG, 0, held.earliest, held.next, "i")
    found = [
        row["offset"]
        for batch in rows(given, chosen({"columns": columns}), RangesPartition((wanted,)))
        for row in batch.to_pylist()
    ]
    assert found == offsets(node)
