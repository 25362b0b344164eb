"""[io] The application: paths, errors, and the life of sessions."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from web_console.http.shield import Shield
from web_console.product import Product
from web_console.sessions.visitor import TooManyRequestsError, Visitor
from web_console.settings import ConsoleSettings
from web_console.views import login, provider_login
from web_console.views.requests import (
    Console,
    console_of,
    problem,
    root_of,
    session_of,
    with_session,
)

_SWEEP_S: Final = 5.0
_STATIC: Final = Path(__file__).parent / "static"

logger = structlog.get_logger("web_console")


def application(settings: ConsoleSettings, product: Product) -> "Application":
    """Return the console of a product as an ASGI application."""
    app = Starlette(
        routes=[
            Route("/", _first),
            Route("/healthz", _healthz),
            Route("/login", login.show),
            Route("/login", login.enter, methods=["POST"]),
            Route(login.PROVIDER_PATH, provider_login.begin),
            Route(f"{login.PROVIDER_PATH}/callback", provider_login.finish),
            Route("/logout", with_session(login.leave), methods=["POST"]),
            *product.routes(),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        exception_handlers={**_HANDLERS, **product.handlers},
        lifespan=_lifespan,
    )
    app.state.console = Console(settings, product)
    app.state.touch = _touch
    return Application(app, settings)


class Application(Shield):
    """The pages behind their shield."""

    def __init__(self, app: Starlette, settings: ConsoleSettings) -> None:
        super().__init__(app, settings)
        self.console: Final[Console] = app.state.console


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    sweeping = asyncio.create_task(_sweep(app.state.console))
    try:
        yield
    finally:
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        for session in app.state.console.book:
            await _end(session)


async def _sweep(console: Console) -> None:
    """End the sessions that are over."""
    while True:
        await asyncio.sleep(_SWEEP_S)
        for session in console.book.expired(time.monotonic()):
            await _end(session)


async def _end(session: Visitor) -> None:
    # A session that cannot be ended must not keep the others alive.
    try:
        await session.end()
    except Exception:
        logger.exception("session_not_ended")


def _touch(request: Request) -> None:
    """A stream that sends something is a use of its session."""
    session_of(request)


async def _first(request: Request) -> Response:
    return RedirectResponse(f"{root_of(request)}{console_of(request).product.home}", status_code=303)


async def _healthz(_request: Request) -> Response:
    return PlainTextResponse("alive\n")


async def _refused(request: Request, error: HTTPException) -> Response:
    # The words of Starlette for an unknown path are those of HTTP.
    words = "This page does not exist." if error.detail == "Not Found" else error.detail
    return problem(request, words, error.status_code)


async def _too_many(request: Request, _error: TooManyRequestsError) -> Response:
    return problem(request, "Too many requests or views of this session are open.", 429)


_HANDLERS: Final[dict[Any, Any]] = {HTTPException: _refused, TooManyRequestsError: _too_many}
