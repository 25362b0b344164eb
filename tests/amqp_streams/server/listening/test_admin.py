"""The admin server over real sockets: probes, metrics, and unauthenticated clients. AMQP over WebSocket is in
test_websocket.py.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from amqp_streams.config import Limits, Listener
from amqp_streams.errors import ConfigError
from amqp_streams.server.listening import admin as admin_module
from amqp_streams.server.listening.admin import AdminServer, Phase, serve_admin
from amqp_streams.server.listening.tls import TlsContext
from amqp_streams.server.observing.metrics import Metrics
from amqp_streams.server.observing.status import NodeStatus
from amqp_streams.streams.steps import Steps
from tests.amqp_streams.server.peers import Authority

BOTH_LOOPS = True
LOCAL = Listener(host="127.0.0.1", port=0)
STATUS = NodeStatus(
    ready=True, connections=0, producer_links=0, consumer_links=0, pending_bytes=0, logs=(), consumers=()
)

Start = Callable[..., Awaitable[AdminServer]]


class Source:
    def __init__(self) -> None:
        self.ready = True

    def not_ready(self) -> str | None:
        assert self.ready is not None, "a fault of our own"
        return None if self.ready else "the node accepts no events now"

    def status(self) -> Steps[NodeStatus]:
        yield
        assert self.ready is not None, "a fault of our own"
        return NodeStatus(
            ready=self.ready,
            connections=7,
            producer_links=0,
            consumer_links=0,
            pending_bytes=0,
            logs=(),
            consumers=(),
        )


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def serve(listener: Listener = LOCAL, **settings: Any) -> AdminServer:
            server = await serve_admin(
                listener, Metrics(), **{"limits": Limits(), "linger_s": 1.0, **settings}
            )
            stack.push_async_callback(server.close)
            return server

        yield serve


async def ask(
    server: AdminServer, request: str | bytes, *, tls: ssl.SSLContext | None = None
) -> tuple[int, str, bytes]:
    """Send a request on a new connection, and return status, head and body of the answer."""
    address = server.addresses[0]
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=tls, server_hostname="localhost" if tls else None
    )
    try:
        writer.write(
            f"{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
            if isinstance(request, str)
            else request
        )
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return int(head.split()[1]) if head else 0, head.decode().lower(), body


async def test_alive_from_the_first_moment(start: Start) -> None:
    server = await start()
    status, head, body = await ask(server, "GET /healthz")
    assert (status, body) == (200, b"alive\n")
    assert "text/plain" in head


async def test_ready_only_between_starting_and_stopping(start: Start) -> None:
    server = await start()
    assert (await ask(server, "GET /readyz"))[::2] == (503, b"starting\n")
    server.phase = Phase.READY
    assert (await ask(server, "GET /readyz"))[::2] == (200, b"ready\n")
    server.phase = Phase.STOPPING
    assert (await ask(server, "GET /readyz"))[::2] == (503, b"stopping\n")
    assert (await ask(server, "GET /healthz"))[0] == 200


async def test_not_ready_when_the_node_says_so(start: Start) -> None:
    server, source = await start(), Source()
    server.phase, server.metrics.source = Phase.READY, source
    assert (await ask(server, "GET /readyz"))[0] == 200
    source.ready = False
    status, _, body = await ask(server, "GET /readyz")
    assert status == 503
    assert b"not ready" in body


async def test_metrics_are_prometheus_text(start: Start) -> None:
    server = await start()
    server.metrics.source = Source()
    status, head, body = await ask(server, "GET /metrics")
    assert status == 200
    assert "content-type: text/plain; version=0.0.4; charset=utf-8" in head
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert families["amqp_streams_connections"].samples[0].value == 7
    assert "process_resident_memory_bytes" in families


async def test_a_fault_in_an_answer_is_that_requests_alone(start: Start) -> None:
    server, source = await start(), Source()
    server.metrics.source = source
    source.ready = None  # type: ignore[assignment]  # a fault
    assert (await ask(server, "GET /metrics"))[0] == 500
    assert (await ask(server, "GET /healthz"))[0] == 200


@pytest.mark.parametrize(
    "path", ["/nowhere", "/", "/healthz/", "/%00", "/../etc/passwd", "/metrics%0d%0aX:y"]
)
async def test_unknown_paths_are_answered_with_words(start: Start, path: str) -> None:
    status, _, body = await ask(await start(), f"GET {path}")
    assert status in {404, 307}
    assert status == 307 or b"/healthz, /readyz or /metrics" in body


async def test_only_reading_is_possible(start: Start) -> None:
    server = await start()
    assert (await ask(server, "DELETE /metrics"))[0] == 405
    assert (await ask(server, "HEAD /healthz"))[0] == 200


@pytest.mark.parametrize(
    "noise",
    [
        b"AMQP\x00\x01\x00\x00\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key:"
            b" short\r\n\r\n"
        ),
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    ],
)
async def test_noise_does_not_end_the_server(start: Start, noise: bytes) -> None:
    server = await start()
    server.phase = Phase.READY
    with contextlib.suppress(OSError):
        async with asyncio.timeout(60):
            await ask(server, noise + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await ask(server, "GET /healthz"))[0] == 200


async def test_an_unauthenticated_client_that_sends_nothing_is_disconnected(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "REQUEST_S", 0.01)
    server = await start()
    with contextlib.suppress(ConnectionResetError):
        assert await ask(server, b"GET /hea") == (0, "", b"")


async def stranger(
    server: AdminServer, *, source: str = "127.0.0.1", request: bytes = b"GET /hea"
) -> socket.socket:
    """Open a connection and send a request that does not end."""
    address, before = server.addresses[0], len(server._guests)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind((source, 0))
    sock.connect((address.host, address.port))
    sock.sendall(request)
    sock.setblocking(False)
    while len(server._guests) == before:  # noqa: ASYNC110  no event reports it
        await asyncio.sleep(0.001)
    return sock


async def ended(sock: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        while await asyncio.get_running_loop().sock_recv(sock, 1 << 16):
            pass
    return True


async def test_incomplete_requests_give_way_to_probes_oldest_of_the_busiest_address_first(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a few hundred incomplete requests would block the liveness probe, and the orchestrator would
    kill the node.
    """
    monkeypatch.setattr(admin_module, "HTTP_CONNECTIONS_MAX", 4)
    monkeypatch.setattr(admin_module, "REQUEST_S", 3600.0)
    server = await start()
    with contextlib.ExitStack() as stack, structlog.testing.capture_logs() as lines:
        other = stack.enter_context(await stranger(server, source="127.0.0.2"))
        first, *rest = [stack.enter_context(await stranger(server)) for _ in range(3)]
        assert (await ask(server, "GET /healthz"))[::2] == (200, b"alive\n")
        async with asyncio.timeout(60):
            assert await ended(first)
        for sock in (other, *rest):
            with pytest.raises(BlockingIOError):
                sock.recv(1)
        assert {line["event"] for line in lines} == {"http_limit_reached"}


