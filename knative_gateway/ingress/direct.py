"""[io] The fast path of the ingress: one event of known length to a Broker or Channel, without ASGI.

It does the same as `app.Ingress` in half the time, for nearly every request. All other requests (batches,
chunked bodies, tokens, duplicate detection, unknown paths) go to the application.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import structlog

from event_formats.amqp_binding import encode
from event_formats.errors import EventFormatError
from event_formats.http_binding import from_http
from event_formats.http_to_amqp import Head
from knative_gateway.engine.appending import Report
from knative_gateway.errors import BadRequestError, GatewayError, UnsupportedMediaError
from knative_gateway.http.exchange import Exchange
from knative_gateway.http.responses import CLOSE
from knative_gateway.http.responses import head as response_head
from knative_gateway.ingress import answers
from knative_gateway.ingress.answers import Answer, refusal
from knative_gateway.ingress.app import BROKER, LARGE_BYTES, Ingress
from knative_gateway.ingress.figures import RouteFigures
from knative_gateway.ingress.receiving import received
from knative_gateway.ingress.requests import Request
from knative_gateway.ingress.transcoding import head
from knative_gateway.ports import Route

Headers = Sequence[tuple[bytes, bytes]]

log = structlog.get_logger("knative_gateway.ingress")


class PostingLog(Protocol):
    """An event log that accepts appends without a task for each of them."""

    def post(self, log: str, message: bytes, report: Report) -> None:
        """Store one message; `report` is called once, later."""


class FastPath:
    """Decides which requests take the fast path."""

    def __init__(self, ingress: Ingress, event_log: PostingLog, clock: Callable[[], float]) -> None:
        self.ingress: Final = ingress
        self.log: Final = event_log
        self.clock: Final = clock

    def open(self, exchange: Exchange) -> "Arrival | None":
        """Return the handler of a request whose headers have arrived; None: the application must
        answer it.
        """
        # The table is keyed by the raw target, so a path that is written in another way (a slash at its end,
        # %2F, a query) is not found here. The application decodes it and answers.
        route = self.ingress.direct.get(exchange.target) if exchange.method == b"POST" else None
        # A client that expects 100 waits for it before it sends its body, and only the application sends it.
        # HTTP/1.0 needs other rules for the end of the connection.
        if route is None or exchange.expects_continue or exchange.version != "1.1":
            return None
        begun: Head | Request | None = head(
            exchange.headers, self.ingress.arrival() if route.kind == BROKER else None, exchange.frame
        )
        if begun is None:
            begun = _request(exchange.headers)
        # Without a length the body cannot be collected without a count on the way, and a body that is too
        # large needs a refusal before it is read.
        if begun is None or begun.length is None or begun.length > self.ingress.limits.body_bytes:
            return None
        # The application parses it in turns.
        if isinstance(begun, Request) and begun.length > LARGE_BYTES:
            return None
        return Arrival(self, exchange, route, begun)


class Arrival:
    """The handler of one exchange: it stores the event of the request."""

    __slots__ = ("_begun", "_exchange", "_fast_path", "_figures", "_route", "_started")

    def __init__(self, fast_path: FastPath, exchange: Exchange, route: Route, begun: Head | Request) -> None:
        self._fast_path: Final = fast_path
        self._exchange: Final = exchange
        self._route: Final = route
        self._begun: Final = begun
        self._started: Final = fast_path.clock()
        self._figures: Final[RouteFigures] = fast_path.ingress.figures.of(route)
        exchange.collects = True  # the body may be collected: its length is known and within the limit
        # Counted here and not in `received`: the metric shows also the requests whose bodies are still
        # arriving.
        self._figures.in_flight += 1

    def begin(self) -> None:
        """Store the event if the body has already arrived."""
        if self._exchange.is_whole:
            self.received()

    def received(self) -> None:
        """Store the event: the body is complete."""
        ingress, route, begun = self._fast_path.ingress, self._route, self._begun
        if not ingress.serves(route):
            self._answer(answers.NOT_FOUND)  # the route was removed while the body arrived
            return
        try:
            body = bytes(self._exchange.body)
            if isinstance(begun, Head):
                message = begun.message(body)
            else:
                arrival = ingress.arrival() if route.kind == BROKER else None
                message = encode(
                    received(from_http(self._exchange.headers, body), arrival, begun.trace), begun.passed_on
                )
            self._fast_path.log.post(route.log, message, self._stored)
        except (GatewayError, EventFormatError) as error:
            log.debug("event_refused", route=route.path, error=type(error).__name__, reason=str(error))
            self._answer(refusal(error))
        except Exception:
            # A defect in the handling of one event must not reach the parser, which would end the connection
            # of a client that sent a valid request.
            log.exception("event_not_taken", route=route.path)
            self._answer(answers.BROKEN)

    def lost(self) -> None:
        """The client disconnected. An event whose body was complete is still stored."""
        # With a complete body the append has been posted, and `_stored` counts down when its outcome is
        # known.
        if not self._exchange.is_whole:
            self._figures.in_flight -= 1

    def _stored(self, error: GatewayError | None) -> None:
        if error is None:
            self._figures.events += 1
            self._figures.bytes += len(self._exchange.body)
        self._answer(answers.ACCEPTED if error is None else refusal(error))

    def _answer(self, answer: Answer) -> None:
        figures, exchange = self._figures, self._exchange
        figures.in_flight -= 1
        figures.answered(answer.status, self._fast_path.clock() - self._started)
        # The outcome is counted even if the client has left: the metrics show what the log did.
        if not exchange.is_lost:
            close = exchange.must_close
            exchange.write(rendered(answer, exchange.connection.shared.headers, close=close))
            exchange.end(close=close)


def _request(headers: Headers) -> Request | None:
    """Read the headers of a request that the fast transcoding does not support; None: the application must
    answer.
    """
    try:
        request = Request(headers)
    except (BadRequestError, UnsupportedMediaError):
        return None
    return None if request.batch or not request.has_host else request


def rendered(answer: Answer, default_headers: Headers, *, close: bool) -> bytes:
    """Return a whole response.

    The answer 202 is rendered once for each value of the default headers, which contain the date.
    """
    # The identity of the list is enough: the listener replaces the list once a second, when the date changes.
    # So the usual answer costs no rendering.
    if answer is answers.ACCEPTED and not close:
        if _accepted[0] is not default_headers:
            _accepted[:] = [default_headers, _render(answer, default_headers, close=False)]
        response: bytes = _accepted[1]
        return response
    return _render(answer, default_headers, close=close)


_accepted: Final[list[Any]] = [None, b""]


def _render(answer: Answer, default_headers: Headers, *, close: bool) -> bytes:
    own: Any = answer.start["headers"]
    body: bytes = answer.body["body"]  # type: ignore[assignment]  # as `answers.answer` makes it
    return response_head(answer.status, (*default_headers, *own, *((CLOSE,) if close else ()))) + body
