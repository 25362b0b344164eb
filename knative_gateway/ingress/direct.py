"""[io] The shortest way in: one event of a known length to a Broker or Channel, from the parser to the log and back without ASGI.

It does what `app.Ingress` does, in half the time, for what nearly every request is. Everything else (batches, chunked bodies, tokens,
duplicate detection, pipelined requests, unknown paths) goes to that one: a request is taken here whole, or left alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import structlog

from event_formats.amqp_binding import encode
from event_formats.errors import EventFormatError
from event_formats.http_binding import from_http
from event_formats.http_to_amqp import Head
from knative_gateway.engine.appending import Told
from knative_gateway.errors import BadRequestError, GatewayError, UnsupportedMediaError
from knative_gateway.http.listening import Protocol as HttpProtocol
from knative_gateway.ingress import answers
from knative_gateway.ingress.answers import Answer, refusal
from knative_gateway.ingress.app import BROKER, Ingress
from knative_gateway.ingress.figures import RouteFigures
from knative_gateway.ingress.receiving import received
from knative_gateway.ingress.requests import Request
from knative_gateway.ingress.transcoding import head
from knative_gateway.ports import Route

Headers = Sequence[tuple[bytes, bytes]]

log = structlog.get_logger("knative_gateway.ingress")


class PostingLog(Protocol):
    """An event log that takes appends without a task each."""

    def post(self, log: str, message: bytes, told: Told) -> None:
        """Store one message; `told` is called once, later."""


class Exchange:
    """One request and its answer; to uvicorn's protocol it looks like a cycle of its own."""

    __slots__ = ("body", "disconnected", "figures", "head", "headers", "keep_alive", "more_body", "response_complete", "route", "started")

    def __init__(
        self, route: Route, figures: RouteFigures, headers: Headers, begun: Head | Request, *, keep_alive: bool, started: float
    ) -> None:
        self.route: Final = route
        self.figures: Final = figures
        self.headers: Final = headers
        self.head: Final = begun
        self.started: Final = started
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.more_body = True
        self.response_complete = False
        self.disconnected = False

    @property
    def message_event(self) -> "Exchange":
        """What uvicorn wakes a waiting application with: nobody waits here."""
        return self

    def set(self) -> None:
        """See `message_event`."""


class Door:
    """Decides which requests come in this way, and takes them."""

    def __init__(self, ingress: Ingress, event_log: PostingLog, clock: Callable[[], float]) -> None:
        self._ingress: Final = ingress
        self._log: Final = event_log
        self._clock: Final = clock

    def open(self, method: bytes, url: bytes, headers: Headers, *, keep_alive: bool) -> Exchange | None:
        """The exchange, if this request is one for here."""
        route = self._ingress.direct.get(url) if method == b"POST" else None
        if route is None:
            return None
        begun: Head | Request | None = head(headers, self._ingress.arrival() if route.kind == BROKER else None)
        if begun is None:
            begun = self._request(headers)
        if begun is None or begun.length is None or begun.length > self._ingress.limits.body_bytes:
            return None
        figures = self._ingress.figures.of(route)
        figures.in_flight += 1
        return Exchange(route, figures, headers, begun, keep_alive=keep_alive, started=self._clock())

    def _request(self, headers: Headers) -> Request | None:
        """What is not plain, but one event of a known length all the same."""
        try:
            request = Request(headers)
        except (BadRequestError, UnsupportedMediaError):
            return None
        return None if request.batch or request.hosts != 1 else request

    def take(self, exchange: Exchange, answered: Callable[[Exchange, Answer], None]) -> None:
        """All of it is here: store it; `answered` is called once, now or later."""

        def told(error: GatewayError | None) -> None:
            if error is None:
                figures.events += 1
                figures.bytes += len(exchange.body)
            self._answer(exchange, answers.ACCEPTED if error is None else refusal(error), answered)

        ingress, route, begun, figures = self._ingress, exchange.route, exchange.head, exchange.figures
        if not ingress.serves(route):
            self._answer(exchange, answers.NOT_FOUND, answered)  # it went while the body came
            return
        try:
            body = bytes(exchange.body)
            if isinstance(begun, Head):
                message = begun.message(body)
            else:
                event = received(from_http(exchange.headers, body), ingress.arrival() if route.kind == BROKER else None, begun.trace)
                message = encode(event, begun.passed_on)
            self._log.post(route.log, message, told)
        except (GatewayError, EventFormatError) as error:
            log.debug("event_refused", route=route.path, error=type(error).__name__, reason=str(error))
            self._answer(exchange, refusal(error), answered)
        except Exception:
            log.exception("event_not_taken", route=route.path)
            self._answer(exchange, answers.BROKEN, answered)

    def abandon(self, exchange: Exchange) -> None:
        """Its client left before all of it was here."""
        exchange.figures.in_flight -= 1

    def _answer(self, exchange: Exchange, answer: Answer, answered: Callable[[Exchange, Answer], None]) -> None:
        figures = exchange.figures
        figures.in_flight -= 1
        figures.answered(answer.status, self._clock() - exchange.started)
        answered(exchange, answer)


class DirectProtocol(HttpProtocol):
    """One connection. Made with a `door` by `with_door`."""

    door: Door

    def on_message_begin(self) -> None:
        """A request begins; what only the long way needs is made when it is taken."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.waiting_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """Which way?"""
        before, parser = self.cycle, self.parser
        idle = before is None or before.response_complete
        if idle and not self.expect_100_continue and not self.flow.write_paused and parser.get_http_version() == "1.1":
            exchange = self.door.open(parser.get_method(), self.url, self.headers, keep_alive=parser.should_keep_alive())
            if exchange is not None:
                self.cycle = exchange  # type: ignore[assignment]  # it looks like one
                return
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expected
        self.scope["headers"] = headers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece; of an exchange there are never more than its length, which is within the limit."""
        exchange: Any = self.cycle
        if type(exchange) is Exchange:
            exchange.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is here."""
        exchange: Any = self.cycle
        if type(exchange) is Exchange:
            self.waiting_since = None
            exchange.more_body = False
            self.door.take(exchange, self._answered)
        else:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        exchange: Any = self.cycle
        if type(exchange) is Exchange and exchange.more_body:
            self.door.abandon(exchange)
        super().connection_lost(exc)

    def _answered(self, exchange: Exchange, answer: Answer) -> None:
        exchange.response_complete = True
        if exchange.disconnected or self.transport.is_closing():
            return
        self.transport.write(rendered(answer, self.server_state.default_headers, close=not exchange.keep_alive))
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()


def with_door(door: Door) -> type[DirectProtocol]:
    """The protocol of a listener whose requests may come in by this door."""
    return type("Connection", (DirectProtocol,), {"door": door})


def rendered(answer: Answer, default_headers: Headers, *, close: bool) -> bytes:
    """A whole response. What is answered most is remembered for as long as its date holds."""
    if answer is answers.ACCEPTED and not close:
        if _accepted[0] is not default_headers:
            _accepted[:] = [default_headers, _render(answer, default_headers, close=False)]
        response: bytes = _accepted[1]
        return response
    return _render(answer, default_headers, close=close)


_accepted: Final[list[Any]] = [None, b""]


def _render(answer: Answer, default_headers: Headers, *, close: bool) -> bytes:
    pieces = [answers.STATUS_LINES[answer.status]]
    own: Any = answer.start["headers"]
    for name, value in (*default_headers, *own, *(((b"connection", b"close"),) if close else ())):
        pieces += (name, b": ", value, b"\r\n")
    body: Any = answer.body["body"]
    return b"".join((*pieces, b"\r\n", body))
