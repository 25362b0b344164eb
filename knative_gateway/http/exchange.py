"""One request and its answer, between the connection that reads it and the handler that answers it.

Law: a handler answers an exchange once; what it writes after the client has gone is dropped.
"""

from typing import Final, Protocol

from knative_gateway.http.responses import CONTINUE, Header, text


class Handler(Protocol):
    """Answers one exchange. The connection calls these methods; none of them may block."""

    def begin(self) -> None:
        """Start. All, a part or nothing of the body is here. Called once, when all earlier requests are
        answered.
        """

    def received(self) -> None:
        """More of the body is here, or the end of it."""

    def lost(self) -> None:
        """The client has gone, or the rest of its request is not valid. Called at most once, before the
        answer is complete.
        """


class Shared:
    """What every answer of a listener needs: its headers (the same list until they change), and whether it
    must close its connection.
    """

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.is_leaving = False


class Owner(Protocol):
    """The connection, as an exchange sees it."""

    @property
    def shared(self) -> Shared:
        """What all connections of the listener share."""

    def write(self, data: bytes) -> None:
        """Send these bytes."""

    def read_on(self) -> None:
        """The handler took a part of the body: there is room for more."""

    def answered(self, exchange: "Exchange") -> None:
        """The answer is complete."""

    async def writable(self) -> None:
        """Return when the client has read enough of what was written before, or has gone."""

    def abort(self) -> None:
        """End the connection at once."""

    def address(self, kind: str) -> tuple[str, int] | None:
        """Of the client (`peername`) or of this side (`sockname`)."""

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is used."""


class Exchange:
    """A request whose head is here.

    `target` is the second word of the request line; names of `headers` are in lower case. `body` is what came
    and was not taken yet; `is_whole`: the request is complete. `has_begun`: a part of the answer is out.
    `collects`: the handler takes the body in one piece at the end, and the body has a limit.
    """

    __slots__ = (
        "body",
        "collects",
        "connection",
        "expects_continue",
        "handler",
        "has_begun",
        "headers",
        "is_answered",
        "is_lost",
        "is_whole",
        "keep_alive",
        "method",
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
        self.collects = False
        self.is_whole = False
        self.has_begun = False
        self.is_lost = False
        self.is_answered = False
        self.handler: Handler | None = None

    @property
    def must_close(self) -> bool:
        """Whether the connection ends with this answer; the answer must then say `connection: close`.

        A client that waits for `100 Continue` and gets another answer may leave out the body: then no one
        knows where the next request begins.
        """
        return (
            not self.keep_alive
            or self.connection.shared.is_leaving
            or (self.expects_continue and not self.is_whole)
        )

    def invite(self) -> None:
        """The body is wanted: say so to a client that waits for it. Spec: RFC 9110, 10.1.1."""
        if self.expects_continue:
            self.expects_continue = False
            if not self.is_whole and not self.is_lost:
                self.connection.write(CONTINUE)

    def take(self) -> bytes:
        """What is here of the body; the connection reads on."""
        body = bytes(self.body)
        self.body.clear()
        if not self.is_whole:
            self.connection.read_on()
        return body

    def write(self, data: bytes) -> None:
        """A part of the answer."""
        self.has_begun = True
        if not self.is_lost:
            self.connection.write(data)

    def end(self, *, close: bool) -> None:
        """The answer is complete. `close`: it said that the connection ends."""
        self.is_answered = True
        if not self.is_whole:
            self.body.clear()  # the rest is dropped as it comes
        if not self.is_lost:
            self.keep_alive = not close
            self.connection.answered(self)

    def cut(self) -> None:
        """End the connection: the answer has begun and cannot be completed."""
        if not self.is_lost:
            self.connection.abort()

    def refuse(self, status: int, words: str) -> None:
        """Answer with a line of text, and close the connection."""
        self.write(text(status, words, self.connection.shared.headers))
        self.end(close=True)
