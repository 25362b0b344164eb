"""Answers of every form, and bytes that are not an answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knative_gateway.dispatcher.posting.connection import (
    HEAD_BYTES_MAX,
    BadResponseError,
    Connection,
    ConnectionClosedError,
    Response,
    connect,
    remembered,
)
from knative_gateway.dispatcher.posting.replies import Entry, Replies
from tests.knative_gateway.dispatcher.rig import until
from tests.properties import examples

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(script: Script) -> AsyncIterator[Connection]:
    """A connection to a server that does this after it has received a request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        connection = await connect("127.0.0.1", server.sockets[0].getsockname()[1], None, "x")
        yield connection
        connection.abort()


def answering(*pieces: bytes, then_close: bool = False) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if then_close:
                return

    return _until_gone(script)


def _until_gone(script: Script) -> Script:
    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    return quietly


async def ask(connection: Connection, limit: int = 1000) -> Response:
    waiting: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def on_end(_: Connection, outcome: Response | OSError) -> None:
        if isinstance(outcome, OSError):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

    connection.begin(b"POST / HTTP/1.1\r\n\r\n", b"", lambda _status, _headers: limit, on_end)
    return await waiting


async def test_an_answer_comes_whole_and_the_connection_is_used_again() -> None:
    async with peer(answering(OK)) as connection:
        for _ in range(3):
            response = await ask(connection)
            assert response == (200, ((b"Content-Length", b"5"), (b"X", b"y")), b"hello")
            assert connection.usable


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + OK, b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", b""),
    ],
)
async def test_answers_of_many_shapes_are_understood(answer: bytes, body: bytes) -> None:
    for pieces in ([answer], [answer[at : at + 1] for at in range(len(answer))]):
        async with peer(answering(*pieces)) as connection:
            assert (await ask(connection)).body == body
            assert connection.usable


ANSWERS = (
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    b"garbage\r\n\r\n",
    OK,
)


class Written(asyncio.Transport):
    """Sends nothing, and knows whether it was closed."""

    is_closed = False

    def write(self, data: object) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    abort = close


def exchanges(answers: list[bytes], *, forgets: bool) -> list[tuple[Response | str | None, bool]]:
    """The outcome of a request for each block of bytes, on one connection as long as it is usable."""
    connection, outcomes = Connection(), list[tuple[Response | str | None, bool]]()
    connection.connection_made(Written())
    for answer in answers:
        got: list[Response | str] = []

        def on_end(_: Connection, end: Response | OSError, got: list[Response | str] = got) -> None:
            got.append(Response(end[0], list(end[1]), end[2]) if isinstance(end, Response) else str(end))

        connection.begin(b"POST / HTTP/1.1\r\n\r\n", b"", lambda _status, _headers: 1000, on_end)
        if forgets:
            remembered.clear()
        connection.data_received(answer)
        if not got:  # the rest of the answer does not come
            connection.connection_lost(None)
        outcomes.append((got[0], connection.usable))
        if not connection.usable:
            connection = Connection()
            connection.connection_made(Written())
    return outcomes


@given(st.lists(st.sampled_from(ANSWERS), max_size=6))
def test_a_remembered_answer_is_read_as_the_parser_reads_it(answers: list[bytes]) -> None:
    remembered.clear()
    assert exchanges(answers, forgets=False) == exchanges(answers, forgets=True)


async def test_an_answer_without_a_body_is_remembered() -> None:
    remembered.clear()
    async with peer(answering(ANSWERS[0])) as connection:
        first = await ask(connection)
        assert list(remembered) == [ANSWERS[0]]
        assert await ask(connection) == Response(first.status, first.headers, b"")
        assert connection.usable


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\n\r\nab",
    ],
)
async def test_an_answer_may_be_the_last(answer: bytes) -> None:
    """A body without a length ends with its connection."""
    async with peer(answering(answer, then_close=True)) as connection:
        assert (await ask(connection)).body == b"ab"
        assert not connection.usable


