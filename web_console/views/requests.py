"""[io] What every page needs: its session, its form, its template."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from amqp_streams import __version__
from web_console.figures.rates import points
from web_console.figures.trends import trend_points
from web_console.http.forms import FORM_BYTES_MAX, FormError, form_fields
from web_console.oidc.provider import Provider
from web_console.product import Product
from web_console.sessions.attempts import Attempts
from web_console.sessions.book import Book
from web_console.sessions.visitor import Visitor
from web_console.settings import ConsoleSettings
from web_console.showing import numbers
from web_console.showing.connections import protocol

COOKIE: Final = "amqp_console"
_FORM_S: Final = 30.0
_FOLDER: Final = Path(__file__).parent.parent / "templates"
SESSIONS_OF_ONE_ADDRESS_MAX: Final = 50
SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24

_Session = TypeVar("_Session", bound=Visitor)


class Console:
    """What all requests share."""

    def __init__(self, settings: ConsoleSettings, product: Product) -> None:
        self.settings: Final = settings
        self.product: Final = product
        self.provider: Final = None if settings.oidc is None else Provider(settings.oidc)
        self.key: Final = secrets.token_bytes(32)
        """Signs what browsers keep for the console."""
        self.attempts: Final = Attempts()
        self.book: Final[Book[Visitor]] = Book(
            most=settings.sessions_max,
            most_of_one=SESSIONS_OF_ONE_ADDRESS_MAX,
            idle_s=settings.idle_s,
            life_s=settings.life_s,
        )
        self._templates: Final = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(
            count=numbers.count,
            size=numbers.size,
            rate=numbers.rate,
            duration=numbers.duration,
            time=numbers.time,
            points=_trend,
            protocol=lambda name, tls: protocol(name, tls=tls),
        )

    def render(self, template: str, **values: object) -> str:
        """Return a template as text."""
        return self._templates.get_template(template).render(**values)


def spark_points(rates: Sequence[float]) -> str:
    """The points of a small plot of the rates of the last two minutes, 120 by 24."""
    return points(rates, width=SPARK_WIDTH, height=SPARK_HEIGHT)


def _trend(values: Sequence[float]) -> str:
    return trend_points(values, width=SPARK_WIDTH, height=SPARK_HEIGHT)


def now_ms() -> int:
    """The present time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def console_of(request: Request) -> Console:
    """Return what all requests share."""
    console: Console = request.app.state.console
    return console


def root_of(request: Request) -> str:
    """Return the prefix of all paths."""
    return str(request.scope.get("root_path", ""))


def is_partial(request: Request) -> bool:
    """Whether a page asks for a part of itself."""
    return request.headers.get("hx-request") == "true"


def page(
    request: Request, template: str, session: Visitor | None = None, *, status: int = 200, **values: Any
) -> Response:
    """Return a page, or a part of one."""
    console = console_of(request)
    text = console.render(
        template,
        root=root_of(request),
        session=session,
        product=console.product,
        address=console.settings.url.rpartition("@")[2].removeprefix("amqp://"),
        version=__version__,
        rights=getattr(request.state, "rights", None),
        **values,
    )
    # JSON of an event may have half of a surrogate pair, which is not a character.
    return HTMLResponse(text.encode(errors="backslashreplace"), status_code=status)


def problem(request: Request, words: str, code: int, *, away: bool = False) -> Response:
    """Return the page that says why a request failed. `away`: the page tries again by itself."""
    template = "problem_part.html" if is_partial(request) else "problem.html"
    return page(request, template, session_of(request), status=code, words=words, away=away)


async def end_session(request: Request, *, reason: str) -> Response:
    """End the session of a request, whose login is not valid any more, and lead to the login page."""
    session = console_of(request).book.remove(request.cookies.get(COOKIE, ""))
    if session is not None:
        await session.end()
    return to_login(request, reason=reason)


def session_of(request: Request) -> Visitor | None:
    """Return the session that the cookie names, or None."""
    token = request.cookies.get(COOKIE, "")
    return console_of(request).book.use(token, time.monotonic()) if token else None


def to_login(request: Request, *, reason: str = "") -> Response:
    """Send the browser to the login page, and from there back to this page."""
    target = f"{root_of(request)}/login" + (f"?reason={reason}" if reason else "")
    if is_partial(request):
        return Response(status_code=401, headers={"hx-redirect": target})
    if "text/event-stream" in request.headers.get("accept", ""):
        # The page loads itself again. Its cookie stays until then, so that the login page says what happened.
        return Response(status_code=401)
    answer = RedirectResponse(target, status_code=303)
    answer.delete_cookie(COOKIE, path=root_of(request) or "/")
    return answer


def with_session(
    view: Callable[[Request, _Session], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that needs a login, and the token of its session if it changes anything."""

    async def endpoint(request: Request) -> Response:
        session = session_of(request)
        if session is None:
            return to_login(request, reason="ended" if request.cookies.get(COOKIE) else "")
        if session.is_over:
            return await end_session(request, reason="ended")
        async with session.turn():
            if request.method == "POST":
                request.state.form = await read_form(request)
                given = request.state.form.get("csrf", "")
                if not secrets.compare_digest(given.encode(), session.csrf.encode()):
                    raise HTTPException(403, "This form is not from this session. Load the page again.")
            # A console has the sessions of its product only.
            return await view(request, cast("_Session", session))

    return endpoint


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of the form of a POST request."""
    form: dict[str, str] = request.state.form
    return form


async def read_form(request: Request, bytes_max: int = FORM_BYTES_MAX) -> dict[str, str]:
    """Read the fields of a form.

    Raises:
        HTTPException: it is too large, or cannot be read.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_FORM_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise HTTPException(413, f"This form has at most {numbers.size(bytes_max)}.")
    except TimeoutError as error:
        raise HTTPException(408, "The form took too long to arrive.") from error
    try:
        return form_fields(bytes(body))
    except FormError as error:
        raise HTTPException(400, str(error)) from error
