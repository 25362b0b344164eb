"""Connections of clients that send or read nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from web_console.http.connections import WAIT_S, Connection

MOST = 8


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once; `/large` with bytes that fill all buffers; `/slow` when the client leaves."""
    if scope["path"] == "/slow":
        while (await receive())["type"] != "http.disconnect":
            pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = b"x" * (64 << 20) if scope["path"] == "/large" else b""
    await send({"type": "http.response.body", "body": body})


class Running:
    """A server, and its clients."""

    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self.server = server
        self.port = port

    async def client(
        self, sent: bytes = b"", host: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        before = set(self.connections)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(host, 0), limit=1024
        )
        writer.write(sent)
        await until(lambda: bool(set(self.connections) - before))
        return reader, writer

    @property
    def connections(self) -> list[Connection]:
        return [each for each in self.server.server_state.connections if isinstance(each, Connection)]

    def look(self, later_s: float) -> None:
        now = asyncio.get_running_loop().time()
        for each in self.connections:
            each.look(now + later_s)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  nothing tells when a server accepts or closes a connection
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application, http=Connection, lifespan="off", log_config=None, limit_concurrency=MOST
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([sock]))
    await until(lambda: server.started)
    try:
        yield Running(server, sock.getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        await serving


def request(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n".encode()


async def test_clients_that_send_nothing_do_not_keep_others_out() -> None:
    async with running() as server:
        silent = [await server.client() for _ in range(3 * MOST)]
        reader, writer = await server.client(request("/"))
        assert b" 200 " in await reader.readline()
        assert len(server.connections) < MOST
        for _, each in [*silent, (reader, writer)]:
            each.close()


async def test_a_request_that_is_answered_does_not_end_for_others() -> None:
    async with running() as server:
        asked = [await server.client(request("/slow")) for _ in range(3)]
        await until(lambda: sum(not each.waits for each in server.connections) == 3)
        others = [await server.client() for _ in range(2 * MOST)]
        assert sum(not each.waits for each in server.connections) == 3
        for _, each in [*asked, *others]:
            each.close()


async def test_the_oldest_one_of_the_largest_crowd_ends() -> None:
    async with running() as server:
        calm, calm_writer = await server.client(host="127.0.0.2")
        crowd = [await server.client() for _ in range(2 * MOST)]
        assert not calm.at_eof()
        assert "127.0.0.2" in {each.network for each in server.connections}
        await until(lambda: crowd[0][0].at_eof() or crowd[0][0].exception() is not None)
        for _, each in [*crowd, (calm, calm_writer)]:
            each.close()


async def test_a_client_that_is_late_is_cut() -> None:
    """It sends nothing, half a head, a head in small pieces, or the rest of a body that nobody reads."""
    async with running() as server:
        answered = request("/", "content-length: 5\r\n") + b"a"
        clients = [await server.client(sent) for sent in (b"", b"GET / HT", answered)]
        await until(lambda: any(each.cycle and each.cycle.response_complete for each in server.connections))
        server.look(0)
        for _, writer in clients[1:]:
            writer.write(b"b")
        server.look(WAIT_S - 1)
        assert len(server.connections) == 3
        server.look(WAIT_S + 1)
        await until(lambda: not server.connections)
        for _, writer in clients:
            writer.close()


async def test_a_client_that_does_not_read_is_cut_and_one_that_waits_is_not() -> None:
    async with running() as server:
        _, lazy = await server.client(request("/large"))
        _, patient = await server.client(request("/slow"))
        await until(lambda: any(each._unread() for each in server.connections))
        await until(lambda: all(each.cycle for each in server.connections))
        await asyncio.sleep(0.1)  # the buffers of the system fill
        server.look(0)
        server.look(WAIT_S + 1)
        await until(lambda: len(server.connections) == 1)
        assert server.connections[0].cycle.scope["path"] == "/slow"
        for each in (lazy, patient):
            each.close()
