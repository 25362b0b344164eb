"""Several endpoints of a real node: one that is silent, refuses, dies in mid-stream or comes back; and nodes
that do not belong together.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import uvloop

from amqp_streams.client import (
    EARLIEST,
    AfterOffset,
    ConnectError,
    ConnectionLostError,
    Event,
    ReceivedEvent,
    RetryPolicy,
    blocking,
    connect,
)
from tests.amqp_streams.client.running import RunningNode

QUICK = RetryPolicy(first_ms=10, wait_max_ms=100)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--auto-create=2").start()
    yield running
    running.stop()


class Relay:
    """An endpoint of a node that can die, hang, and come back on the same port."""

    def __init__(self, node: RunningNode) -> None:
        host, port = node.amqp[0].rsplit(":", 1)
        self._there = host, int(port)
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.hanging = False

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """The connections since it started last."""
        return len(self._writers) // 2

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """Refuse connections, and end those that exist."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._there)
        self._writers += [writer, there_writer]
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._copy(source, sink))
            self._tasks.add(task)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(4096):
                if not self.hanging:
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


@asynccontextmanager
async def relays(node: RunningNode, count: int = 2) -> AsyncIterator[list[Relay]]:
    made = [Relay(node) for _ in range(count)]
    for relay in made:
        await relay.start()
    try:
        yield made
    finally:
        for relay in made:
            await relay.die()


@pytest.fixture
def silent() -> Iterator[str]:
    """An endpoint that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"amqp://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def refusing() -> Iterator[str]:
    """An endpoint that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"amqp://127.0.0.1:{bound.getsockname()[1]}"


async def used(relay_list: list[Relay]) -> Relay:
    """The relay through which the client is connected."""
    while True:
        if found := [relay for relay in relay_list if relay.connections]:
            return found[0]
        await asyncio.sleep(0.01)


async def test_a_silent_and_a_refusing_endpoint_hide_no_good_one(
    node: RunningNode, silent: str, refusing: str
) -> None:
    for urls in ([silent, refusing, node.url], f"{silent},{refusing},{node.url}"):
        async with connect(urls, timeout=8.0) as client:
            assert client.address == node.url
            assert (await client.info(f"log-{uuid4().hex}")).partitions


async def test_the_error_of_endpoints_that_do_not_answer_names_each_with_its_reason(
    silent: str, refusing: str
) -> None:
    words = rf"{silent}: no answer within .* s; {refusing}: .*(refused|failed)"
    with pytest.raises(ConnectError, match=words):
        await connect([silent, refusing], timeout=1.0).connect()
    with (
        pytest.raises(ConnectError, match=words),
        blocking.connect(f"{silent},{refusing}", timeout=1.0),
    ):
        pass