async def test_silent_handshakes_give_way_to_probes_too(
    start: Start, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "HTTP_CONNECTIONS_MAX", 2)
    monkeypatch.setattr(admin_module, "REQUEST_S", 3600.0)
    server = await start(
        Listener(host="127.0.0.1", port=0, tls=True), tls=TlsContext(authority.issue("admin"))
    )
    with contextlib.ExitStack() as stack:
        first, _second = [stack.enter_context(await stranger(server, request=b"")) for _ in range(2)]
        assert (await ask(server, "GET /healthz", tls=authority.client_context()))[0] == 200
        async with asyncio.timeout(60):
            assert await ended(first)


@pytest.mark.parametrize("path", ["/healthz", "/nowhere"])
async def test_a_connection_is_for_one_request(start: Start, path: str) -> None:
    status, head, _ = await ask(await start(), f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert status
    assert head.count("connection: close") == 1


async def test_a_peer_that_does_not_take_its_answer_is_cut_off(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "REQUEST_S", 0.01)
    monkeypatch.setattr(admin_module, "ANSWER_S", 0.02)
    server = await start()
    monkeypatch.setattr(server.metrics, "text", AsyncMock(return_value=bytes(32 << 20)))
    with await stranger(server, request=b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
        async with asyncio.timeout(60):
            while server._state.connections:  # noqa: ASYNC110  no event reports it
                await asyncio.sleep(0.01)


async def test_tls_if_the_listener_says_so(start: Start, authority: Authority) -> None:
    server = await start(
        Listener(host="127.0.0.1", port=0, tls=True), tls=TlsContext(authority.issue("admin"))
    )
    assert (await ask(server, "GET /healthz", tls=authority.client_context()))[0] == 200


async def test_an_address_in_use_is_reported(start: Start) -> None:
    taken = (await start()).addresses[0]
    with pytest.raises(ConfigError, match="Address already in use"):
        await start(Listener(host=taken.host, port=taken.port))


async def test_close_ends_idle_connections_and_accepts_no_more(start: Start) -> None:
    server = await start()
    address = server.addresses[0]
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readuntil(b"alive\n")).startswith(b"HTTP/1.1 200")
    await server.close(drain_s=5)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read(-1) == b""
    writer.transport.abort()
    with pytest.raises(OSError, match=r"Connect call failed|refused"):
        await ask(server, "GET /healthz")
