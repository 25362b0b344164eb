"""[io] The ASGI application of the ingress: POST and OPTIONS on the paths of the routes.

It answers 202 only after every event of the request is durable. Memory is bounded by the limit on a body and
by the limits on waiting appends.

Spec: knative-data-plane-contract, "Event Acknowledgement and Repeat Delivery"; knative-eventing-test-spec,
"Data Plane Assertions".
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import structlog

from event_formats.amqp_binding import encode
from event_formats.attributes import text_of
from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from event_formats.http_binding import each_from_http, steps_from_http
from knative_gateway.errors import GatewayError, TooLargeError, UnavailableError
from knative_gateway.http.turns import Turns
from knative_gateway.ingress import answers
from knative_gateway.ingress.answers import Answer, refusal
from knative_gateway.ingress.duplicates import Identity, Window, identity_of
from knative_gateway.ingress.figures import Figures, RouteFigures
from knative_gateway.ingress.receiving import Arrivals, received
from knative_gateway.ingress.requests import Request
from knative_gateway.ports import Authorizer, EventLog, Route, Routes

BROKER: Final = "Broker"
EVENTS_A_TURN: Final = 16
"""How many events of a batch begin to be stored in a turn: about a millisecond of work."""
STEP_S: Final = 0.001
"""How long the events of a request are read in a turn, in seconds."""
LARGE_BYTES: Final = 32 << 10
"""A larger body is read in turns."""
_OWN_BODY: Final = "knative_gateway.body"
"""Key in the scope of a request that the gateway itself makes; the value is the body."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = structlog.get_logger("knative_gateway.ingress")


@dataclass(frozen=True, slots=True)
class IngressLimits:
    """Limits of a request: bytes of its body, events of a batch, and seconds until the body is complete."""

    body_bytes: int = 1 << 20
    batch_events: int = 1000
    body_s: float = 30.0


class _GoneError(Exception):
    """The client disconnected before its request was complete."""