async def test_an_endpoint_that_dies_in_mid_stream_loses_and_doubles_nothing(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    async with relays(node) as both, connect([one.url for one in both], retry=QUICK) as client:
        received: list[object] = []
        async with (
            client.producer(log, partition=0, producer_id="p", window=50) as producer,
            client.consumer(log, partition=0, start=EARLIEST, credit=100) as consumer,
        ):

            async def send() -> None:
                for number in range(2000):
                    await producer.post(Event(number))
                    if number in {500, 1000, 1500}:
                        dying = await used(both)
                        await dying.die()
                        await dying.start()
                await producer.flush()

            sending = asyncio.create_task(send())
            while len(received) < 2000:
                received += [event.body for event in await consumer.receive(timeout=60.0)]
            await sending
        assert received == list(range(2000))


async def test_an_endpoint_that_hangs_is_left_after_the_idle_timeout(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    async with (
        relays(node) as both,
        connect([one.url for one in both], retry=QUICK, idle_timeout_ms=1000) as client,
    ):
        async with client.producer(log, producer_id="p") as producer:
            await producer.send(Event(1))
            hanging = await used(both)
            hanging.hanging = True
            await producer.send(Event(2), timeout=60.0)
            assert client.address != hanging.url
        async with client.consumer(log, start=EARLIEST) as consumer:
            bodies: list[object] = []
            while len(bodies) < 2:
                bodies += [event.body for event in await consumer.receive(timeout=60.0)]
            assert {*bodies} == {1, 2}


async def test_when_all_are_dead_and_one_comes_back_the_client_continues(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    async with (
        relays(node, 3) as three,
        connect([one.url for one in three], retry=QUICK) as client,
        client.producer(log) as producer,
        client.consumer(log, start=EARLIEST) as consumer,
    ):
        await producer.send(Event(1))
        assert len(await consumer.receive()) == 1
        left = await used(three)
        for relay in three:
            await relay.die()
        sending = asyncio.create_task(producer.send(Event(2), timeout=60.0))
        back = next(relay for relay in three if relay is not left)
        await back.start()
        await sending
        assert [event.body for event in await consumer.receive(timeout=60.0)] == [2]
        assert client.address == back.url


def test_the_blocking_client_changes_its_endpoint_as_well(node: RunningNode) -> None:
    log = f"log-{uuid4().hex}"
    loop = uvloop.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()

    def on_loop(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    both = [Relay(node), Relay(node)]
    try:
        for relay in both:
            on_loop(relay.start())
        with (
            blocking.connect(",".join(relay.url for relay in both), retry=QUICK) as client,
            client.producer(log, partition=0, producer_id="p") as producer,
            client.consumer(log, partition=0, start=EARLIEST) as consumer,
        ):
            received: list[object] = []
            for begin in range(0, 600, 200):
                producer.post_batch([Event(number) for number in range(begin, begin + 200)])
                dying = on_loop(used(both))
                on_loop(dying.die())
                producer.flush(timeout=60.0)
                on_loop(dying.start())
                while len(received) < begin + 200:
                    received += [event.body for event in consumer.receive(timeout=60.0)]
            assert received == list(range(600))
    finally:
        for relay in both:
            on_loop(relay.die())
        loop.call_soon_threadsafe(loop.stop)
        running.join()


async def test_a_name_with_several_addresses_is_tried_at_each(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One address is silent, the node listens at another."""
    _, port = node.amqp[0].rsplit(":", 1)
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def getaddrinfo(host: Any, *arguments: Any, **more: Any) -> Any:
        if host != "nodes.example":
            return await resolve(host, *arguments, **more)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, int(port))) for ip in ("127.0.0.7", "127.0.0.1")
        ]

    with socket.create_server(("127.0.0.7", int(port))):
        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        for _ in range(3):
            async with connect(f"amqp://nodes.example:{port}", timeout=30.0) as client:
                assert client.address == f"amqp://nodes.example:{port} (127.0.0.1)"


async def test_nodes_with_other_logs_are_refused_and_no_offset_is_continued_there(tmp_path: Path) -> None:
    """Two data directories that have a log of the same name: offset 2 is another event in each."""
    nodes = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        nodes.append(RunningNode(tmp_path / name, "--auto-create=1").start())
    try:
        for running in nodes:
            async with connect(running.url) as client, client.producer("log") as producer:
                await producer.send_many([Event(f"{running.url} {number}") for number in range(9)])
        retry = RetryPolicy(attempts_max=5, first_ms=10)
        async with connect([one.url for one in nodes], retry=retry) as client:
            home = client.address
            consumer = client.consumer("log", start=AfterOffset(2), credit=3)
            await consumer.open()
            first = await consumer.receive(3)
            assert [str(event.body).split()[0] for event in first] == [home] * 3
            next(running for running in nodes if running.url == home).kill()
            events: list[ReceivedEvent] = []

            async def read_on() -> None:
                while True:
                    events.extend(await consumer.receive())

            with pytest.raises(ConnectionLostError, match="has the logs of another store"):
                await read_on()
            assert all(str(event.body).split()[0] == home for event in events)
    finally:
        for running in nodes:
            running.stop()
