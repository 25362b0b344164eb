"""[io] The ASGI application that takes events: POST and OPTIONS on the paths of the routes.

Spec: knative-data-plane-contract, "Event Acknowledgement and Repeat Delivery"; knative-eventing-test-spec,
"Data Plane Assertions".
Laws: 202 only after every event of the request is durable; memory is bounded by the limit on a body and by
what the log lets wait.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from event_formats.amqp_binding import encode
from event_formats.attributes import text_of
from event_formats.errors import EventFormatError
from event_formats.event import CloudEvent
from event_formats.http_binding import events_from_http
from knative_gateway.errors import GatewayError, TooLargeError, UnavailableError
from knative_gateway.ingress import answers
from knative_gateway.ingress.answers import Answer, refusal
from knative_gateway.ingress.duplicates import Identity, Window, identity_of
from knative_gateway.ingress.figures import Figures, RouteFigures
from knative_gateway.ingress.receiving import Arrivals, received
from knative_gateway.ingress.requests import Request
from knative_gateway.ports import Authorizer, EventLog, Route, Routes

BROKER: Final = "Broker"
_OWN_BODY: Final = "knative_gateway.body"
"""Of the scope of a request that the gateway makes itself."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = structlog.get_logger("knative_gateway.ingress")


@dataclass(frozen=True, slots=True)
class IngressLimits:
    """What a request may have: bytes of its body, events of a batch, seconds until all of it is here."""

    body_bytes: int = 1 << 20
    batch_events: int = 1000
    body_s: float = 30.0


class _GoneError(Exception):
    """The client left before its request was here."""


class Ingress:
    """Takes events for the routes it was last given, none at first.

    The ingress never answers 404 for a Broker that is only not known yet. `starting`: there may be more of them;
    `addressed`: whether another replica has answered a sender that this path accepts events.
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
        self._routes = Routes(0, {})
        self.direct: Mapping[bytes, Route] = {}
        self._windows: dict[str, Window] = {}
        self._storing: Final[dict[tuple[str, Identity], asyncio.Future[None]]] = {}

    def use(self, routes: Routes) -> None:
        """Serve these from the next request on."""
        old, self._windows = self._windows, {}
        for route in routes.by_path.values():
            if route.duplicates_ms is not None:
                window = old.get(route.uid)
                same = window is not None and window.window_ms == route.duplicates_ms
                self._windows[route.uid] = (
                    window if window is not None and same else Window(route.duplicates_ms)
                )
        self.figures.use(routes)
        self._routes = routes
        # Routes of which one event can be stored with nothing else to be asked first.
        plain = () if self._authorizer is not None else routes.by_path.items()
        self.direct = {path.encode(): route for path, route in plain if route.duplicates_ms is None}

    def serves(self, route: Route) -> bool:
        """This Broker or Channel is there still, as it was or with other subscribers."""
        now = self._routes.by_path.get(route.path)
        return now is route or (now is not None and now.uid == route.uid)

    def arrival(self) -> str:
        """Now, as Brokers write it."""
        return self._arrivals.text(time.time_ns())

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        assert scope["type"] == "http", "the application that mounts it sends nothing else here"
        path: str = scope["path"]
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
        """One request of the gateway itself, which is trusted and whose body was within limits when it came."""
        route = self._routes.by_path.get(path)
        return (
            await self._unknown(path)
            if route is None
            else await self._counted(route, {"headers": headers, _OWN_BODY: body}, _nothing)
        )

    async def _counted(self, route: Route, scope: Message, receive: Receive) -> Answer:
        loop = asyncio.get_running_loop()
        started = loop.time()
        figures = self.figures.of(route)
        figures.in_flight += 1
        try:
            answer = await self._post(route, figures, scope, receive)
        finally:
            figures.in_flight -= 1
        figures.answered(answer.status, loop.time() - started)
        return answer

    async def _unserved(self, path: str, scope: Message) -> Answer:
        """The answer for a path without a Broker or Channel.

        A client that may not send to the namespace gets the answer that a Broker would give it: else any
        client could find out which Brokers exist.
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
        self.figures.unknown += 1
        return answers.NOT_FOUND

    async def _post(self, route: Route, figures: RouteFigures, scope: Message, receive: Receive) -> Answer:
        size = 0
        try:
            headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
            request = Request(headers)
            own: bytes | None = scope.get(_OWN_BODY)
            if own is None and self._authorizer is not None:
                await self._authorizer.may_send(request.authorization, route)
            body = await self._body(request, receive) if own is None else own
            size = len(body)
            events = events_from_http(headers, body, count_max=self.limits.batch_events)
            arrival = self.arrival() if route.kind == BROKER else None
            if len(events) == 1 and route.duplicates_ms is None:
                await self._log.append(
                    route.log, encode(received(events[0], arrival, request.trace), request.passed_on)
                )
            else:
                await self._store(
                    route,
                    figures,
                    [received(event, arrival, request.trace) for event in events],
                    request.passed_on,
                )
        except (GatewayError, EventFormatError) as error:
            log.debug("event_refused", route=route.path, error=type(error).__name__, reason=str(error))
            # A body of unknown length that is too large already may go on forever.
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
        """The body, whole. Raises TooLargeError before more than the limit is held, TimeoutError."""
        limit = self.limits.body_bytes
        if request.length is not None and request.length > limit:
            raise _too_large(limit)
        # Mostly this is all of it, and here already. Who sends nothing after the headers is the listener's
        # affair.
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
            body = b"".join(pieces)
        if len(body) > limit:
            raise _too_large(limit)
        return body

    async def _store(
        self,
        route: Route,
        figures: RouteFigures,
        events: Sequence[CloudEvent],
        passed_on: Mapping[str, str] | None,
    ) -> None:
        """Have all of them stored; raises for one of those that are not."""
        done = await asyncio.gather(
            *(self._store_one(route, figures, event, passed_on) for event in events), return_exceptions=True
        )
        failures = [failure for failure in done if failure is not None]
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
        """Store it unless it was, or is being, stored; then its outcome is that of the other."""
        identity = identity_of(text_of(event.attributes["source"]), text_of(event.attributes["id"]))
        loop = asyncio.get_running_loop()
        if window.knows(identity, loop.time() * 1000):
            return False
        key = (route.uid, identity)
        other = self._storing.get(key)
        if other is not None:
            await asyncio.shield(other)
            return False
        mine = self._storing[key] = loop.create_future()
        try:
            await self._log.append(route.log, message)
        except BaseException as error:
            mine.set_exception(
                error
                if isinstance(error, GatewayError)
                else UnavailableError("the one that was being stored was given up")
            )
            mine.exception()  # the sender may not wait for it any more
            raise
        finally:
            del self._storing[key]
        window.note(identity, loop.time() * 1000)
        mine.set_result(None)
        return True


async def _nothing() -> Message:
    raise AssertionError("the body is there")


async def _next(receive: Receive) -> Message:
    """The next piece of the body."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _GoneError
    return message


def _meant(path: str) -> Route | None:
    """The Broker or Channel that a path would have; None: it is not a path of either."""
    match path.split("/"):
        case ["", kind, namespace, name] if namespace and name:
            return Route(uid="", kind=kind, namespace=namespace, name=name, path=path, log="")
        case _:
            return None


def _without_event(method: str) -> Answer:
    return answers.OPTIONS if method == "OPTIONS" else answers.NOT_ALLOWED


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"more than {limit} bytes")
