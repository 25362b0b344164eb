"""[io] One connection to a subscriber: one request at a time, and its answer. Spec: HTTP/1.1 (RFC 9112).

An exchange ends once, with an answer or an error. The gateway does not keep more of an answer in memory than
the limits allow. A connection on which something unexpected happened is not used again.
"""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

import httptools

from event_formats.memory import Memory
from knative_gateway.dispatcher.posting.replies import Entry, Replies

HEAD_BYTES_MAX: Final = 256 << 10
"""Bytes of the status line and the headers, and of everything else that may come between two pieces of a body
or after the body.
"""
_JOINED_MAX: Final = 64 << 10
"""Bytes of a body up to which head and body are written together: one packet is cheaper than two. A larger
body is not copied.
"""
UNCOUNTED_BYTES: Final = 8 << 10
"""Bytes of a body that are received without `Replies`: each connection may use that much memory."""
_REMEMBERED_BYTES: Final = 512
"""Bytes of an answer up to which it is remembered."""
UNSEEN_S: Final = 1.0
"""If a connection ends later than this after a request, the subscriber has probably read the request."""
_TCP_INFO: Final = struct.Struct("=120xQ72xQQ")
"""`struct tcp_info` of Linux: bytes acknowledged (the SYN counts as one), sent, retransmitted."""

Headers = Sequence[tuple[bytes, bytes]]
LimitOf = Callable[[int, Headers], int]
"""Returns how many bytes of the body to receive, given the status and the headers."""
Ended = Callable[["Connection", "Response | OSError"], None]
"""Called when an exchange has ended. If the connection is `usable`, it can be used again at once."""


class Response(NamedTuple):
    """An answer. `body` is cut at the limit that `LimitOf` returned."""

    status: int
    headers: Headers
    body: bytes


class ConnectionClosedError(ConnectionError):
    """The subscriber closed the connection before it answered."""


class BadResponseError(ConnectionError):
    """The answer is not valid HTTP/1.1, or its headers are too long."""


