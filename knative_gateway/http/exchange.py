"""One request and its answer, between the connection that reads it and the handler that answers it.

A handler answers an exchange once. Data that it writes after the client disconnected is dropped.
"""

from typing import Final, Protocol

from knative_gateway.http.responses import CONTINUE, Header, text
from knative_gateway.http.whole import Frame


class Handler(Protocol):
    """Answers one exchange. The connection calls these methods; they must not block."""

    def begin(self) -> None:
        """Start. The body may have arrived completely, partly or not at all.

        Called once, after all earlier requests are answered.
        """

    def received(self) -> None:
        """More of the body has arrived, or its end."""

    def lost(self) -> None:
        """The client disconnected, or the remaining request is not valid.

        Called at most once, before the answer is complete.
        """


class Shared:
    """State for all answers of a listener.

    `headers`: default headers; the list is replaced, never changed. `is_leaving`: each answer closes its
    connection.
    """

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.is_leaving = False


class Owner(Protocol):
    """The connection of an exchange."""

    @property
    def shared(self) -> Shared:
        """The state that all connections of the listener share."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def read_on(self) -> None:
        """The handler took a part of the body: reading may resume."""

    def answered(self, exchange: "Exchange") -> None:
        """The answer is complete."""

    async def writable(self) -> None:
        """Wait until the client has read enough of the earlier bytes, or has disconnected."""

    def abort(self) -> None:
        """Close the connection at once."""

    def address(self, kind: str) -> tuple[str, int] | None:
        """Return host and port of the client (`peername`) or of this side (`sockname`)."""

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is used."""


class Exchange:
    """A request whose headers have arrived, and its answer.

    `target`: the second word of the request line. `headers`: names are in lower case. `body`: the bytes that
    arrived and were not taken. `received`: how many arrived, with large headers, except in a request that the
    connection took as one block. `is_whole`: the request is complete. `has_begun`: a part of the answer was
    sent. `collects`: the handler takes the whole body at its end, and the body has a limit. `frame`: see
    `whole.py`.
    """

    __slots__ = (
        "body",
        "collects",
        "connection",
        "expects_continue",
        "frame",
        "handler",
        "has_begun",
        "headers",
        "is_answered",
        "is_lost",
        "is_whole",
        "keep_alive",
        "method",
        "received",
        "target",
        "version",
    )

    def __init__(
        self,
        connection: Owner,
        method: bytes,
        target: bytes,
        headers: list[Header],
        *,
        version: str,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.connection: Final = connection
        self.method: Final = method
        self.target: Final = target
        self.headers: Final = headers
        self.version: Final = version
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self.body = bytearray()
        self.received = 0
        self.frame: Frame | None = None
        self.collects = False
        self.is_whole = False
        self.has_begun = False
        self.is_lost = False
        self.is_answered = False
        self.handler: Handler | None = None

    @property
    def must_close(self) -> bool:
        """Whether the connection ends with this answer. The answer must then have `connection: close`.

        A client that waits for `100 Continue` and gets another answer may omit the body. Then neither side
        knows where the next request begins.
        """
        return (
            not self.keep_alive
            or self.connection.shared.is_leaving
            or (self.expects_continue and not self.is_whole)
        )

    def invite(self) -> None:
        """Ask for the body if the client waits for `100 Continue` (RFC 9110, 10.1.1)."""
        if self.expects_continue:
            # Sent at most once, and before the first byte of the body is needed.
            self.expects_continue = False
            if not self.is_whole and not self.is_lost:
                self.connection.write(CONTINUE)

    def take(self) -> bytes:
        """Remove and return the part of the body that has arrived, and resume reading."""
        body = bytes(self.body)
        self.body.clear()
        if not self.is_whole:
            # Only while more of the body may arrive: the connection may have paused at its limit for this
            # exchange.
            self.connection.read_on()
        return body

    def write(self, data: bytes) -> None:
        """Send a part of the answer."""
        self.has_begun = True
        if not self.is_lost:
            self.connection.write(data)

    def end(self, *, close: bool) -> None:
        """Complete the answer. `close`: the answer has `connection: close`."""
        self.is_answered = True
        # The handler refers to this exchange: the cycle would keep the body until a garbage collection.
        self.handler = None
        if not self.is_whole:
            self.body.clear()  # later parts of the body are dropped when they arrive
        if not self.is_lost:
            # The connection reads this in `answered`.
            self.keep_alive = not close
            self.connection.answered(self)

    def lose(self) -> None:
        """Report to the handler that the client has disconnected."""
        self.is_lost = True
        handler, self.handler = self.handler, None
        if handler is not None and not self.is_answered:
            handler.lost()

    def cut(self) -> None:
        """Close the connection, because the answer has begun and cannot be completed."""
        if not self.is_lost:
            self.connection.abort()

    def refuse(self, status: int, words: str) -> None:
        """Answer with a line of text, and close the connection."""
        self.write(text(status, words, self.connection.shared.headers))
        self.end(close=True)
