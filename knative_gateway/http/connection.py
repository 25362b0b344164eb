"""[io] One HTTP/1.1 connection: it answers requests in order, and decides when to pause and when to end.

A request that is not valid gets one answer, after the answers to earlier requests, and the connection ends.
Reading pauses while the client does not read its answers, while many requests wait, and while a handler does
not take a body. Each time limit applies only while the gateway waits for the client.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import structlog

from knative_gateway.http.exchange import Exchange
from knative_gateway.http.patience import Late, Patience
from knative_gateway.http.reading import PIECE_BYTES, RefusedError, RequestReader
from knative_gateway.http.responses import RETRY_LATER, Header, text
from knative_gateway.http.service import Service
from knative_gateway.http.unread import Unread
from service_parts.networks import network_of

WAITING_MAX: Final = 8
"""Requests that wait for the answers to earlier ones. If there are more, reading pauses."""
HEAD_BYTES: Final = 2 << 10
"""Bytes that are parsed at once outside of a body, and in a chunked body. They hold the headers of one event,
and not many requests or chunks.
"""
PARTS_AT_ONCE: Final = 200
"""Parts of bodies that are parsed in one turn, about: a chunk of one byte costs as much as a large one."""
LINGER_BYTES_MAX: Final = 16 << 20
"""Bytes that are read and dropped after the last answer. Further bytes fill the buffers of the client."""
BODY_BYTES_HELD: Final = 64 << 10
"""Bytes of a body that the handler has not taken. If there are more, reading pauses."""
log = structlog.get_logger("knative_gateway")


# Our own protocol on httptools: an event through the public interface of uvicorn costs about 50 us more
# (docs/decisions/0015-http-listener.md).
class Connection(asyncio.Protocol):
    """Owns the transport, the parser, and the exchanges without a complete answer."""

    def __init__(self, service: "Service[Connection]") -> None:
        self.shared: Final = service
        self.network = ""
        """The client's IPv4 address, or the /64 network of its IPv6 address."""
        self._transport: Any = None
        self._reader: Final = RequestReader(self)
        self._queue: Final[deque[Exchange]] = deque()
        """Requests without a complete answer. The first one is being answered."""
        self._left = b""
        """Bytes that arrived and are not all parsed yet, because reading is paused."""
        self._left_at = 0
        """How many of them are parsed: copying the others after each piece would cost more than parsing."""
        self._is_parsing = False
        self._is_advancing = False
        self._may_begin = False
        """A further request may begin now. Otherwise it waits for a turn of the backlog."""
        self._is_read_paused = False
        self._refusal = b""
        """The last answer of the connection. It is sent after the answers of the queue."""
        self._closes_after_answers = False
        self._dropped_bytes = 0
        self._can_write: asyncio.Event | None = None
        """Set when writing may continue; None while the transport accepts data."""
        self._unread: Unread | None = None
        self._patience: Final = Patience()
        self.held = 0
        """Bytes of requests without an answer. Requests of one small block are not counted."""
        self.held_since = 0.0
        self._arrives = False
        """Some of these bytes are of a request that is not complete, or that is not being answered yet."""

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, unless the limit of connections is reached."""
        self._transport = transport
        self._patience.waiting_since = self.shared.clock()
        peer = self.address("peername")
        self.network = "" if peer is None else network_of(peer[0])
        self.shared.connections.add(self)
        self.shared.waits(self)
        # After the registration, so that the new connection itself is among those that may be closed.
        if len(self.shared.connections) > self.shared.connections_max:
            self.shared.make_room(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """The client disconnected."""
        self.shared.connections.discard(self)
        self.shared.leave(self)
        self._reader.close()
        self._lose_all()
        self._count()
        if self._can_write is not None:
            self._can_write.set()
        self.shared.unread.remove(self._unread)

    def data_received(self, data: bytes) -> None:
        """Parse the data, or queue it while reading must pause."""
        if self._reader.is_ended:
            self._drop(data)
            return
        # Order: bytes that arrived earlier and are not parsed yet come first.
        if self._left:
            self._left, self._left_at = self._left[self._left_at :] + data, 0
            self._count()
            return
        self._may_begin = True
        if len(data) <= HEAD_BYTES:
            self._parse(data)
            # A single complete request, which is the usual case, cannot require a pause. This saves a call
            # for nearly every request.
            reader = self._reader
            if (
                len(self._queue) > 1
                or reader.current is not None
                or reader.is_in_head
                or self._can_write is not None
                or self.held
            ):
                self._pace()
                self._count()
        else:
            self._left = data
            self._go_on()

    def eof_received(self) -> bool:
        """The client sends no more. Returns True if the connection stays open for the answers.

        A client that only reads (for example a watch) counts as disconnected: nothing else would end its
        answer.
        """
        is_in_request = not self._left and (self._reader.is_in_head or self._reader.current is not None)
        if not self._queue or is_in_request or self.is_encrypted:
            return False  # TLS has no half-closed connections
        if any(exchange.method in {b"GET", b"HEAD"} for exchange in self._queue):
            return False
        self._closes_after_answers = True
        if not self._left:
            self._reader.is_ended = True
        return True

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._can_write = asyncio.Event()
        now = self.shared.clock()
        self._patience.stall(now)
        unread = Unread(self.network, self._transport.get_write_buffer_size(), now, self._transport.abort)
        self._unread = self.shared.unread.add(unread)
        self._pace()

    def resume_writing(self) -> None:
        """The client reads its answers again."""
        if self._can_write is not None:
            self._can_write.set()
            self._can_write = None
        self.shared.unread.remove(self._unread)
        self._advance()
        self._go_on()

    # The exchanges and their handlers call these.

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def writable(self) -> None:
        """Wait until the client has read enough of the earlier bytes, or has disconnected."""
        if self._can_write is not None:
            await self._can_write.wait()

    def read_on(self) -> None:
        """Resume reading after a handler has taken a part of the body."""
        if self._is_read_paused:
            self._go_on()

    def answered(self, exchange: Exchange) -> None:
        """The first request of the queue is answered: wait for a turn to begin the next one, or close."""
        self._queue.popleft()
        if not exchange.keep_alive:
            # Requests after one that closes the connection get no answer (RFC 9112, 9.6). Their handlers have
            # not begun.
            self._queue.clear()
            self._close(lingers=self._reader.current is not None)
            self._count()
            return
        self._patience.idle_since = None
        if not self._queue:
            self.shared.waits(self)
        # Skipped in the usual case, in which the answered request was the only one.
        if self._queue or self._reader.is_ended:
            self._advance()
        if self._is_read_paused:
            self._go_on()
        elif self.held:
            self._count()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def address(self, kind: str) -> tuple[str, int] | None:
        """Return host and port of the client (`peername`) or of this side (`sockname`)."""
        found = self._transport.get_extra_info(kind)
        return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is used."""
        return self._transport.get_extra_info("sslcontext") is not None

    # The holdings call this.

    def shed(self) -> None:
        """Refuse the request that is arriving, because the connections hold too many bytes."""
        if self._receives():
            self._refuse(503, "the gateway is receiving too much: send the request again", (RETRY_LATER,))
        else:
            # The answers to earlier requests may take any time, and a refusal comes after them.
            self._transport.abort()
            self._reader.end()
            self._lose_all()
        self._count()

    # The backlog calls this.

    def turn(self) -> None:
        """Begin the next request, and read on."""
        self._may_begin = True
        self._advance()
        self._go_on()

    # The reader calls these.

    def head_came(self, exchange: Exchange) -> None:
        """Queue a request, and begin it if no other request is being answered."""
        self._queue.append(exchange)
        if len(self._queue) == 1:
            self.shared.works(self)
            self._advance()

    def request_ended(self, exchange: Exchange) -> None:
        """The request has arrived completely."""
        if exchange.handler is not None and not exchange.is_answered:
            exchange.handler.received()

    # The listener calls these.

    def look(self, now: float, *, request_s: float, idle_s: float) -> None:
        """End the connection if its client exceeds a time limit."""
        late = self._patience.late(
            now,
            request_s=request_s,
            idle_s=idle_s,
            unsent=None if self._can_write is None else self._transport.get_write_buffer_size(),
            is_paused=self._is_read_paused,
            is_open=bool(self._queue),
        )
        match late:
            case Late.LINGERED:
                self._transport.abort()
            case Late.INCOMPLETE if self._receives():
                self._refuse(408, "the request did not arrive in time: send it again")
                self._count()
            case Late.UNREAD | Late.INCOMPLETE:
                log.debug("connection_cut", peer=self.address("peername"), reason=late.value)
                self._transport.abort()
            case Late.IDLE:
                self._transport.close()
            case None:
                pass

    def shut(self) -> None:
        """Answer the requests that have arrived, then close, because the listener stops."""
        if self._patience.lingers:
            self._transport.abort()
        elif not self._queue and not self._reader.is_in_head and not self._left:
            self._transport.close()

    # Reading

    def _parse(self, piece: bytes | memoryview) -> None:
        reader = self._reader
        self._is_parsing = True
        try:
            reader.parse(piece)
        except RefusedError as refusal:
            self._refuse(refusal.status, str(refusal))
        finally:
            self._is_parsing = False
        if reader.current is None and not reader.is_in_head:
            if reader.begun:
                self._patience.waiting_since = None
        else:
            self._patience.request(reader.begun, self.shared.clock())

    def _go_on(self) -> None:
        """Parse queued bytes until reading must pause, and resume reading if none is left."""
        if self._is_parsing or self._is_advancing:
            return  # the caller reads on after the handler returns, and a handler is not called within itself
        reader, left, at = self._reader, memoryview(self._left), self._left_at
        # In pieces, with a look at the limits between them: a large block of small requests would otherwise
        # all be queued before a pause.
        parts_max = reader.parts + PARTS_AT_ONCE
        while at < len(left) and not reader.is_ended and not self._is_full() and not self._waits():
            if reader.parts > parts_max:
                self.shared.backlog.add(self)
                break
            size = HEAD_BYTES if reader.is_cut_finely else PIECE_BYTES
            self._parse(left[at : at + size])
            at += size
        self._left_at = at
        if reader.is_ended or at >= len(left):
            self._left, self._left_at = b"", 0
        if self._closes_after_answers and not self._left and not reader.is_ended:
            if reader.is_in_head or reader.current is not None:
                self._refuse(400, "the request is not complete")
            reader.is_ended = True
            self._advance()
        self._pace()
        self._count()

    def _count(self) -> None:
        """Report how many bytes this connection holds, if that changed. Call this last: it may refuse the
        request.
        """
        queue, reader = self._queue, self._reader
        held = len(self._left) + reader.held
        for exchange in queue:
            held += exchange.received
        arrives = held > 0 and (
            len(queue) > 1 or reader.current is not None or reader.is_in_head or bool(self._left)
        )
        change = held - self.held
        if not change and arrives is self._arrives:
            return
        if not self.held:
            self.held_since = self.shared.clock()
        self.held, self._arrives = held, arrives
        self.shared.holdings.note(self, change, arrives=arrives)

    def _receives(self) -> bool:
        """Return whether a request is arriving and no earlier one waits for its answer."""
        reader = self._reader
        return (reader.is_in_head or reader.current is not None) and (
            not self._queue or self._queue[0] is reader.current
        )

    def _is_full(self) -> bool:
        """Return whether reading must pause."""
        current = self._reader.current
        return (
            self._can_write is not None
            or len(self._queue) > WAITING_MAX
            or (current is not None and len(current.body) > BODY_BYTES_HELD and not current.collects)
        )

    def _waits(self) -> bool:
        """Return whether a request waits for a turn of the backlog."""
        return bool(self._queue) and self._queue[0].handler is None

    def _pace(self) -> None:
        """Pause or resume reading, if that changed."""
        # Bytes that are not parsed yet always pause: reading more of them would only move the data of the
        # client into memory.
        paused = bool(self._left) or (self._is_full() and not self._reader.is_ended)
        if paused is self._is_read_paused or self._transport.is_closing():
            return
        self._is_read_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            if self._patience.waiting_since is not None:
                self._patience.waiting_since = self.shared.clock()

    # Answering

    def _advance(self) -> None:
        """Begin the next request, or wait for a turn to do so.

        The answer may be complete at once, thousands of times in a row: other connections come first.
        """
        if self._is_advancing:
            return
        self._is_advancing = True
        queue = self._queue
        try:
            # A handler begins only when its answer can be sent: a client that pipelines requests and reads
            # nothing would otherwise fill memory with answers.
            if self._may_begin and queue and queue[0].handler is None and self._can_write is None:
                self._may_begin = False
                exchange = queue[0]
                handler = exchange.handler = self.shared.handler(exchange)
                handler.begin()
        finally:
            self._is_advancing = False
        if queue:
            if queue[0].handler is None and self._can_write is None:
                self.shared.backlog.add(self)
        elif self._reader.is_ended:
            if self._refusal:
                self.write(self._refusal)
                self._refusal = b""
                self._close(lingers=True)
            elif self._closes_after_answers:
                self._close(lingers=False)

    def _refuse(self, status: int, words: str, headers: Sequence[Header] = ()) -> None:
        """Refuse the request that is being read, after the answers to earlier requests; then close."""
        log.debug("request_refused", peer=self.address("peername"), status=status, reason=words)
        reader = self._reader
        exchange = reader.current
        reader.end()
        if exchange is not None and exchange.is_answered:
            # The client may still read the answer, while it sends more than is read.
            self._close(lingers=True)
            return
        if exchange is not None and exchange.has_begun:
            # The client would read a second answer as a part of the first one, or as the next answer.
            self._closes_after_answers = True
        else:
            self._refusal = text(status, words, (*self.shared.headers, *headers))
        if exchange is not None and exchange in self._queue:
            self._queue.remove(exchange)
            exchange.lose()
        self._advance()

    def _close(self, *, lingers: bool) -> None:
        """Close after everything is sent.

        `lingers`: read and drop data of the client for LINGER_S, so that the client receives the answer.
        """
        self._reader.is_ended = True
        self._left = b""
        # TLS cannot close one direction only, so the connection cannot linger there.
        if not lingers or self._transport.is_closing() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._patience.linger(self.shared.clock())
        self._transport.write_eof()
        self._pace()

    def _drop(self, data: bytes) -> None:
        """Drop data that arrives after the last request, but not at the full speed of a network."""
        self._dropped_bytes += len(data)
        if self._dropped_bytes > LINGER_BYTES_MAX and not self._is_read_paused:
            self._is_read_paused = True
            self._transport.pause_reading()

    def _lose_all(self) -> None:
        self._left = b""
        while self._queue:
            self._queue.popleft().lose()
