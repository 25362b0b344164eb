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

from amqp_streams.client import AuthenticationError, ClosedError
from amqp_streams.errors import AmqpStreamsError
from web_console.http.shield import Shield
from web_console.sessions.session import Session, TooManyRequestsError
from web_console.settings import ConsoleSettings
from web_console.showing.words import is_away, sentence, status
from web_console.views import changing, groups, log, login, logs, tail
from web_console.views.requests import (
    COOKIE,
    Console,
    console_of,
    is_partial,
    page,
    root_of,
    session_of,
    to_login,
    with_session,
)

_SWEEP_S: Final = 5.0
_STATIC: Final = Path(__file__).parent / "static"

logger = structlog.get_logger("web_console")


def application(settings: ConsoleSettings) -> "Application":
    """Return the console as an ASGI application."""
    app = Starlette(
        routes=[
            Route("/", _first),
            Route("/healthz", _healthz),
            Route("/login", login.show),
            Route("/login", login.enter, methods=["POST"]),
            Route("/logout", with_session(login.leave), methods=["POST"]),
            Route("/logs", with_session(logs.show)),
            Route("/figures", with_session(logs.figures)),
            Route("/logs/{log}", with_session(log.show)),
            Route("/logs/{log}/figures", with_session(log.figures)),
            Route("/logs/{log}/filter", with_session(log.check_filter)),
            Route("/create", with_session(changing.draft)),
            Route("/create", with_session(changing.create), methods=["POST"]),
            Route("/logs/{log}/settings", with_session(changing.show)),
            Route("/logs/{log}/settings", with_session(changing.change), methods=["POST"]),
            Route("/logs/{log}/delete", with_session(changing.delete), methods=["POST"]),
            Route("/groups", with_session(groups.show)),
            Route("/group", with_session(groups.one)),
            Route("/group/stream", with_session(groups.stream)),
            Route("/group/reset", with_session(groups.reset), methods=["POST"]),
            Route("/group/remove", with_session(groups.remove), methods=["POST"]),
            Route("/logs/{log}/tail", with_session(tail.show)),
            Route("/logs/{log}/tail/stream", with_session(tail.stream)),
            Route("/logs/{log}/send", with_session(tail.draft)),
            Route("/logs/{log}/send", with_session(tail.send), methods=["POST"]),
            Route("/logs/{log}/events", with_session(log.events)),
            Route("/logs/{log}/events/{partition}/{offset:int}", with_session(log.event)),
            Route("/logs/{log}/events/{partition}/{offset:int}/{part}", with_session(log.download)),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        exception_handlers=_handlers(),
        lifespan=_lifespan,
    )
    app.state.console = Console(settings)
    app.state.touch = _touch
    return Application(app, settings)


class Application(Shield):
    """The pages behind their shield."""

    def __init__(self, app: Starlette, settings: ConsoleSettings) -> None:
        super().__init__(app, settings)
        self.console: Final[Console] = app.state.console


def _handlers() -> Any:
    return {
        HTTPException: _refused,
        AmqpStreamsError: _failed,
        TooManyRequestsError: _too_many,
    }


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


async def _end(session: Session) -> None:
    # A session that cannot be ended must not keep the others alive.
    try:
        await session.end()
    except Exception:
        logger.exception("session_not_ended")


def _touch(request: Request) -> None:
    """A stream that sends something is a use of its session."""
    session_of(request)


async def _first(request: Request) -> Response:
    return RedirectResponse(f"{root_of(request)}/logs", status_code=303)


async def _healthz(_request: Request) -> Response:
    return PlainTextResponse("alive\n")


async def _refused(request: Request, error: HTTPException) -> Response:
    # The words of Starlette for an unknown path are those of HTTP.
    words = "This page does not exist." if error.detail == "Not Found" else error.detail
    return _problem(request, words, error.status_code)


async def _too_many(request: Request, _error: TooManyRequestsError) -> Response:
    return _problem(request, "Too many requests or views of this session are open.", 429)


async def _failed(request: Request, error: AmqpStreamsError) -> Response:
    if isinstance(error, AuthenticationError | ClosedError):
        session = console_of(request).book.remove(request.cookies.get(COOKIE, ""))
        if session is not None:
            await session.end()
        return to_login(request, reason="refused" if isinstance(error, AuthenticationError) else "ended")
    address = console_of(request).settings.url.rpartition("@")[2]
    return _problem(request, sentence(error, address), status(error), away=is_away(error))


def _problem(request: Request, words: str, code: int, *, away: bool = False) -> Response:
    template = "problem_part.html" if is_partial(request) else "problem.html"
    return page(request, template, session_of(request), status=code, words=words, away=away)
