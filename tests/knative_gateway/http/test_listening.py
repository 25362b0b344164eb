"""The HTTP listener under odd clients."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ByteSize
from structlog.testing import capture_logs

from knative_gateway.config import Limits, TlsSettings
from knative_gateway.errors import ConfigError
from knative_gateway.http import listening
from knative_gateway.http.connection import Connection
from knative_gateway.http.listening import (
    HELD_BYTES_MIN,
    LOOKS_AT_ONCE,
    SHED_REPORT_S,
    HttpServer,
    serve_http,
)
from service_parts.settings.listeners import Listener
from tests.amqp_streams.server.peers import Authority
from tests.knative_gateway.dispatcher.rig import until

ANY = Listener(host="127.0.0.1", port=0)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the received body; `/slow` on request."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    if scope["path"] == "/slow":
        GATE["entered"].set()
        await GATE["open"].wait()
    body = str(size).encode()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


GATE: dict[str, asyncio.Event] = {}


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    GATE.update(entered=asyncio.Event(), open=asyncio.Event())
    running = await serve_http(app, [ANY], limits=Limits(connections=3))
    yield running
    await running.close(0.0)


async def opened(
    server: HttpServer, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.addresses[0].split(":")
    return await asyncio.open_connection(host, int(port), ssl=context)


async def response(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length")
    )
    return head + await reader.readexactly(length)


async def test_requests_in_a_row_and_all_at_once_are_answered_in_order(server: HttpServer) -> None:
    """Keep-alive and pipelining."""
    reader, writer = await opened(server)
    requests = b"".join(
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (size, b"x" * size)
        for size in range(20)
    )
    writer.write(requests)
    for size in range(20):
        assert (await response(reader)).endswith(b"\r\n\r\n%d" % size)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    told = await response(reader)
    assert b"date: " in told
    assert b"server:" not in told
    assert await reader.read() == b""
    writer.close()


async def test_one_connection_too_many_is_closed(server: HttpServer) -> None:
    """All others have requests that are not answered yet."""
    writers = [(await opened(server))[1] for _ in range(3)]
    for writer in writers:
        GATE["entered"].clear()
        writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        await GATE["entered"].wait()
    reader, writer = await opened(server)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await response(reader)
    for one in (*writers, writer):
        one.close()


async def test_connections_without_a_request_keep_no_other_client_out(server: HttpServer) -> None:
    """The connection that waits longest is closed, of the address that has the most of them."""
    host, port = server.addresses[0].split(":")
    silent = [await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0)) for _ in range(3)]
    others = [await opened(server) for _ in range(2)]
    for reader, writer in (*others, silent[2]):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await response(reader)).endswith(b"\r\n\r\n0")
    for reader, _ in silent[:2]:
        with suppress(ConnectionError):
            assert await reader.read() == b""
    for _, writer in (*others, *silent):
        writer.close()


@pytest.mark.parametrize(
    "sent", [b"", b"POST / HT", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab"]
)
async def test_a_request_that_does_not_get_on_is_cut(
    server: HttpServer, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await opened(server)
    writer.write(sent)
    connections = server._service.connections
    await until(lambda: any(each._receives() is bool(sent) for each in connections))
    monkeypatch.setattr(listening, "_GRACE_S", -3600.0)
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 408 ") if sent else answer == b""
    writer.close()


async def test_bodies_that_do_not_end_are_refused_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """`limits.pending` is smaller than the largest request: then HELD_BYTES_MIN counts."""
    monkeypatch.setattr(listening, "_TICK_S", 0.01)
    size = 1 << 20
    count = (size + HELD_BYTES_MIN) // size + 4
    with capture_logs() as logs:
        running = await serve_http(app, [ANY], limits=Limits(pending=ByteSize(size), body=ByteSize(size)))
        peers = [await opened(running) for _ in range(count)]
        for _, writer in peers:
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
            writer.write(b"x" * (size - 1))
            with suppress(ConnectionError):
                await writer.drain()
        assert b"HTTP/1.1 503 " in await peers[0][0].readline()
        for _, writer in peers[-3:]:
            writer.write(b"x")
        assert (await response(peers[-1][0])).endswith(b"\r\n\r\n%d" % size)
        await until(lambda: any(line["event"] == "requests_refused" for line in logs))
        for _, writer in peers:
            writer.close()
        await running.close(0.0)
    lines = [line for line in logs if line["event"] == "requests_refused"]
    assert 0 < lines[0]["count"] < count
    assert SHED_REPORT_S >= 10
    assert len(lines) == 1, "at most one line in SHED_REPORT_S"


async def test_headers_without_end_are_refused(server: HttpServer) -> None:
    """Otherwise any unauthenticated client could fill the memory."""
    reader, writer = await opened(server)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 400000\r\n\r\n" + b"x" * 400_000)
    assert (await response(reader)).endswith(b"400000"), "a body is not a head"
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nx-endless: ")
    with suppress(ConnectionError):
        for _ in range(64):  # of them the listener takes a few
            writer.write(b"y" * 16_384)
            await writer.drain()
    with suppress(ConnectionError):
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    assert reader.at_eof() or reader.exception() is not None
    writer.close()


@pytest.mark.parametrize("requests", [1, 5])
async def test_a_client_that_closed_its_side_still_gets_the_answers(
    server: HttpServer, requests: int
) -> None:
    reader, writer = await opened(server)
    writer.write(b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx" * requests)
    writer.write_eof()
    await GATE["entered"].wait()
    [connection] = server._service.connections
    await until(lambda: connection._closes_after_answers)
    GATE["open"].set()
    async with asyncio.timeout(60):
        assert (await reader.read()).count(b"HTTP/1.1 200 OK") == requests
    writer.close()


async def test_half_a_request_and_a_closed_side_are_the_end(server: HttpServer) -> None:
    reader, writer = await opened(server)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab")
    writer.write_eof()
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()


async def test_an_idle_connection_and_a_slow_answer_are_not_cut(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, idle_writer = await opened(server)
    idle_writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await response(idle)
    slow, slow_writer = await opened(server)
    slow_writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
    await GATE["entered"].wait()
    monkeypatch.setattr(listening, "_GRACE_S", -3600.0)
    await server._look()
    GATE["open"].set()
    assert (await response(slow)).endswith(b"0")
    idle_writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await response(idle)).endswith(b"0")
    idle_writer.close()
    slow_writer.close()


async def test_the_time_limits_of_many_connections_are_checked_over_several_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5,000 idle connections delayed all events by 10 ms, once a second."""
    server = await serve_http(app, [ANY], limits=Limits())
    assert server._ticking is not None
    server._ticking.cancel()
    looks: list[Connection] = []
    monkeypatch.setattr(Connection, "look", lambda connection, *_, **__: looks.append(connection))
    connections = server._service.connections
    with ExitStack() as clients:
        host, port = server.addresses[0].split(":")
        for _ in range(2 * LOOKS_AT_ONCE + 50):
            clients.enter_context(socket.create_connection((host, int(port))))
        await until(lambda: len(connections) == 2 * LOOKS_AT_ONCE + 50)
        first, lost = next(iter(connections)), list(connections)[-1]
        looking, counts = asyncio.create_task(server._look()), [0]
        while not looking.done():
            await asyncio.sleep(0)
            counts.append(len(looks))
            connections.discard(lost)  # it ends before its turn
        connections.add(lost)
    await server.close(0.0)
    assert max(b - a for a, b in pairwise(counts)) <= LOOKS_AT_ONCE
    assert first in looks
    assert lost not in looks
    assert len(looks) == len(set(looks)) == 2 * LOOKS_AT_ONCE + 49


