"""A request to one server: bounded answers, no redirects, and clear failures."""

import asyncio
from pathlib import Path

import h11
import pytest

from web_console.http.outgoing import FAILURES, TooLargeError, exchange, tls_of

REQUEST = h11.Request(method="GET", target="/", headers=[("Host", "x"), ("Connection", "close")])


async def asked(answer: bytes, bytes_max: int = 100) -> tuple[int, bytes]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        return await exchange(("127.0.0.1", port, None), REQUEST, b"", bytes_max=bytes_max)


async def test_an_answer_is_returned_as_it_is_also_a_redirect() -> None:
    assert await asked(b"HTTP/1.1 302 x\r\nlocation: http://y/\r\ncontent-length: 2\r\n\r\nab") == (
        302,
        b"ab",
    )


async def test_an_answer_has_so_many_bytes() -> None:
    head = b"HTTP/1.1 200 x\r\ncontent-length: 101\r\n\r\n"
    assert (await asked(head + b"x" * 101, 101))[1] == b"x" * 101
    with pytest.raises(TooLargeError):
        await asked(head + b"x" * 101, 100)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 x\r\ncontent-length: 9\r\n\r\nab",
        b"HTTP/1.1 200 x\r\n" + b"a: b\r\n" * 50_000,
    ],
)
async def test_what_is_not_an_answer_is_a_failure(answer: bytes) -> None:
    with pytest.raises(FAILURES):
        await asked(answer)


def test_authorities_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.pem cannot be read"):
        tls_of(tmp_path / "none.pem")
