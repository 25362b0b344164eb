"""The fast path of the ingress over real sockets: it answers like the general path, and leaves unusual
requests to it.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from event_formats.amqp_binding import decode, passed_on
from knative_gateway.config import Limits
from knative_gateway.errors import OverloadedError, TooLargeError, UnavailableError
from knative_gateway.http.listening import HttpServer, serve_http
from knative_gateway.ingress import answers
from knative_gateway.ingress.app import Ingress, IngressLimits
from knative_gateway.ingress.direct import FastPath, rendered
from knative_gateway.ports import Route
from service_parts.settings.listeners import Listener
from tests.knative_gateway.asking import BINARY, BROKER, CHANNEL, EVENT, routes
from tests.knative_gateway.dispatcher.rig import until
from tests.knative_gateway.memory_log import MemoryEventLog

ANY = Listener(host="127.0.0.1", port=0)
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Counting:
    """The ingress after the listener. It counts the requests of the general path."""

    def __init__(self, ingress: Ingress) -> None:
        self.ingress = ingress
        self.long = 0

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        self.long += 1
        await self.ingress(scope, receive, send)  # type: ignore[arg-type]


@pytest.fixture
async def log() -> MemoryEventLog:
    logs = MemoryEventLog()
    for route in (BROKER, CHANNEL):
        await logs.ensure(route.log, partitions=1, retention_ms=None)
    return logs


@pytest.fixture
def app(log: MemoryEventLog) -> Counting:
    ingress = Ingress(log, limits=IngressLimits(body_bytes=100_000))
    ingress.use(routes(BROKER, CHANNEL))
    return Counting(ingress)


@pytest.fixture
async def server(app: Counting, log: MemoryEventLog) -> AsyncIterator[HttpServer]:
    fast_path = FastPath(app.ingress, log, asyncio.get_running_loop().time)
    running = await serve_http(app, [ANY], limits=Limits(), shortcut=fast_path.open)
    yield running
    log.gate.set()
    await running.close(1.0)


@pytest.fixture
async def client(server: HttpServer) -> AsyncIterator[Client]:
    reader, writer = await opened(server)
    yield reader, writer
    writer.close()


async def opened(server: HttpServer) -> Client:
    host, port = server.addresses[0].split(":")
    return await asyncio.open_connection(host, int(port))


def request(
    body: bytes = b'{"a": 1}',
    headers: tuple[tuple[str, str], ...] = BINARY,
    *,
    path: str = BROKER.path,
    first: str = "POST {} HTTP/1.1",
) -> bytes:
    lines = [
        first.format(path),
        "host: x",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def response(client: Client) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(60):
        head = (await client[0].readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        return int(head[0].split()[1]), headers, await client[0].readexactly(int(headers["content-length"]))


async def test_an_event_is_stored_and_answered(client: Client, log: MemoryEventLog, app: Counting) -> None:
    headers = (*BINARY, ("X-Request-Id", "r"), ("traceparent", "00-1"))
    for path in (BROKER.path, CHANNEL.path):
        client[1].write(request(b' {"a": 1}\n', headers, path=path))
        status, told, body = await response(client)
        assert (status, body, told["allow"]) == (202, b"", "POST, OPTIONS")
        assert "date" in told
    [message] = log.messages(BROKER.log)
    event = decode(message)
    assert event.data == b' {"a": 1}\n'
    assert (event.attributes["traceparent"], event.attributes["knativebrokerttl"]) == ("00-1", 255)
    assert passed_on(message) == [(b"x-request-id", b"r")]
    assert "knativebrokerttl" not in decode(log.messages(CHANNEL.log)[0]).attributes
    figures = app.ingress.figures.of(BROKER)
    assert (app.long, figures.events, figures.bytes, figures.in_flight, dict(figures.requests)) == (
        0,
        1,
        10,
        0,
        {202: 1},
    )


@pytest.mark.parametrize("headers", [BINARY, (("content-type", "application/cloudevents+json"),)])
@pytest.mark.parametrize("hosts", [b"", b"host: x\r\nhost: y\r\n", b"host: a b@c\r\n"])
async def test_a_request_without_exactly_one_valid_host_takes_the_general_path(
    client: Client, app: Counting, headers: tuple[tuple[str, str], ...], hosts: bytes
) -> None:
    client[1].write(request(EVENT, headers).replace(b"host: x\r\n", hosts))
    await response(client)
    assert app.long == 1


async def test_structured_events_come_this_way_too(
    client: Client, log: MemoryEventLog, app: Counting
) -> None:
    client[1].write(request(EVENT, (("content-type", "application/cloudevents+json"),)))
    assert (await response(client))[0] == 202
    assert decode(log.messages(BROKER.log)[0]).data == b'{"a": 1}'
    assert app.long == 0


async def test_a_large_structured_event_takes_the_general_path(
    client: Client, log: MemoryEventLog, app: Counting
) -> None:
    """It is parsed in turns there."""
    data = b"[" + b"1," * 20_000 + b"1]"
    event = EVENT.replace(b'{"a": 1}', data)
    client[1].write(request(event, (("content-type", "application/cloudevents+json"),)))
    assert (await response(client))[0] == 202
    assert decode(log.messages(BROKER.log)[0]).data == data
    assert app.long == 1


async def test_a_request_in_many_pieces_is_one(client: Client, log: MemoryEventLog) -> None:
    sent = request(b"x" * 70_000)
    for at in range(0, len(sent), 997):
        client[1].write(sent[at : at + 997])
        await client[1].drain()
        await asyncio.sleep(0)
    assert (await response(client))[0] == 202
    assert decode(log.messages(BROKER.log)[0]).data == b"x" * 70_000


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (request(headers=BINARY[1:]), 400, b"ce-specversion"),
        (request(headers=(*BINARY, ("ce-knativebrokerttl", "1"))), 400, b"went through too many"),
        (request(headers=(("content-type", "application/cloudevents+xml"),)), 415, b"xml"),
    ],
)
async def test_a_refusal_is_reported_and_the_connection_continues(
    client: Client, app: Counting, sent: bytes, status: int, words: bytes
) -> None:
    for _ in range(2):
        client[1].write(sent)
        told = await response(client)
        assert told[0] == status
        assert words in told[2]
    assert app.long == 0
    assert app.ingress.figures.of(BROKER).in_flight == 0


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (OverloadedError("full", retry_after_s=7), 429, "7"),
        (UnavailableError("away"), 503, "1"),
        (TooLargeError("large"), 413, None),
    ],
)
async def test_a_failure_of_the_log_is_the_answer(
    client: Client, log: MemoryEventLog, error: OverloadedError, status: int, retry: str | None
) -> None:
    log.failing = [error]
    client[1].write(request())
    told = await response(client)
    assert (told[0], told[1].get("retry-after")) == (status, retry)


async def test_a_fault_of_the_node_is_reported_as_such(
    client: Client, log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log, "post", broken)
    client[1].write(request())
    assert (await response(client))[0] == 500


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(path="/broker/default/none"), 404),
        (request(path=BROKER.path + "?x=y"), 202),
        (request(path=BROKER.path + "/"), 202),
        (request(first="GET {} HTTP/1.1", body=b""), 405),
        (request(first="POST {} HTTP/1.0"), 202),
        (
            request(
                b"[" + EVENT + b"," + EVENT + b"]", (("content-type", "application/cloudevents-batch+json"),)
            ),
            202,
        ),
        (request(headers=(*BINARY, ("content-encoding", "gzip"))), 415),
        (request(b"x" * 100_001), 413),
        (
            request()
            .replace(b"content-length: 8", b"transfer-encoding: chunked")
            .replace(b'{"a": 1}', b'8\r\n{"a": 1}\r\n0\r\n\r\n'),
            202,
        ),
        (request(headers=(*BINARY, ("expect", "100-continue"))), 100),
    ],
)
async def test_an_unusual_request_takes_the_general_path(
    client: Client, app: Counting, sent: bytes, status: int
) -> None:
    body = 8 if status == 100 else 0
    client[1].write(sent[: len(sent) - body])
    if status == 100:
        assert await client[0].readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client[1].write(sent[-body:])
        status = 202
    assert (await response(client))[0] == status
    assert app.long == 1


async def test_duplicate_detection_takes_the_general_path(
    client: Client, app: Counting, log: MemoryEventLog
) -> None:
    app.ingress.use(routes(replace(BROKER, duplicates_ms=60_000)))
    for _ in range(2):
        client[1].write(request())
        assert (await response(client))[0] == 202
    assert app.long == 2
    assert len(log.messages(BROKER.log)) == 1


class Everybody:
    """Allows every request."""

    async def may_send(self, authorization: str | None, route: Route) -> None:
        pass


async def test_with_an_authorizer_nothing_comes_this_way(log: MemoryEventLog) -> None:
    ingress = Ingress(log, authorizer=Everybody())
    ingress.use(routes(BROKER))
    assert not ingress.direct


async def test_many_requests_at_once_are_answered_in_order(
    client: Client, log: MemoryEventLog, app: Counting
) -> None:
    """Pipelining: later requests wait for the first one, on either path."""
    good, bad = request(), request(headers=BINARY[1:])
    client[1].write(good + bad + good + bad + good)
    assert [(await response(client))[0] for _ in range(5)] == [202, 400, 202, 400, 202]
    client[1].write(good)
    assert (await response(client))[0] == 202
    assert len(log.messages(BROKER.log)) == 4
    assert app.ingress.figures.of(BROKER).in_flight == 0


async def test_both_ways_take_turns_on_one_connection(client: Client, app: Counting) -> None:
    chunked = (
        request()
        .replace(b"content-length: 8", b"transfer-encoding: chunked")
        .replace(b'{"a": 1}', b'8\r\n{"a": 1}\r\n0\r\n\r\n')
    )
    for sent in (request(), chunked, request(), chunked):
        client[1].write(sent)
        assert (await response(client))[0] == 202
    assert app.long == 2


async def test_a_connection_that_is_to_be_closed_is(client: Client) -> None:
    client[1].write(request(headers=(*BINARY, ("connection", "close"))))
    status, headers, _ = await response(client)
    assert (status, headers["connection"]) == (202, "close")
    assert await client[0].read() == b""


async def settled(app: Counting) -> None:
    await until(lambda: not app.ingress.figures.of(BROKER).in_flight)


async def test_a_client_that_leaves_in_the_middle_stores_nothing(
    server: HttpServer, log: MemoryEventLog, app: Counting
) -> None:
    _, writer = await opened(server)
    writer.write(request()[:-3])
    await until(lambda: app.ingress.figures.of(BROKER).in_flight == 1)
    writer.close()
    await settled(app)
    assert not log.messages(BROKER.log)


async def test_the_event_of_a_client_that_leaves_before_the_answer_is_stored_all_the_same(
    server: HttpServer, log: MemoryEventLog, app: Counting
) -> None:
    log.gate.clear()
    _, writer = await opened(server)
    writer.write(request())
    await until(lambda: app.ingress.figures.of(BROKER).in_flight == 1)
    [connection] = server._service.connections
    writer.transport.abort()
    await until(lambda: connection._closes_after_answers)
    log.gate.set()
    await settled(app)
    assert len(log.messages(BROKER.log)) == 1


async def test_going_down_waits_for_what_is_being_stored(
    server: HttpServer, log: MemoryEventLog, app: Counting
) -> None:
    log.gate.clear()
    client = await opened(server)
    client[1].write(request())
    await until(lambda: app.ingress.figures.of(BROKER).in_flight == 1)
    closing = asyncio.create_task(server.close(10.0))
    await until(lambda: server._service.is_leaving)
    assert not closing.done()
    log.gate.set()
    assert (await response(client))[0] == 202
    await closing
    client[1].close()


@pytest.mark.parametrize(
    ("now", "status"),
    [((CHANNEL,), 404), ((replace(BROKER, uid="another"),), 404), ((replace(BROKER, subscribers=()),), 202)],
)
async def test_a_route_may_go_or_change_while_an_event_comes(
    client: Client, app: Counting, log: MemoryEventLog, now: tuple[Route, ...], status: int
) -> None:
    client[1].write(request()[:-3])
    await until(lambda: app.ingress.figures.of(BROKER).in_flight == 1)
    app.ingress.use(routes(*now, version=2))
    client[1].write(request()[-3:])
    assert (await response(client))[0] == status
    assert len(log.messages(BROKER.log)) == (status == 202)


def test_the_most_common_answer_is_formatted_once_a_second() -> None:
    headers = [(b"date", b"now")]
    first = rendered(answers.ACCEPTED, headers, close=False)
    assert rendered(answers.ACCEPTED, headers, close=False) is first
    assert first.startswith(b"HTTP/1.1 202 Accepted\r\ndate: now\r\nallow: ")
    assert b"later" in rendered(answers.ACCEPTED, [(b"date", b"later")], close=False)
    assert b"connection: close" in rendered(answers.ACCEPTED, headers, close=True)