async def test_a_protocol_is_not_switched() -> None:
    async with peer(
        answering(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    ) as connection:
        assert (await ask(connection)).status == 101
        assert not connection.usable


async def test_more_than_is_of_interest_is_not_waited_for() -> None:
    endless = b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n" + b"a\r\n0123456789\r\n" * 3
    async with peer(answering(endless)) as connection:
        assert (await ask(connection, limit=15)).body == b"012345678901234"
        assert not connection.usable


async def test_endless_headers_come_to_an_end() -> None:
    async with peer(
        answering(b"HTTP/1.1 200 OK\r\nX: ", *[b"y" * 65_536] * (HEAD_BYTES_MAX // 65_536 + 1))
    ) as connection:
        with pytest.raises(BadResponseError, match="headers"):
            await ask(connection)
        assert not connection.usable


@pytest.mark.parametrize("behind", [b"0\r\nX: ", b"0;"])
async def test_endless_trailers_come_to_an_end(behind: bytes) -> None:
    """Without the limit, one subscriber could fill the memory."""
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + behind
    async with peer(answering(begun, *[b"y" * 65_536] * (3 * HEAD_BYTES_MAX // 65_536))) as connection:
        with pytest.raises(BadResponseError, match="headers"):
            await ask(connection)
        assert not connection.usable


async def test_trailers_are_not_headers() -> None:
    """Spec: RFC 9110, 6.5.1: they must not be merged into the header section."""
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nce-specversion: 1.0\r\n\r\n"
    )
    async with peer(answering(answer)) as connection:
        assert (await ask(connection)) == Response(200, ((b"Transfer-Encoding", b"chunked"),), b"hello")
        assert connection.usable


async def test_a_body_in_the_smallest_pieces_comes_whole() -> None:
    pieces = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n"
    async with peer(answering(pieces)) as connection:
        assert (await ask(connection, limit=1 << 20)).body == b"a" * 100_000


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
    ],
)
async def test_a_malformed_answer_is_an_error(answer: bytes) -> None:
    async with peer(answering(answer)) as connection:
        with pytest.raises(BadResponseError):
            await ask(connection)
        assert not connection.usable


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"]
)
async def test_half_an_answer_does_not_count(begun: bytes) -> None:
    async with peer(answering(begun, then_close=True)) as connection:
        with pytest.raises(ConnectionClosedError):
            await ask(connection)
        assert not connection.is_stale


async def test_a_request_that_was_read_before_the_connection_closed_has_been_seen() -> None:
    """The request was an attempt, no matter how early the connection closed."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")

    async with peer(once) as connection:
        await ask(connection)
        with pytest.raises(ConnectionClosedError):
            await ask(connection)
        assert not connection.is_stale


@pytest.mark.parametrize("unseen_s", [1.0, 0.0])
async def test_a_request_over_a_connection_that_had_been_closed_has_not_been_seen(
    unseen_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the request was in flight for long: then the outcome is unknown."""
    monkeypatch.setattr("knative_gateway.dispatcher.posting.connection.UNSEEN_S", unseen_s)
    go_on, closed = asyncio.Event(), asyncio.Event()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await go_on.wait()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with peer(once) as connection:
        await ask(connection)
        connection._transport.pause_reading()  # it does not see the end before the next request
        go_on.set()
        await closed.wait()
        waiting = asyncio.create_task(ask(connection))
        await asyncio.sleep(0)
        connection._transport.resume_reading()
        with pytest.raises(ConnectionClosedError):
            await waiting
        assert connection.is_stale is bool(unseen_s)


async def test_a_second_answer_ends_the_connection() -> None:
    """It would be read as the answer to the next request."""
    async with peer(answering(OK + OK)) as connection:
        assert (await ask(connection)).status == 200
        assert not connection.usable


async def test_bytes_without_a_request_end_the_connection() -> None:
    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(OK)
        await reader.read()

    async with peer(_until_gone(talkative)) as connection:
        await ask(connection)
        async with asyncio.timeout(60):
            while connection.usable:  # noqa: ASYNC110  no event reports it
                await asyncio.sleep(0.001)


async def test_an_exchange_that_expires_ends_at_once() -> None:
    async with peer(answering(b"HTTP/1.1 200 OK\r\n")) as connection:
        waiting = asyncio.create_task(ask(connection))
        await asyncio.sleep(0)
        connection.expire()
        with pytest.raises(TimeoutError):
            await waiting
        assert not connection.usable


async def test_the_next_request_does_not_get_what_follows_the_answer_before() -> None:
    """A notified caller may use the connection at once, if it is usable."""
    connection, outcomes = Connection(), list[Response | OSError]()
    connection.connection_made(Recorder())

    def on_end(used: Connection, outcome: Response | OSError) -> None:
        outcomes.append(outcome)
        assert not used.usable

    connection.begin(b"", b"", lambda _status, _headers: 9, on_end)
    connection.data_received(OK + OK)
    connection.connection_lost(None)
    assert [outcome[2] for outcome in outcomes if isinstance(outcome, Response)] == [b"hello"]


class Recorder(asyncio.Transport):
    """An address where requests get no answer."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30), st.sampled_from([OK, OK[:20], OK[20:], b"0\r\n\r\n", b"HTTP/1.1 1"])
        ),
        max_size=6,
    )
)
def test_any_bytes_are_an_answer_or_an_error(pieces: list[bytes]) -> None:
    async def exchange() -> None:
        connection = Connection()
        connection.connection_made(Recorder())
        waiting = asyncio.create_task(ask(connection))
        await asyncio.sleep(0)
        for piece in pieces:
            connection.data_received(piece)
        connection.connection_lost(None)
        with suppress(BadResponseError, ConnectionClosedError):
            assert 100 <= (await waiting).status <= 999
        assert not connection.usable

    asyncio.run(exchange())


async def counted(connection: Connection, replies: Replies, size: int) -> Response:
    waiting: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def on_end(_: Connection, outcome: Response | OSError) -> None:
        if isinstance(outcome, OSError):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

    connection.begin(
        b"POST / HTTP/1.1\r\n\r\n", b"", lambda _status, _headers: size, on_end, replies=replies, owner="u"
    )
    return await waiting


SIZE = 4 << 20
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE


@pytest.mark.parametrize("pieces", [(LONG, bytes(SIZE)), (LONG + bytes(SIZE),)])
async def test_reading_of_an_answer_pauses_until_space_is_available(pieces: tuple[bytes, ...]) -> None:
    replies = Replies(SIZE)
    other = Entry("other", SIZE, lambda: None)
    assert replies.enter(other)
    async with peer(answering(*pieces)) as connection:
        asking = asyncio.create_task(counted(connection, replies, SIZE + 1))
        await until(lambda: replies.waiting)
        assert not connection._transport.is_reading()
        replies.leave(other)
        response = await asyncio.wait_for(asking, 60)
        assert len(response.body) == SIZE
        assert (replies.used, replies.waiting, connection.usable) == (0, 0, True)
        assert len((await asyncio.wait_for(counted(connection, replies, SIZE + 1), 60)).body) == SIZE


async def test_an_answer_that_waits_for_room_ends_with_its_time() -> None:
    replies = Replies(SIZE)
    assert replies.enter(Entry("other", SIZE, lambda: None))
    async with peer(answering(LONG, bytes(SIZE))) as connection:
        asking = asyncio.create_task(counted(connection, replies, SIZE + 1))
        await until(lambda: replies.waiting)
        connection.expire()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asking, 60)
    assert (replies.used, replies.waiting) == (SIZE, 0)


async def test_small_answers_are_not_counted() -> None:
    replies = Replies(10)
    assert replies.enter(Entry("other", 10, lambda: None))
    async with peer(answering(OK)) as connection:
        assert (await asyncio.wait_for(counted(connection, replies, 1000), 60)).body == b"hello"
