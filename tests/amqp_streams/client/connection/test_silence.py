"""A node that opens connections, sends heartbeats, and answers nothing else: with a real node beside it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from amqp_streams.client import EARLIEST, Client, Event, RetryPolicy, TimedOutError, connect
from amqp_streams.client.connection import silence
from tests.amqp_streams.client.running import RunningNode

LIMIT_S = 0.5
QUICK = RetryPolicy(first_ms=10, wait_max_ms=100)
_ANSWERS = frozenset({0x12, 0x13, 0x14, 0x15, 0x16})
"""attach, flow, transfer, disposition, detach (AMQP 2.7)."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node"), "--auto-create=1").start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENT_S_MAX", LIMIT_S)


class Mute:
    """An endpoint of a node that passes no answer on while it is `mute`, but all else."""

    def __init__(self, node: RunningNode) -> None:
        host, port = node.amqp[0].rsplit(":", 1)
        self._there = host, int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.mute = True
        self.url = ""
        self.connections = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Mute"]:
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            for writer in self._writers:
                writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection(*self._there)
        self._writers += [writer, there_writer]
        for copying in (self._requests(reader, there_writer), self._answers(there_reader, writer)):
            task = asyncio.create_task(copying)
            self._tasks.add(task)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
        writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(8)
                # A protocol header has no size.
                if not frame.startswith(b"AMQP"):
                    frame += await reader.readexactly(int.from_bytes(frame[:4]) - 8)
                if not (self.mute and _is_answer(frame)):
                    writer.write(frame)
        except asyncio.IncompleteReadError:
            writer.close()


def _is_answer(frame: bytes) -> bool:
    # Of an AMQP frame without an extended header: the descriptor follows as 0x00 0x53 and its code.
    return frame[5:6] == b"\x00" and frame[8:10] == b"\x00\x53" and frame[10] in _ANSWERS


@asynccontextmanager
async def at(mute: Mute, node: RunningNode) -> AsyncIterator[Client]:
    """A client that is connected to the mute endpoint: the order of endpoints is random."""
    used = None
    while used != mute.url:
        async with connect([mute.url, node.url], retry=QUICK) as client:
            used = client.address
            if used == mute.url:
                yield client


async def test_links_leave_a_node_that_answers_none_of_them(node: RunningNode) -> None:
    async with (
        Mute(node).serving() as mute,
        at(mute, node) as client,
        client.producer("temps", partition=0) as producer,
        client.consumer("temps", partition=0, start=EARLIEST) as consumer,
    ):
        await producer.send(Event("x"))
        assert (await consumer.receive(timeout=60))[0].body == "x"
        assert client.address == node.url


async def test_questions_leave_a_node_that_answers_none_of_them(node: RunningNode) -> None:
    async with Mute(node).serving() as mute:
        async with at(mute, node) as client:
            assert (await client.info("temps")).partitions
            assert client.address == node.url
        async with at(mute, node) as client:
            assert (await client.extents("temps"))["temps"].partitions
            assert client.address == node.url


async def test_a_node_that_falls_silent_is_left_by_the_next_question(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A client must not leave a node that is only slow, because the machine is busy.
    monkeypatch.setattr(silence, "SILENT_S_MAX", 60.0)
    async with Mute(node).serving() as mute:
        mute.mute = False
        async with at(mute, node) as client:
            assert (await client.info("temps")).partitions
            assert (await client.extents("temps"))["temps"].partitions
            assert client.address == mute.url
            mute.mute = True
            wire = client._pool._first._wire
            assert wire is not None
            wire.silent_s = LIMIT_S
            # Its links to `$management` are attached already.
            assert (await client.extents("temps"))["temps"].partitions
            assert client.address == node.url


async def test_a_client_without_another_endpoint_waits(node: RunningNode) -> None:
    async with Mute(node).serving() as mute, connect(mute.url, retry=QUICK) as client:
        await client.connect()
        # On a busy machine, a first attempt may have taken too long.
        attempts = mute.connections
        with pytest.raises(TimedOutError):
            await client.info("temps", timeout=3 * LIMIT_S)
        assert client.connected
        assert mute.connections == attempts
