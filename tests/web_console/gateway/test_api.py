"""The client of the API, against servers that answer oddly."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from web_console.gateway import api as module
from web_console.gateway.api import Api, ApiError, AwayError, Server, server_of

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answer: bytes, heads: list[bytes] | None = None) -> AsyncIterator[Server]:
    """A server that gives each connection this answer, and closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if heads is not None:
            heads.append(head)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Server("127.0.0.1", server.sockets[0].getsockname()[1], "/base", False)


def said(body: bytes, code: str = "200 OK", head: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n%s\r\n%s" % (code.encode(), len(body), head, body)


async def test_a_document_is_asked_for_with_the_token_below_the_path_of_the_server() -> None:
    heads: list[bytes] = []
    async with serving(said(b'{"kind": "List"}'), heads) as server:
        assert await Api(server, None, "secret").get("/apis/x", {"a": "b c"}) == {"kind": "List"}
    assert heads[0].startswith(b"GET /base/apis/x?a=b+c HTTP/1.1\r\n")
    assert b"authorization: bearer secret\r\n" in heads[0].lower()


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (said(b'{"message": "not you"}', "403 Forbidden"), 403, "not you"),
        (said(b"<html>", "500 Oh"), 500, "The gateway answers 500."),
        (said(b'{"message": 5}', "418 Tea"), 418, "The gateway answers 418."),
        (said(b"[]"), 502, "not one of a gateway"),
        (said(b"[" * 100_000), 502, "not one of a gateway"),
        (said(b"", "302 Found", b"location: http://127.0.0.1:1/\r\n"), 302, "The gateway answers 302."),
    ],
)
async def test_an_answer_that_is_not_a_document_is_an_error(answer: bytes, code: int, words: str) -> None:
    async with serving(answer) as server:
        with pytest.raises(ApiError, match=words) as caught:
            await Api(server, None, None).get("/apis")
    assert caught.value.code == code


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"]
)
async def test_an_answer_that_breaks_off_means_that_the_gateway_is_away(answer: bytes) -> None:
    async with serving(answer) as server:
        with pytest.raises(AwayError):
            await Api(server, None, None).get("/apis")


async def test_a_large_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 1000)
    async with serving(said(b'"%s"' % (b"x" * 1000))) as server:
        with pytest.raises(ApiError, match="too large"):
            await Api(server, None, None).get("/apis")


async def test_a_silent_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S_MAX", 0.05)
    ended = asyncio.Event()

    async def wait(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as listening:
        server = Server("127.0.0.1", listening.sockets[0].getsockname()[1], "", False)
        with pytest.raises(AwayError):
            await Api(server, None, None).get("/apis")
        ended.set()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gateway:8080",
        "ftp://x/",
        "http://",
        "http://u:p@x/",
        "http://x/?a",
        "http://x/\r\n",
        "http://x:y/",
    ],
)
def test_urls_that_are_not_valid(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|Port"):
        server_of(url)


def test_a_url_has_host_port_and_path() -> None:
    assert server_of("https://gateway.example/base/") == Server("gateway.example", 443, "/base", True)
    local = server_of("http://[::1]:8080")
    assert (local.authority, local.is_local) == ("[::1]:8080", True)
    assert not server_of("http://10.0.0.1").is_local


def test_tokens_and_files_that_are_not_valid(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a bearer token"):
        Api(server_of("http://x"), None, "a\r\nb: c")
    with pytest.raises(ValueError, match="cannot be read"):
        Api(server_of("https://x"), tmp_path / "missing.pem", None)
