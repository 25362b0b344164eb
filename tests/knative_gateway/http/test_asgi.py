"""ASGI applications behind a connection: the messages that they get, and the results of their answers."""

import asyncio
from typing import Any

import pytest

from knative_gateway.http.asgi import HAS_LEFT, App, AsgiHandler
from tests.knative_gateway.http.wire import Wire

GET = b"GET /a%20b/c?x=%20y HTTP/1.1\r\nHost: x\r\nA: B\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"text/plain")]}


def served(app: App) -> Wire:
    tasks: set[asyncio.Task[None]] = set()
    wire = Wire(lambda exchange: AsgiHandler(exchange, app, tasks))
    wire.tasks = tasks
    return wire


async def done(wire: Wire) -> bytes:
    """The answers after the applications have ended."""
    while wire.tasks:
        await asyncio.wait(wire.tasks)
    return wire.send()


async def test_the_scope_says_what_the_request_said() -> None:
    seen: list[Any] = []

    async def app(scope: Any, _receive: object, send: Any) -> None:
        seen.append(scope)
        await send(START)
        await send({"type": "http.response.body", "body": b"x"})

    wire = served(app)
    wire.send(GET)
    await done(wire)
    [scope] = seen
    assert not scope["state"][HAS_LEFT]()
    assert {**scope, "asgi": None, "state": {}} == {
        "type": "http",
        "asgi": None,
        "http_version": "1.1",
        "scheme": "http",
        "server": ("192.0.2.2", 80),
        "client": ("192.0.2.1", 5),
        "method": "GET",
        "root_path": "",
        "path": "/a b/c",
        "raw_path": b"/a%20b/c",
        "query_string": b"x=%20y",
        "headers": [(b"host", b"x"), (b"a", b"B")],
        "state": {},
    }


@pytest.mark.parametrize("target", [b"*", b"//", b"a", b"/\xff", b"http://", b"x:y:z"])
async def test_a_target_without_a_path_is_refused(target: bytes) -> None:
    async def app(scope: Any, _receive: object, send: Any) -> None:
        assert scope["path"].startswith("/")
        await send(START)
        await send({"type": "http.response.body"})

    wire = served(app)
    wire.send(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)
    assert (await done(wire)).startswith(b"HTTP/1.1 400 " if target != b"//" else b"HTTP/1.1 ")


async def test_a_body_comes_in_parts_to_its_end_and_then_nothing_until_the_answer_is_out() -> None:
    seen: list[Any] = []

    async def app(_scope: object, receive: Any, send: Any) -> None:
        while True:
            seen.append(await receive())
            if not seen[-1]["more_body"]:
                break
        after = asyncio.create_task(receive())
        await asyncio.sleep(0)
        assert not after.done()
        await send(START)
        await send({"type": "http.response.body", "body": b"x"})
        seen.append(await after)

    wire = served(app)
    wire.send(b"POST / HTTP/1.1\r\ncontent-length: 300000\r\n\r\n" + b"a" * 200_000)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not wire.transport.is_paused
    wire.send(b"a" * 100_000)
    await done(wire)
    assert b"".join(message["body"] for message in seen[:-1]) == b"a" * 300_000
    assert len(seen) > 3
    assert seen[-1] == {"type": "http.disconnect"}


async def test_an_application_is_notified_that_its_client_has_left_and_what_it_sends_is_dropped() -> None:
    """In this way a watch ends."""
    entered = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        await send(START)
        entered.set()
        assert (await receive())["type"] == "http.disconnect"
        assert scope["state"][HAS_LEFT]()
        await send({"type": "http.response.body", "body": b"late", "more_body": True})

    wire = served(app)
    wire.send(GET)
    await entered.wait()
    wire.connection.connection_lost(None)
    assert b"late" not in await done(wire)


@pytest.mark.parametrize(
    ("request_", "headers", "expected"),
    [
        (GET, [], b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
        (GET, [(b"content-length", b"3")], b"content-length: 3\r\n\r\nabc"),
        (
            GET,
            [(b"content-length", b"3"), (b"Connection", b"Close")],
            b"content-length: 3\r\nconnection: close\r\n\r\nabc",
        ),
        (GET.replace(b"1.1", b"1.0"), [], b"connection: close\r\n\r\nabc"),
        (GET.replace(b"GET", b"HEAD"), [(b"content-length", b"3")], b"content-length: 3\r\n\r\n"),
        (GET.replace(b"GET", b"HEAD"), [], b"date: now\r\n\r\n"),
    ],
)
async def test_how_a_body_is_sent(
    request_: bytes, headers: list[tuple[bytes, bytes]], expected: bytes
) -> None:
    async def app(_scope: object, _receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await send({"type": "http.response.body", "body": b"c"})

    wire = served(app)
    wire.service.headers = [(b"date", b"now")]
    wire.send(request_)
    answered = await done(wire)
    assert answered.startswith(b"HTTP/1.1 200 OK\r\ndate: now\r\n")
    assert answered.endswith(expected)
    assert wire.transport.is_closed is (b"connection: close" in expected)


@pytest.mark.parametrize("status", [204, 304])
async def test_some_answers_have_no_body(status: int) -> None:
    async def app(_scope: object, _receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": b"dropped"})

    wire = served(app)
    wire.send(GET)
    assert (await done(wire)).endswith(b"\r\n\r\n")
    assert b"chunked" not in wire.send()


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ([], b"HTTP/1.1 500 "),
        ([{"type": "http.response.body"}], b"HTTP/1.1 500 "),
        ([{**START, "headers": [(b"a", b"b\r\nc: d")]}], b"HTTP/1.1 500 "),
        ([{**START, "headers": [(b"a b", b"c")]}], b"HTTP/1.1 500 "),
        ([START], b"HTTP/1.1 200 "),
        ([START, START], b"HTTP/1.1 200 "),
        (
            [
                {**START, "headers": [(b"content-length", b"3")]},
                {"type": "http.response.body", "body": b"abcd"},
            ],
            b"HTTP/1.1 200 ",
        ),
        (
            [
                {**START, "headers": [(b"content-length", b"3")]},
                {"type": "http.response.body", "body": b"ab"},
            ],
            b"HTTP/1.1 200 ",
        ),
    ],
)
async def test_a_fault_of_the_application_is_seen_by_its_client(sent: list[Any], says: bytes) -> None:
    """The client gets the status if the answer has not begun, otherwise the connection closes before the end
    of the answer.
    """

    async def app(_scope: object, _receive: object, send: Any) -> None:
        for message in sent:
            await send(message)

    wire = served(app)
    wire.send(GET)
    assert (await done(wire)).startswith(says)
    assert wire.transport.is_ended
    assert b"d: " not in wire.send()


async def test_an_application_waits_for_a_client_that_reads_slowly() -> None:
    sent: list[int] = []

    async def app(_scope: object, _receive: object, send: Any) -> None:
        await send(START)
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x" * 10, "more_body": number < 2})
            sent.append(number)
            wire.connection.pause_writing()

    wire = served(app)
    wire.send(GET)
    for expected in ([0], [0, 1], [0, 1, 2]):
        for _ in range(5):
            await asyncio.sleep(0)
        assert sent == expected
        wire.connection.resume_writing()
    await done(wire)


async def test_nothing_follows_an_answer() -> None:
    async def app(_scope: object, _receive: object, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"x"})
        with pytest.raises(RuntimeError, match="after the answer"):
            await send({"type": "http.response.body", "body": b"y"})

    wire = served(app)
    wire.send(GET)
    assert (await done(wire)).endswith(b"1\r\nx\r\n0\r\n\r\n")