# Our own client: a POST with aiohttp alone costs about as much CPU as all that the gateway does for a
# delivery (docs/decisions/0011-http-client.md).
class Connection(asyncio.Protocol):
    """`usable`: another request may be sent. `served`: how many exchanges have ended.

    `idle_since` and `deadline_s` are times of the event loop's clock for the pool, which calls `expire` at
    the deadline.
    """

    def __init__(self) -> None:
        self.usable = True
        self.served = 0
        self.idle_since = 0.0
        self.deadline_s = 0.0
        self._transport: asyncio.Transport
        self._parser: Final = httptools.HttpResponseParser(self)
        self._ended: Ended | None = None
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

    def begin(
        self,
        head: bytes,
        body: bytes,
        limit_of: LimitOf,
        ended: Ended,
        *,
        replies: Replies | None = None,
        owner: str = "",
    ) -> None:
        """Send a request.

        `ended` is called once, later, with the answer, ConnectionClosedError, BadResponseError or
        TimeoutError. `replies`: limits the bytes of answers in memory, by `owner`; None: no limit.
        """
        assert self._ended is None
        self._replies, self._owner = replies, owner
        self._ended, self._outcome = ended, None
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
        """Whether the subscriber closed an idle connection before it could read the request.

        This is assumed if the connection was used before, ended soon after the request without an answer, and
        the subscriber's system did not acknowledge all bytes of the request. Then it is safe to send the
        event again.
        """
        soon = time.monotonic() - self._began_s < UNSEEN_S
        # More than 1, because the failed exchange itself is counted: only a connection that answered before
        # can have been idle.
        return self.served > 1 and not self._heard and not self._acknowledged and soon

    def expire(self) -> None:
        """End the exchange with TimeoutError."""
        self._fail(TimeoutError())
        self._report()

    def abort(self) -> None:
        """Close the connection at once. A current exchange ends later, in `connection_lost`."""
        self.usable = False
        self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio: the connection is ready for a request."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read a piece of an answer. Bytes without a request close the connection."""
        if self._ended is None:
            self.abort()
            return
        # Most answers have the same bytes as earlier ones: for them, the parser and its calls for each header
        # are not needed. Between two answers, the parser does not depend on the earlier ones.
        if not self._heard and (known := remembered.get(data)) is not None:
            self._heard = True
            self._outcome = known
            self._report()
            return
        is_first, self._heard = not self._heard, True
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.abort()
        except httptools.HttpParserError as error:
            self._fail(BadResponseError(f"not an HTTP/1.1 answer: {error}"))
        # The count begins anew with each part of the body, so it also bounds endless chunk extensions and
        # trailers.
        if self._head_bytes > HEAD_BYTES_MAX:
            self._fail(BadResponseError(f"headers of more than {HEAD_BYTES_MAX} bytes"))
        if is_first:
            self._remember(data)
        # Last: bytes after an answer must not be read as the answer to the next request.
        self._report()

    def eof_received(self) -> None:
        """The subscriber closed the connection.

        Read now what it acknowledged: with TLS, the socket is not available later.
        """
        self._ask_acknowledged()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended. This completes an answer without a length, and fails any other answer."""
        self.usable = False
        self._ask_acknowledged()
        if self._limit is not None and exc is None and self._is_open_ended():
            self._complete()
        else:
            self._fail(
                ConnectionClosedError(
                    str(exc) if exc is not None else "the connection was closed before an answer",
                )
            )
        self._report()

    # -- httptools

    def on_message_begin(self) -> None:
        """An answer begins. A second answer to one request closes the connection."""
        if self._outcome is not None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Fields after the body are trailers, which must not be merged into the headers (RFC
        9110, 6.5.1).
        """
        if self._limit is None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The body begins. Reading pauses until `Replies` admits a large body."""
        self._status = self._parser.get_status_code()
        self._limit = self._limit_of(self._status, self._headers)
        size = _announced(self._headers, self._limit)
        if self._replies is not None and self._entry is None and size > UNCOUNTED_BYTES:
            self._entry = Entry(self._owner, size, self._resume)
            # The bytes that were received so far stay in the buffer of the transport, and TCP slows the
            # subscriber down.
            if not self._replies.enter(self._entry):
                self._is_paused = True
                self._transport.pause_reading()

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the body. At the limit, the answer is complete and the connection is closed."""
        self._body += piece
        self._head_bytes = 0
        assert self._limit is not None
        if len(self._body) >= self._limit and self._outcome is None:
            self._complete()
            self.usable = False
            self._transport.close()

    def on_message_complete(self) -> None:
        """The answer is complete. After a status 1xx, another answer follows."""
        # 101 is not followed by another answer (RFC 9110, 15.2.2). The gateway has not asked for another
        # protocol.
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
            # A tuple, because exchanges share the headers of a remembered answer.
            self._outcome = Response(self._status, tuple(self._headers), bytes(self._body[: self._limit]))

    def _fail(self, error: OSError) -> None:
        if self._outcome is None:
            self._outcome = error
        self.abort()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _report(self) -> None:
        if self._ended is not None and self._outcome is not None:
            ended, self._ended = self._ended, None
            if self._entry is not None and self._replies is not None:
                entry, self._entry = self._entry, None
                # Before `ended`, which may begin the next request on this connection.
                self._replies.leave(entry)
                self._resume()
            self.served += 1
            ended(self, self._outcome)

    def _ask_acknowledged(self) -> None:
        if self._acknowledged is None and self._ended is not None and self.served and not self._heard:
            self._acknowledged = _all_acknowledged(self._transport.get_extra_info("socket"))

    def _remember(self, data: bytes) -> None:
        """Remember the answer if these bytes are exactly one answer after which the connection can be
        used again.
        """
        outcome = self._outcome
        # The result for an answer without a body does not depend on the limit of this exchange.
        if self.usable and isinstance(outcome, Response) and not outcome.body:
            remembered.keep(data, outcome)

    def _is_open_ended(self) -> bool:
        return not any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in self._headers)


remembered: Final[Memory[bytes, Response]] = Memory(1024, _REMEMBERED_BYTES)
"""Answers by their bytes, of all connections."""


def _announced(headers: Headers, limit: int) -> int:
    """Return the maximum size of the body in memory: its length, if known, and at most `limit`."""
    for name, value in headers:
        if name.lower() == b"content-length" and value.isdigit():
            # A body without a length, or one that is announced larger than the limit, reserves the limit.
            return min(int(value[:20]), limit)
    return limit


async def connect(address: str, port: int, tls: ssl.SSLContext | None, host: str) -> Connection:
    """Open a connection to an address. `tls`: None, or the peer must have a certificate for `host`. Raises
    OSError.
    """
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(
        Connection,
        address,
        port,
        ssl=tls,
        server_hostname=host if tls is not None else None,
    )
    return made


def _all_acknowledged(connected: "socket.socket | None") -> bool | None:
    """Return whether the peer's system has acknowledged all sent bytes; None if the system does not report
    it.
    """
    option = getattr(socket, "TCP_INFO", None)
    if connected is None or option is None:
        return None
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, option, 256)
    except OSError:
        return None
    if len(info) < _TCP_INFO.size:
        return None
    # The SYN counts as an acknowledged byte, so "less than" and not "at most".
    acknowledged, sent, sent_again = _TCP_INFO.unpack_from(info)
    return bool(sent - sent_again < acknowledged)
