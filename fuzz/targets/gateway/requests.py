"""What a client sends to the gateway's HTTP listener: read in one piece or in many, it means the same, and
every request is answered once.

Inputs stay below the limit on headers: beyond it, the pieces decide which of two refusals a client gets.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from fuzz.targets.gateway.transport import Transport
from knative_gateway.http.backlog import Backlog
from knative_gateway.http.connection import Connection
from knative_gateway.http.exchange import Exchange
from knative_gateway.http.responses import head
from knative_gateway.http.service import Service

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
WORDS: Final = (
    b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"POST /p HTTP/1.1\r\n", b"content-length: 3\r\n", b"\r\nabc",
    b"\r\n", b": ", b"transfer-encoding: chunked\r\n", b"\r\n3\r\nabc\r\n0\r\n\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n", b"connection: close\r\n", b"expect: 100-continue\r\n",
    b"HTTP/1.0\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"x" * 5_000,
)  # fmt: skip


class _Handler:
    """Answers with what it understood. `whole`: takes the body in one piece."""

    def __init__(self, exchange: Exchange, *, whole: bool) -> None:
        self._exchange = exchange
        self._whole = whole
        self._taken = b""
        exchange.collects = whole

    def begin(self) -> None:
        self._exchange.invite()
        self.received()

    def received(self) -> None:
        exchange = self._exchange
        if not self._whole or exchange.is_whole:
            self._taken += exchange.take()
        if exchange.is_whole and not exchange.body:
            body = b"%b %b %r %b" % (exchange.method, exchange.target, exchange.headers, self._taken)
            close = exchange.must_close
            exchange.write(head(200, [(b"content-length", b"%d" % len(body))]) + body)
            exchange.end(close=close)

    def lost(self) -> None:
        if self._exchange.is_answered:
            raise WrongError("an exchange is lost after its answer")


def _read(pieces: list[bytes], *, whole: bool) -> tuple[bytes, bool]:
    due: deque[Callable[[], None]] = deque()
    service = Service[Connection](
        lambda exchange: _Handler(exchange, whole=whole),
        lambda: 0.0,
        Backlog(due.append),
        connections_max=9,
        held_max=1 << 20,
    )
    connection, transport = Connection(service), Transport()
    connection.connection_made(transport)
    for piece in pieces:
        if transport.is_closed:
            break
        connection.data_received(piece)
        while due:
            due.popleft()()
    if b"a fault of the gateway" in transport.written:
        raise WrongError("a fault of the gateway")
    connection.connection_lost(None)
    return bytes(transport.written).replace(_CONTINUE, b""), transport.is_ended


def run(data: bytes) -> str:
    """Words and bytes, cut at drawn places."""
    draw = Draw(data)
    sent = b"".join(draw.pick(WORDS) if draw.chance(2) else draw.raw(30) for _ in range(draw.below(12)))
    step = 1 + draw.below(3000 if len(sent) > 3000 else 40)
    once = _read([sent] if sent else [], whole=False)
    if _read([sent[at : at + step] for at in range(0, len(sent), step)], whole=draw.chance(2)) != once:
        message = f"pieces of {step} bytes mean something else: {sent[:300]!r}"
        raise WrongError(message)
    written, ended = once
    return f"{written.count(b'HTTP/1.1 200')} {written[-60:-40]!r} {ended}"


TARGET: Final = Target("requests", run, seconds_max=0.5, words=WORDS[:-1])
