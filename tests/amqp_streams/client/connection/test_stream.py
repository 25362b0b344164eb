"""Byte streams over the loopback: TCP and WebSocket have one face. (TLS: test_against_server.)"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from amqp_streams.client.connection import stream
from amqp_streams.client.connection.stream import WRITE_BYTES_MAX, open_stream
from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.errors import ConnectError

BOTH_LOOPS = True


class Heard:
    """A listener that records what it receives."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.came = asyncio.Event()
        self.emptied = asyncio.Event()
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def received(self, data: memoryview) -> None:
        self.data += data
        self.came.set()

    def writable(self) -> None:
        self.emptied.set()

    def lost(self, error: Exception | None) -> None:
        self.ended.set_result(error)

    async def until(self, size: int) -> bytes:
        """The received bytes, when they are at least `size`."""
        async with asyncio.timeout(60):
            while len(self.data) < size:
                self.came.clear()
                await self.came.wait()
        return bytes(self.data)


@asynccontextmanager
async def tcp(
    serve_one: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Address]:
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
    async with server:
        yield Address("amqp", "127.0.0.1", server.sockets[0].getsockname()[1])


@asynccontextmanager
async def websocket(
    serve_one: Callable[[ServerConnection], Awaitable[None]], subprotocol: str | None = "amqp"
) -> AsyncIterator[Address]:
    offered = [Subprotocol(subprotocol)] if subprotocol else None
    async with serve(serve_one, "127.0.0.1", 0, subprotocols=offered) as server:
        yield Address("ws", "127.0.0.1", next(iter(server.sockets)).getsockname()[1], "/amqp")


async def echo_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def echo_websocket(connection: ServerConnection) -> None:
    async for message in connection:
        assert isinstance(message, bytes)
        await connection.send([message[: len(message) // 2], message[len(message) // 2 :]])


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
async def test_written_bytes_come_back_over_tcp(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with tcp(echo_tcp) as address:
        heard = Heard()
        stream = await open_stream(address, None, heard)
        stream.write(data)
        assert await heard.until(size) == data
        stream.close()
        assert await heard.ended is None
        stream.write(b"ignored")
        stream.close()
        stream.abort()


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
async def test_written_bytes_come_back_over_a_websocket_in_fragments(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with websocket(echo_websocket) as address:
        heard = Heard()
        stream = await open_stream(address, None, heard)
        for at in range(0, size, 500_000):
            stream.write(data[at : at + 500_000])
        assert await heard.until(size) == data
        stream.close()
        await heard.ended
        stream.write(b"ignored")
        stream.close()


async def test_a_peer_that_does_not_read_fills_the_stream_and_empties_it_again() -> None:
    go_on = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        await echo_tcp(reader, writer)

    async with tcp(slow) as address:
        heard = Heard()
        stream = await open_stream(address, None, heard)
        written = 0
        while not stream.full:
            stream.write(bytes(WRITE_BYTES_MAX))
            written += WRITE_BYTES_MAX
            assert written < 100 * WRITE_BYTES_MAX
        go_on.set()
        async with asyncio.timeout(60):
            await heard.emptied.wait()
        assert not stream.full
        stream.abort()
        await heard.ended


async def test_a_peer_that_closes_is_reported_once() -> None:
    async def close_tcp(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def close_websocket(connection: ServerConnection) -> None:
        await connection.close()

    async with tcp(close_tcp) as plain, websocket(close_websocket) as upgraded, asyncio.timeout(60):
        for address in (plain, upgraded):
            heard = Heard()
            await open_stream(address, None, heard)
            await heard.ended


async def test_a_connect_error_without_a_listener_names_the_address() -> None:
    async with tcp(echo_tcp) as address:
        pass
    with pytest.raises(ConnectError, match=str(address)):
        await open_stream(address, None, Heard())


async def test_a_websocket_that_does_not_speak_amqp_is_a_connect_error() -> None:
    async with websocket(echo_websocket, subprotocol=None) as address:
        with pytest.raises(ConnectError, match="sub-protocol amqp"):
            await open_stream(address, None, Heard())


async def test_an_answer_that_is_not_a_websocket_is_a_connect_error() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def vanish(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    for peer, words in ((refuse, "404"), (vanish, "ws://")):
        async with tcp(peer) as address:
            with pytest.raises(ConnectError, match=words):
                await open_stream(Address("ws", address.host, address.port), None, Heard())


async def test_giving_up_leaves_no_connection_behind() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        gone.set()
        writer.close()

    async with tcp(mute) as address, asyncio.timeout(60):
        opening = asyncio.create_task(open_stream(Address("ws", address.host, address.port), None, Heard()))
        await asked.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await gone.wait()


async def test_a_peer_that_sends_pings_and_reads_no_answers_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "_ANSWER_BYTES_MAX", 10_000)
    monkeypatch.setattr(stream, "WRITE_BYTES_MAX", 10_000)

    async def ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol(subprotocols=[Subprotocol("amqp")])
        protocol.receive_data(await reader.readuntil(b"\r\n\r\n"))
        [request] = protocol.events_received()
        assert isinstance(request, Request)
        protocol.send_response(protocol.accept(request))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            while True:
                for number in range(500):
                    protocol.send_ping(b"%0125d" % number)
                writer.writelines(protocol.data_to_send())
                await writer.drain()

    async with tcp(ping) as address:
        heard = Heard()
        await open_stream(replace(address, scheme="ws", path="/amqp"), None, heard)
        async with asyncio.timeout(60):
            await heard.ended
