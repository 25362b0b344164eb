"""A connection of the listener without sockets: the bytes that it reads and writes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from knative_gateway.http.backlog import Backlog
from knative_gateway.http.connection import Connection
from knative_gateway.http.exchange import Exchange, Handler
from knative_gateway.http.responses import head
from knative_gateway.http.service import Service


class Transport(asyncio.Transport):
    """Records the written bytes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 5), "sockname": ("192.0.2.2", 80)})
        self.written = bytearray()
        self.is_ended = self.is_closed = self.is_paused = False
        self.waiting = 0

    def write(self, data: Any) -> None:
        assert not self.is_ended, "nothing follows the end"
        self.written += data

    def write_eof(self) -> None:
        self.is_ended = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.is_ended = self.is_closed = True

    def abort(self) -> None:
        self.is_ended = self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        assert not self.is_paused, "it is paused already"
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused, "it is not paused"
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.waiting


class Echo:
    """Answers with the request as it was parsed, when the request is complete."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.taken = b""
        self.lost_times = 0

    def begin(self) -> None:
        self.exchange.invite()
        self.received()

    def received(self) -> None:
        exchange = self.exchange
        self.taken += exchange.take()
        if exchange.is_whole and not exchange.body:
            self.answer()

    def answer(self) -> None:
        exchange = self.exchange
        body = b"%b %b %r %b" % (exchange.method, exchange.target, exchange.headers, self.taken)
        close = exchange.must_close
        exchange.write(
            head(200, [(b"content-length", str(len(body)).encode()), (b"close", str(close).encode())]) + body
        )
        exchange.end(close=close)

    def lost(self) -> None:
        self.lost_times += 1


class Wire:
    """One connection; `now` is its clock."""

    def __init__(
        self,
        handler: Callable[[Exchange], Handler] = Echo,
        *,
        connections_max: int = 10,
        held_max: int = 1 << 30,
        unread_max: int = 1 << 30,
    ) -> None:
        self.now = 100.0
        self.transport = Transport()
        self.handlers: list[Any] = []
        self.tasks: set[Any] = set()
        self.due: list[Callable[[], None]] = []
        """What the event loop calls in its next iteration."""
        self.service = Service[Connection](
            self._made(handler),
            lambda: self.now,
            Backlog(self.due.append),
            connections_max=connections_max,
            held_max=held_max,
            unread_max=unread_max,
        )
        self.connection = Connection(self.service)
        self.connection.connection_made(self.transport)

    def _made(self, handler: Callable[[Exchange], Handler]) -> Callable[[Exchange], Handler]:
        def make(exchange: Exchange) -> Handler:
            self.handlers.append(handler(exchange))
            made: Handler = self.handlers[-1]
            return made

        return make

    def send(self, *pieces: bytes) -> bytes:
        """Send bytes of the client as far as they are read, and return all bytes of the answers."""
        for piece in pieces:
            if self.transport.is_closed:
                break
            self.connection.data_received(piece)
        self.run()
        return bytes(self.transport.written)

    def run(self) -> None:
        """The iterations of the event loop until nothing is due."""
        while self.due:
            self.due.pop(0)()

    def look(self, after_s: float = 0.0) -> None:
        """The listener looks, some seconds later."""
        self.now += after_s
        self.connection.look(self.now, request_s=30.0, idle_s=60.0)


def bytewise(data: bytes) -> Iterable[bytes]:
    """Return the bytes one by one."""
    return (data[at : at + 1] for at in range(len(data)))
