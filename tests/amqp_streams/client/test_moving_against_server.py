"""Against real nodes: containers that send links on to each other, and connections that only one side knows
to be dead.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from amqp_streams.client import (
    EARLIEST,
    Consumer,
    Event,
    OwnershipLostError,
    ReceivedEvent,
    RedirectError,
    connect,
)
from tests.amqp_streams.client.running import RunningNode
from tests.amqp_streams.client.test_groups_against_server import QUICK, drain, fresh, until

LOG = "spread"
REDIRECT = """
[[redirect]]
log = "spread"
partitions = [1]
host = "{host}"
port = {port}
"""


class Cable:
    """A connection to a node that can be cut so that only the client notices. The node gets no more bytes,
    and waits.
    """

    def __init__(self, address: str) -> None:
        self._host, port = address.rsplit(":", 1)
        self._port = int(port)
        self._ends: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        self._ends += [writer, there_writer]
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._tasks.add(task)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            sink.write(data)

    def cut(self) -> None:
        """The client's side ends, the node's stays open and silent."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        for writer in self._ends[::2]:
            writer.transport.abort()

    @asynccontextmanager
    async def laid(self) -> AsyncIterator["Cable"]:
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for writer in self._ends:
                writer.transport.abort()
            await server.wait_closed()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningNode, RunningNode]]:
    """Partition 1 of the log is at the second; the first knows that."""
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    second = RunningNode(folders[1], f"--log={LOG}:2").start()
    host, port = second.amqp[0].rsplit(":", 1)
    config = folders[0] / "node.toml"
    config.write_text(REDIRECT.format(host=host, port=port))
    first = RunningNode(folders[0], f"--log={LOG}:2", f"--config={config}").start()
    yield first, second
    first.stop()
    second.stop()


async def test_a_producer_and_a_consumer_of_a_partition_are_sent_where_it_is(
    nodes: tuple[RunningNode, RunningNode],
) -> None:
    home, other = nodes
    async with connect(home.url) as client, client.producer(LOG, partition=1) as producer:
        await producer.post_batch([Event(number) for number in range(10)])
        await producer.flush()
        async with client.consumer(LOG, partition=1, start=EARLIEST) as consumer:
            assert [event.body for event in await consumer.receive_retained()] == list(range(10))
    async with connect(other.url) as there, connect(home.url) as here:
        assert [entry.event_count for entry in (await there.info(LOG)).partitions] == [0, 10]
        async with (
            here.consumer(LOG, start=EARLIEST) as consumer,
            here.producer(LOG, partition=0) as producer,
        ):
            await producer.send(Event("here"))
            assert [event.body for event in await consumer.receive()] == ["here"]
            assert consumer.partitions == ("0",)
    async with connect(home.url, redirects_max=0) as client:
        with pytest.raises(RedirectError, match="not followed"):
            async with client.consumer(LOG, partition=1):
                pass


async def test_a_returning_client_is_not_locked_out_by_its_own_dead_connection(
    nodes: tuple[RunningNode, RunningNode],
) -> None:
    """An owner, a durable subscriber and a member of a group: the node gives them what the connection has
    that the node still considers open.
    """
    _, node = nodes
    async with connect(node.url) as admin, Cable(node.amqp[0]).laid() as cable:
        log = await fresh(admin, 2, events=10)
        container = uuid4().hex
        async with (
            connect(cable.url, retry=QUICK, container_id=container) as client,
            client.consumer(log, partition=0, group="owned", epoch=3, start=EARLIEST) as owner,
            client.consumer(log, durable="sub", start=EARLIEST, settle="manual") as durable,
            client.group_consumer(log, "shared") as member,
        ):
            assert len(await owner.receive(4)) == 4
            kept = await _some(durable, 20)
            durable.settle(kept[:1])
            await drain(member, 20)
            await client.info(log)  # answered after the settlement was heard of
            cable.cut()
            assert [event.body for event in await owner.receive(timeout=60)] == list(range(4, 10))
            assert owner.epoch == 3
            again = await _some(durable, 19)
            assert sorted((event.partition, event.offset) for event in again) == sorted(
                (event.partition, event.offset) for event in kept[1:]
            )
            await until(lambda: member.partitions == ("0", "1"))


async def _some(consumer: Consumer, count: int) -> list[ReceivedEvent]:
    events: list[ReceivedEvent] = []
    async with asyncio.timeout(60):
        while len(events) < count:
            events += await consumer.receive(count - len(events))
    return events


async def test_a_member_of_a_group_gives_way_to_an_epoch_and_gets_the_partition_back(
    nodes: tuple[RunningNode, RunningNode],
) -> None:
    _, node = nodes
    async with connect(node.url, retry=QUICK) as one, connect(node.url) as other:
        log = await fresh(one, 2, events=5)
        async with one.group_consumer(log, "g") as member:
            await drain(member, 10)
            async with other.consumer(log, partition=0, group="g", epoch=9, durable="g") as owner:
                assert owner.epoch == 9
                await until(lambda: member.partitions == ("1",))
                with pytest.raises(OwnershipLostError):
                    async with one.consumer(log, partition=0, group="g", epoch=10, durable="g"):
                        await owner.receive()
            await until(lambda: member.partitions == ("0", "1"))
