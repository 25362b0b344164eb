"""[io] One connection to a subscriber: a request at a time, and its answer. Spec: HTTP/1.1 (RFC 9112).

Laws: an exchange ends with an answer or an error, once; nothing beyond the limits is kept of what the other side sends; a connection on
which anything went otherwise than it should is not used again.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

import httptools

HEAD_BYTES_MAX: Final = 256 << 10
"""Status line and headers of an answer, at most."""
_JOINED_MAX: Final = 64 << 10

Headers = Sequence[tuple[bytes, bytes]]
LimitOf = Callable[[int, Headers], int]
"""How many bytes of the body are of interest, given status and headers: beyond it nothing is waited for."""


class Response(NamedTuple):
    """An answer. `body`: at most as many bytes as were of interest."""

    status: int
    headers: Headers
    body: bytes


class ConnectionClosedError(ConnectionError):
    """The other side closed the connection before it answered."""


class BadResponseError(ConnectionError):
    """What came is no answer of HTTP/1.1, or too long to be one."""


class Connection(asyncio.Protocol):
    """Made by the loop. `usable`: another request may go over it; `idle_since`: on the loop's clock.

    `is_stale`: it was used before, and nothing was heard since the last request: the other side may not have seen that one.
    """

    def __init__(self) -> None:
        self.usable = True
        self.served = 0
        self.idle_since = 0.0
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: Final = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Response] | None = None
        self._limit_of: LimitOf
        self._limit: int | None = None
        self._heard = False
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0

    async def exchange(self, head: bytes, body: bytes, deadline_s: float, limit_of: LimitOf) -> Response:
        """Send a request and wait for its answer until then, on the loop's clock.

        Raises:
            TimeoutError: none came in time.
            ConnectionClosedError, BadResponseError, OSError: none will come.
        """
        assert self._waiting is None
        self._waiting = self._loop.create_future()
        self._limit_of = limit_of
        self._forget()
        self._heard = False
        if len(body) > _JOINED_MAX:
            self._transport.write(head)
            self._transport.write(body)
        else:
            self._transport.write(head + body)
        timer = self._loop.call_at(deadline_s, self._expired)
        try:
            return await self._waiting
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            timer.cancel()
            self._waiting = None
            self.served += 1

    @property
    def is_stale(self) -> bool:
        """See above."""
        return self.served > 1 and not self._heard

    def abort(self) -> None:
        """Close it at once."""
        self.usable = False
        self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for a request."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A piece of an answer; what nobody asked for ends the connection."""
        if self._waiting is None or self._waiting.done():
            self.abort()
            return
        self._heard = True
        if self._limit is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.abort()
        except httptools.HttpParserError as error:
            self._fail(BadResponseError(f"not an HTTP/1.1 answer: {error}"))
        if self._limit is None and self._head_bytes > HEAD_BYTES_MAX:
            self._fail(BadResponseError(f"headers of more than {HEAD_BYTES_MAX} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer without a length ends here; any other never will."""
        self.usable = False
        if self._limit is not None and exc is None and self._is_open_ended():
            self._complete()
        else:
            self._fail(ConnectionClosedError(str(exc) if exc is not None else "the connection was closed before an answer"))

    # -- httptools

    def on_message_begin(self) -> None:
        """An answer begins; a second one is none of ours."""
        if self._waiting is None or self._waiting.done():
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The body is next."""
        self._status = self._parser.get_status_code()
        self._limit = self._limit_of(self._status, self._headers)

    def on_body(self, piece: bytes) -> None:
        """A piece of the body. When there is enough, the rest is not waited for."""
        self._body.append(piece)
        self._body_bytes += len(piece)
        assert self._limit is not None
        if self._body_bytes >= self._limit and (self._waiting is not None and not self._waiting.done()):
            self._complete()
            self.usable = False
            self._transport.close()

    def on_message_complete(self) -> None:
        """The answer is whole, unless it says that another follows."""
        if 100 <= self._status < 200 and self._status != 101:
            self._forget()
            return
        if not self._parser.should_keep_alive() or self._status == 101:
            self.usable = False
            self._transport.close()
        self._complete()

    # -- ends

    def _forget(self) -> None:
        self._limit = None
        self._headers = []
        self._body = []
        self._body_bytes = self._head_bytes = 0

    def _complete(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._waiting.set_result(Response(self._status, self._headers, body[: self._limit]))

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self.abort()

    def _expired(self) -> None:
        self._fail(TimeoutError())

    def _is_open_ended(self) -> bool:
        return not any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in self._headers)


async def connect(address: str, port: int, tls: ssl.SSLContext | None, host: str) -> Connection:
    """A connection to this address; `tls`: with a certificate for `host`. Raises OSError."""
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(Connection, address, port, ssl=tls, server_hostname=host if tls is not None else None)
    return made