async def test_going_down_answers_what_is_here(server: HttpServer) -> None:
    reader, writer = await opened(server)
    writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
    await GATE["entered"].wait()
    closing = asyncio.create_task(server.close(10.0))
    await asyncio.sleep(0)
    GATE["open"].set()
    assert (await response(reader)).endswith(b"0")
    await closing
    with pytest.raises(OSError, match="onnect"):
        await opened(server)
    writer.close()


async def test_an_address_that_is_taken_is_reported(server: HttpServer) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use$"):
        await serve_http(app, [ANY, Listener.model_validate(server.addresses[0])], limits=Limits())


async def test_https_is_served_and_its_certificate_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("localhost")
    settings = TlsSettings(certificate=issued.certificate, key=issued.key)
    running = await serve_http(app, [ANY], limits=Limits(), tls=settings)
    reader, writer = await opened(running, authority.client_context())
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b"200 OK" in await response(reader)
    expires_at = running.certificate_expires_at
    assert expires_at is not None
    running.reload()
    assert running.certificate_expires_at == expires_at
    issued.certificate.write_text("nonsense")
    with pytest.raises(ConfigError, match=r"TLS certificate .*localhost\.pem .*not in PEM format"):
        running.reload()
    writer.close()
    await running.close(1.0)


async def test_a_file_that_is_not_a_certificate_is_reported(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("x")
    with pytest.raises(ConfigError, match=r"TLS certificate .*c with key .*c: not in PEM format"):
        await serve_http(
            app, [ANY], limits=Limits(), tls=TlsSettings(certificate=tmp_path / "c", key=tmp_path / "c")
        )
