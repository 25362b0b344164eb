"""[io] The paths of the listener: events, health, metrics, and the API.

Requests to `/broker/…` and `/channel/…` go to the ingress without other layers, because every event takes
this path. Requests to the API take turns, so that they do not delay events and probes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from event_formats.host import is_host, is_out_of_reach
from knative_gateway.errors import UnavailableError
from knative_gateway.http.asgi import App
from knative_gateway.http.turns import Turns
from knative_gateway.running.sharing import Shared

EVENTS: Final = ("/broker/", "/channel/")
PROBES: Final = frozenset({"/healthz", "/readyz"})

_NOT_ONE_HOST: Final = PlainTextResponse(
    "an HTTP/1.1 request must have exactly one Host header\n", status_code=400
)
_NOT_A_HOST: Final = PlainTextResponse(
    "the Host header must be a host name or an IP address, with or without a port\n", status_code=400
)

_REACHED_BY_NAME: Final = PlainTextResponse(
    "without tokens, a gateway on a loopback address serves this path only as localhost, as an IP address, or"
    " as a name in the cluster: use one of them, or set tokens or jwt\n",
    status_code=421,
)

FIGURES_KEPT_S: Final = 1.0
_TRIES: Final = 5
"""How often building the text is retried in a thread after the event loop changed a counter in the meantime.
"""

Location = Callable[[str], str | None]
"""Returns the URL of the console for a browser that reached the gateway as this host; None: not yet."""
Problem = Callable[[], str | None]
"""Returns None if the gateway is ready (or healthy), or the reason why it is not."""


class Figures:
    """The text of `/metrics`. It is built in a thread, at most once a second."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        build: Callable[[CollectorRegistry], bytes] = generate_latest,
        kept_s: float = FIGURES_KEPT_S,
    ) -> None:
        """`build` makes the text, or another form of the metrics."""
        self._registry: Final = registry
        self._build: Final = build
        self._shared: Final = Shared(self._make, kept_s)

    @property
    def made(self) -> int:
        """How often the text was built."""
        return self._shared.made

    async def text(self) -> bytes:
        """Return the text, at most a second old."""
        return await self._shared.get()

    async def _make(self) -> bytes:
        made = await self._made_beside()
        # On the event loop nothing can change in between. This is the last resort, because it delays events.
        return self._build(self._registry) if made is None else made

    async def _made_beside(self) -> bytes | None:
        """Build the text in a thread; None: the event loop changed a counter during each try."""
        for _ in range(_TRIES):
            # A dictionary that changes its size during an iteration raises RuntimeError. Locks would cost the
            # hot path more than a repetition here.
            with suppress(LookupError, RuntimeError):
                return await asyncio.to_thread(self._build, self._registry)
        return None


class Web:
    """The ASGI application of the listener. `routes`: the routes of the API.

    `figures` returns the text of `/metrics`; `trouble` returns why the gateway is not healthy. `console`:
    where `/console` leads; None: the gateway has no console. `is_local`: the machine is all that protects the
    API, so web pages of other sites must not reach it.
    """

    def __init__(
        self,
        ingress: App,
        figures: Callable[[], Awaitable[bytes]],
        *,
        ready: Problem,
        trouble: Problem = lambda: None,
        console: Location | None = None,
        routes: Sequence[BaseRoute] = (),
        is_local: bool = False,
    ) -> None:
        self._is_local: Final = is_local
        self._ingress: Final = ingress
        self._figures: Final = figures
        self._ready: Final = ready
        self._trouble: Final = trouble
        self._console: Final = console
        self._turns: Final = Turns()
        self._rest: Final = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
                *([] if console is None else [Route("/console", self._to_console)]),
                *routes,
            ]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request.

        A request without a Host header, with several, or with one that is not valid is refused: proxies and
        the gateway could read it differently (RFC 9112, 3.2). Only a client of HTTP/1.0 may leave Host out.
        """
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            await _NOT_ONE_HOST(scope, receive, send)
        elif hosts and not is_host(hosts[0]):
            await _NOT_A_HOST(scope, receive, send)
        elif scope["path"].startswith(EVENTS):
            await self._ingress(scope, receive, send)
        elif self._is_local and hosts and scope["path"] not in PROBES and not is_out_of_reach(hosts[0]):
            await _REACHED_BY_NAME(scope, receive, send)
        else:
            await self._in_turns(scope, receive, send)

    async def _in_turns(self, scope: Any, receive: Any, send: Any) -> None:
        # Probes do not wait. Neither do answers that have begun, for example a watch, which may never end.
        has_begun = scope["path"] in PROBES

        async def noting(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        await self._turns.pace(self._rest(scope, receive, noting), lambda: has_begun)

    async def _healthz(self, _request: Request) -> Response:
        return _probed("alive", "not healthy", self._trouble())

    async def _readyz(self, _request: Request) -> Response:
        return _probed("ready", "not ready", self._ready())

    async def _metrics(self, _request: Request) -> Response:
        try:
            return Response(await self._figures(), media_type=CONTENT_TYPE_LATEST)
        except UnavailableError as error:
            return PlainTextResponse(f"{error}\n", status_code=503)

    async def _to_console(self, request: Request) -> Response:
        assert self._console is not None
        found = self._console(request.url.hostname or "localhost")
        return RedirectResponse(found) if found else PlainTextResponse("starting\n", status_code=503)


def _probed(good: str, bad: str, problem: str | None) -> Response:
    return (
        PlainTextResponse(f"{good}\n")
        if problem is None
        else PlainTextResponse(f"{bad}: {problem}\n", status_code=503)
    )