class Ingress:
    """Accepts events for the routes of the last call of `use`; before the first call, it has no routes.

    The ingress does not answer 404 for a Broker that may only be unknown yet. `starting`: not all routes are
    loaded yet. `addressed`: returns whether another replica has published a path as an address.
    """

    def __init__(
        self,
        event_log: EventLog,
        *,
        limits: IngressLimits | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.starting = False
        self.addressed: Callable[[str], Awaitable[bool]] | None = None
        self.figures: Final = Figures()
        self._log: Final = event_log
        self.limits: Final = limits or IngressLimits()
        self._authorizer: Final = authorizer
        self._arrivals: Final = Arrivals()
        self._turns: Final = Turns()
        """Of batches."""
        self._routes = Routes(0, {})
        self.direct: Mapping[bytes, Route] = {}
        self._windows: dict[str, Window] = {}
        self._storing: Final[dict[tuple[str, Identity], asyncio.Future[None]]] = {}

    def use(self, routes: Routes) -> None:
        """Serve these routes from the next request on."""
        # Windows are kept by uid, so a Broker that is recreated under the same name begins with an empty
        # memory, and an update of its Triggers does not empty it.
        old, self._windows = self._windows, {}
        for route in routes.by_path.values():
            if route.duplicates_ms is not None:
                window = old.get(route.uid)
                same = window is not None and window.window_ms == route.duplicates_ms
                self._windows[route.uid] = (
                    window if window is not None and same else Window(route.duplicates_ms)
                )
        # Before `_routes`: a request of a new route must find its counters.
        self.figures.use(routes)
        self._routes = routes
        # Routes whose single events need neither authorization nor duplicate detection; see `direct`.
        plain = () if self._authorizer is not None else routes.by_path.items()
        self.direct = {path.encode(): route for path, route in plain if route.duplicates_ms is None}

    def remove(self, paths: Collection[str]) -> None:
        """Serve these paths no more, from the next request on. The next `use` forgets their counters."""
        left = {each: one for each, one in self._routes.by_path.items() if each not in paths}
        self._routes = Routes(self._routes.version, left)
        self.direct = {each: one for each, one in self.direct.items() if one.path not in paths}

    def serves(self, route: Route) -> bool:
        """Return whether this Broker or Channel still exists, possibly with other subscribers."""
        now = self._routes.by_path.get(route.path)
        return now is route or (now is not None and now.uid == route.uid)

    def arrival(self) -> str:
        """Return the current time in the form of `knativearrivaltime`."""
        return self._arrivals.text(time.time_ns())

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "the application routes only http requests to the ingress"
        path: str = scope["path"]
        # A slash at the end is accepted because users add it to the address of a Broker in their settings.
        route = self._routes.by_path.get(path) or self._routes.by_path.get(path.removesuffix("/"))
        if route is None:
            answer = await self._unserved(path.removesuffix("/"), scope)
        elif scope["method"] == "POST":
            try:
                answer = await self._counted(route, scope, receive)
            except _GoneError:
                return
        else:
            answer = _without_event(scope["method"])
        await send(answer.start)
        await send(answer.body)

    async def take(self, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Answer:
        """Store the event of a request that the gateway itself makes.

        The request needs no token, and its body was checked against the limits when it arrived.
        """
        route = self._routes.by_path.get(path)
        return (
            await self._unknown(path)
            if route is None
            else await self._counted(route, {"headers": headers, _OWN_BODY: body}, _nothing)
        )

    async def _counted(self, route: Route, scope: Message, receive: Receive) -> Answer:
        loop = asyncio.get_running_loop()
        started = loop.time()
        # The counters are looked up once, before the first wait: `use` may remove the route while the body
        # arrives.
        figures = self.figures.of(route)
        figures.in_flight += 1
        try:
            answer = await self._post(route, figures, scope, receive)
        finally:
            figures.in_flight -= 1
        figures.answered(answer.status, loop.time() - started)
        return answer

    async def _unserved(self, path: str, scope: Message) -> Answer:
        """Return the answer for a path without a Broker or Channel.

        A client that may not send to the namespace gets the answer that an existing Broker would give.
        Otherwise any client could detect which Brokers exist.
        """
        meant = _meant(path)
        if meant is not None and self._authorizer is not None:
            try:
                await self._authorizer.may_send(Request(scope["headers"]).authorization, meant)
            except GatewayError as error:
                log.debug("event_refused", route=path, error=type(error).__name__, reason=str(error))
                return refusal(error) if scope["method"] == "POST" else _without_event(scope["method"])
        return await self._unknown(path)

    async def _unknown(self, path: str) -> Answer:
        try:
            if self.starting or (self.addressed is not None and await self.addressed(path)):
                return answers.STARTING
        except GatewayError as error:
            return refusal(error)
        # Only a definite 404 counts. During the start, the path may belong to a Broker that is not loaded
        # yet.
        self.figures.unknown += 1
        return answers.NOT_FOUND

    async def _post(self, route: Route, figures: RouteFigures, scope: Message, receive: Receive) -> Answer:
        size = 0
        try:
            headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
            request = Request(headers)
            own: bytes | None = scope.get(_OWN_BODY)
            if own is None and self._authorizer is not None:
                # Before the body is read: a client without the right must not make the gateway hold a body.
                await self._authorizer.may_send(request.authorization, route)
            body = await self._body(request, receive) if own is None else own
            size = len(body)
            if not self.serves(route):
                return answers.NOT_FOUND  # the route was removed while the body arrived
            read = each_from_http if size <= LARGE_BYTES else steps_from_http
            found = read(headers, body, count_max=self.limits.batch_events)
            arrival = self.arrival() if route.kind == BROKER else None
            events = (
                [received(found[0], arrival, request.trace)]
                if isinstance(found, tuple)
                else await self._batch(found, arrival, request.trace)
            )
            # The common case without the tasks that `_store` needs.
            if len(events) == 1 and route.duplicates_ms is None:
                await self._log.append(route.log, encode(events[0], request.passed_on))
            else:
                await self._store(route, figures, events, request.passed_on)
        except (GatewayError, EventFormatError) as error:
            log.debug("event_refused", route=route.path, error=type(error).__name__, reason=str(error))
            # A body of unknown length that is too large may never end.
            return refusal(error, close=isinstance(error, TooLargeError) and request.length is None)
        except TimeoutError:
            return answers.TOO_SLOW
        except _GoneError:
            raise
        except Exception:
            log.exception("event_not_taken", route=route.path)
            return answers.BROKEN
        figures.events += len(events)
        figures.bytes += size
        return answers.ACCEPTED

    async def _body(self, request: Request, receive: Receive) -> bytes:
        """Read the whole body.

        Raises:
            TooLargeError: before more than the limit is in memory.
            TimeoutError: the body was not complete in time.
        """
        limit = self.limits.body_bytes
        if request.length is not None and request.length > limit:
            raise _too_large(limit)
        # In most requests, the first message contains the whole body and does not wait. A client that sends
        # nothing after the headers is cut off by the listener.
        message = await _next(receive)
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            pieces, size = [body], len(body)
            async with asyncio.timeout(self.limits.body_s):
                while message.get("more_body", False):
                    message = await _next(receive)
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > limit:
                        raise _too_large(limit)
            # Joined once at the end: adding each piece to a growing body would copy a large body for each
            # piece.
            body = b"".join(pieces)
        if len(body) > limit:
            raise _too_large(limit)
        return body

    async def _batch(
        self, found: Iterator[CloudEvent | None], arrival: str | None, trace: Mapping[str, str] | None
    ) -> Sequence[CloudEvent]:
        """All events of a batch or of a large body, in turns: they must not delay other requests."""
        events: list[CloudEvent] = []
        until = perf_counter() + STEP_S
        for event in found:
            if event is not None:
                events.append(received(event, arrival, trace))
            if perf_counter() > until:
                await self._turns.turn()
                until = perf_counter() + STEP_S
        return events

    async def _store(
        self,
        route: Route,
        figures: RouteFigures,
        events: Sequence[CloudEvent],
        passed_on: Mapping[str, str] | None,
    ) -> None:
        """Store all events, in parallel. If some are not stored, raises the error of one of them."""
        storing: list[asyncio.Task[None]] = []
        try:
            for first in range(0, len(events), EVENTS_A_TURN):
                if first:
                    await self._turns.turn()
                storing += [
                    asyncio.ensure_future(self._store_one(route, figures, event, passed_on))
                    for event in events[first : first + EVENTS_A_TURN]
                ]
            done = await asyncio.gather(*storing, return_exceptions=True)
        finally:
            for each in storing:
                each.cancel()  # without effect on those that have ended
        failures = [failure for failure in done if failure is not None]
        # The sender gets one status for the batch. It must send the whole batch again, because the standard
        # has no answer for a part of it; duplicate detection removes the events that were stored.
        if failures:
            raise failures[0]

    async def _store_one(
        self, route: Route, figures: RouteFigures, event: CloudEvent, passed_on: Mapping[str, str] | None
    ) -> None:
        message = encode(event, passed_on)
        window = self._windows.get(route.uid) if route.duplicates_ms is not None else None
        if window is None:
            await self._log.append(route.log, message)
        elif not await self._store_once(route, window, event, message):
            figures.duplicates += 1

    async def _store_once(self, route: Route, window: Window, event: CloudEvent, message: bytes) -> bool:
        """Store an event unless it was stored before. Returns whether it was stored now.

        If another request is storing the same event, wait for that request and use its outcome.
        """
        identity = identity_of(text_of(event.attributes["source"]), text_of(event.attributes["id"]))
        loop = asyncio.get_running_loop()
        if window.knows(identity, loop.time() * 1000):
            return False
        key = (route.uid, identity)
        # A sender that retries after a timeout may overlap with its own first request. Without this, both
        # would miss each other in the window and the event would be stored twice.
        other = self._storing.get(key)
        if other is not None:
            # The shield keeps the future of the other request usable if this request is cancelled.
            await asyncio.shield(other)
            return False
        mine = self._storing[key] = loop.create_future()
        try:
            await self._log.append(route.log, message)
        except BaseException as error:
            mine.set_exception(
                error
                if isinstance(error, GatewayError)
                else UnavailableError("another request with the same event was cancelled")
            )
            mine.exception()  # retrieved, so that asyncio does not log it if no request waits for it
            raise
        finally:
            del self._storing[key]
        # Only now, after the append: an event that was not stored must not be refused as a duplicate when it
        # is sent again.
        window.note(identity, loop.time() * 1000)
        mine.set_result(None)
        return True


async def _nothing() -> Message:
    raise AssertionError("the body is there")


async def _next(receive: Receive) -> Message:
    """Return the next piece of the body."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _GoneError
    return message


def _meant(path: str) -> Route | None:
    """Return the Broker or Channel to which a path would belong; None if it is not a path of either."""
    match path.split("/"):
        case ["", kind, namespace, name] if namespace and name:
            return Route(uid="", kind=kind, namespace=namespace, name=name, path=path, log="")
        case _:
            return None


def _without_event(method: str) -> Answer:
    return answers.OPTIONS if method == "OPTIONS" else answers.NOT_ALLOWED


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"the body has more than {limit} bytes")
