"""[io] One connection to a subscriber: a request at a time, and its answer. Spec: HTTP/1.1 (RFC 9112).

Laws: an exchange ends with an answer or an error, once; nothing beyond the limits is kept of what the other side sends; a connection on
which anything went otherwise than it should is not used again.
"""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

import httptools

from knative_gateway.dispatcher.posting.replies import Entry, Replies

HEAD_BYTES_MAX: Final = 256 << 10
"""Status line and headers of an answer, at most; and of what else there may be between two pieces of a body, or behind it."""
_JOINED_MAX: Final = 64 << 10
UNCOUNTED_BYTES: Final = 8 << 10
"""Bodies that are not larger are received without being counted: each connection has room for that much."""
UNSEEN_S: Final = 1.0
"""A request that a connection carried for longer than this has been seen by the other side."""
_TCP_INFO: Final = struct.Struct("=120xQ72xQQ")
"""`struct tcp_info` of Linux: bytes acknowledged (the SYN is one), sent, sent again."""

Headers = Sequence[tuple[bytes, bytes]]
LimitOf = Callable[[int, Headers], int]
"""How many bytes of the body are of interest, given status and headers: beyond it nothing is waited for."""
Told = Callable[["Connection", "Response | OSError"], None]
"""Who is told how an exchange ended; the connection can be used again by then, if it is `usable`."""


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

    `is_stale`: it was used before, it was closed soon after the last request, nothing was heard since, and the other side did not
    acknowledge all of that request: it closed the connection before it could read the request.
    `deadline_s`: when whoever looks after it should call `expire`, on the loop's clock.
    """

    def __init__(self) -> None:
        self.usable = True
        self.served = 0
        self.idle_since = 0.0
        self.deadline_s = 0.0
        self._transport: asyncio.Transport
        self._parser: Final = httptools.HttpResponseParser(self)
        self._told: Told | None = None
        self._outcome: Response | OSError | None = None
        self._limit_of: LimitOf
        self._limit: int | None = None
        self._heard = False
        self._began_s = 0.0
        self._acknowledged: bool | None = None
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()
        self._head_bytes = 0
        self._replies: Replies | None = None
        self._owner = ""
        self._entry: Entry | None = None
        self._is_paused = False

    def begin(self, head: bytes, body: bytes, limit_of: LimitOf, told: Told, *, replies: Replies | None = None, owner: str = "") -> None:
        """Send a request; `told` is called once, later: with the answer, or ConnectionClosedError, BadResponseError, TimeoutError.

        `replies`: what the body of the answer is counted by, as one of this `owner`; None: it is not.
        """
        assert self._told is None
        self._replies, self._owner = replies, owner
        self._told, self._outcome = told, None
        self._limit_of = limit_of
        self._forget()
        self._heard = False
        self._acknowledged = None
        self._began_s = time.monotonic()
        if len(body) > _JOINED_MAX:
            self._transport.write(head)
            self._transport.write(body)
        else:
            self._transport.write(head + body)

    @property
    def is_stale(self) -> bool:
        """See above."""
        soon = time.monotonic() - self._began_s < UNSEEN_S
        return self.served > 1 and not self._heard and not self._acknowledged and soon

    def expire(self) -> None:
        """No answer came in time."""
        self._fail(TimeoutError())
        self._tell()

    def abort(self) -> None:
        """Close it at once; whoever waits for an answer is told later."""
        self.usable = False
        self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for a request."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A piece of an answer; what nobody asked for ends the connection."""
        if self._told is None:
            self.abort()
            return
        self._heard = True
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.abort()
        except httptools.HttpParserError as error:
            self._fail(BadResponseError(f"not an HTTP/1.1 answer: {error}"))
        if self._head_bytes > HEAD_BYTES_MAX:
            self._fail(BadResponseError(f"headers of more than {HEAD_BYTES_MAX} bytes"))
        # Not before all that came is looked at: what follows an answer is none to the next request.
        self._tell()

    def eof_received(self) -> None:
        """The other side closed the connection: what it had acknowledged until then is known now, and over TLS not later."""
        self._ask_acknowledged()

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer without a length ends here; any other never will."""
        self.usable = False
        self._ask_acknowledged()
        if self._limit is not None and exc is None and self._is_open_ended():
            self._complete()
        else:
            self._fail(ConnectionClosedError(str(exc) if exc is not None else "the connection was closed before an answer"))
        self._tell()

    # -- httptools

    def on_message_begin(self) -> None:
        """An answer begins; a second one is none of ours."""
        if self._outcome is not None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. What follows a body (trailers) is none: they may not be taken for headers. Spec: RFC 9110, 6.5.1."""
        if self._limit is None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The body is next."""
        self._status = self._parser.get_status_code()
        self._limit = self._limit_of(self._status, self._headers)
        size = _announced(self._headers, self._limit)
        if self._replies is not None and self._entry is None and size > UNCOUNTED_BYTES:
            self._entry = Entry(self._owner, size, self._resume)
            if not self._replies.enter(self._entry):
                self._is_paused = True
                self._transport.pause_reading()

    def on_body(self, piece: bytes) -> None:
        """A piece of the body. When there is enough, the rest is not waited for."""
        self._body += piece
        self._head_bytes = 0
        assert self._limit is not None
        if len(self._body) >= self._limit and self._outcome is None:
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
        self._body = bytearray()
        self._head_bytes = 0

    def _complete(self) -> None:
        if self._outcome is None:
            self._outcome = Response(self._status, self._headers, bytes(self._body[: self._limit]))

    def _fail(self, error: OSError) -> None:
        if self._outcome is None:
            self._outcome = error
        self.abort()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _tell(self) -> None:
        if self._told is not None and self._outcome is not None:
            told, self._told = self._told, None
            if self._entry is not None and self._replies is not None:
                entry, self._entry = self._entry, None
                self._replies.leave(entry)
                self._resume()
            self.served += 1
            told(self, self._outcome)

    def _ask_acknowledged(self) -> None:
        if self._acknowledged is None and self._told is not None and self.served and not self._heard:
            self._acknowledged = _all_acknowledged(self._transport.get_extra_info("socket"))

    def _is_open_ended(self) -> bool:
        return not any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in self._headers)


def _announced(headers: Headers, limit: int) -> int:
    """How many bytes of a body will be kept, at most: without a length as many as are of interest."""
    for name, value in headers:
        if name.lower() == b"content-length" and value.isdigit():
            return min(int(value[:20]), limit)
    return limit


async def connect(address: str, port: int, tls: ssl.SSLContext | None, host: str) -> Connection:
    """A connection to this address; `tls`: with a certificate for `host`. Raises OSError."""
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(Connection, address, port, ssl=tls, server_hostname=host if tls is not None else None)
    return made


def _all_acknowledged(connected: "socket.socket | None") -> bool | None:
    """Whether the other side has acknowledged all that was sent; None: the system does not say."""
    option = getattr(socket, "TCP_INFO", None)
    if connected is None or option is None:
        return None
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, option, 256)
    except OSError:
        return None
    if len(info) < _TCP_INFO.size:
        return None
    acknowledged, sent, sent_again = _TCP_INFO.unpack_from(info)
    return bool(sent - sent_again < acknowledged)
