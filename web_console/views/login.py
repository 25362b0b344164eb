"""[io] Login and logout."""

import secrets
import time
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from amqp_streams.errors import AmqpStreamsError
from service_parts.networks import is_loopback, network_of
from service_parts.settings.choices import AnonymousAccess
from web_console.http.forms import LOGIN_BYTES_MAX
from web_console.http.shield import CLIENT
from web_console.sessions.book import FullError
from web_console.sessions.session import Session, log_in
from web_console.sessions.shares import Shares
from web_console.showing.words import sentence, status
from web_console.views.requests import (
    COOKIE,
    console_of,
    form_of,
    page,
    read_form,
    root_of,
    session_of,
)

_LOGINS_MAX: Final = 8
"""Logins at the same time: each is a connection to the node and a derived key."""
_logins: Final = Shares(_LOGINS_MAX)
_FORM_COOKIE: Final = "amqp_console_form"
_NAME_MAX: Final = 1024
_REASONS: Final = {
    "ended": "The session has ended. Log in again.",
    "refused": "The node refuses the login of this session now. Log in again.",
    "out": "You are logged out.",
}


async def show(request: Request) -> Response:
    """The login page."""
    if session_of(request) is not None:
        return RedirectResponse(f"{root_of(request)}/logs", status_code=303)
    return _form(request, notice=_REASONS.get(request.query_params.get("reason", ""), ""))


async def enter(request: Request) -> Response:
    """Log in, and begin a session."""
    form = await read_form(request, LOGIN_BYTES_MAX)
    expected = request.cookies.get(_FORM_COOKIE, "")
    if not expected or not secrets.compare_digest(form.get("csrf", "").encode(), expected.encode()):
        return _form(request, problem="The form was too old. Log in again.", status=403)
    console = console_of(request)
    address = network_of(str(request.scope[CLIENT]))
    anonymous, token = form.get("how") == "anonymous", form.get("token", "")
    user = form.get("user", "")[:_NAME_MAX]
    if anonymous and not _may_be_anonymous(request):
        problem = "Only browsers on the machine of the console may continue without a login (--anonymous)."
        return _form(request, problem=problem, status=403)
    if not anonymous and not user and not token:
        return _form(request, problem="Give a user and a password, or a token.", status=400)
    wait_s = console.attempts.begin(address, time.monotonic())
    if wait_s > 0:
        return _form(request, problem=f"Too many failed logins. Try again in {wait_s:.0f} s.", status=429)
    failed = False
    try:
        async with _logins.place(address):
            session = await log_in(
                console.settings,
                user=None if anonymous or not user else user,
                password=None if anonymous or token else form.get("password", ""),
                token=None if anonymous or not token else token,
                csrf=secrets.token_urlsafe(32),
            )
    except (AmqpStreamsError, ValueError) as error:
        failed = status(error) == 401
        words = "The node needs a login." if anonymous and failed else sentence(error)
        return _form(request, problem=words, status=status(error), user=user)
    finally:
        console.attempts.end(address, time.monotonic(), failed=failed)
    return await _begin(request, session, address)


async def leave(request: Request, session: Session) -> Response:
    """End the session."""
    form_of(request)
    console_of(request).book.remove(request.cookies.get(COOKIE, ""))
    await session.end()
    answer = RedirectResponse(f"{root_of(request)}/login?reason=out", status_code=303)
    answer.delete_cookie(COOKIE, path=root_of(request) or "/")
    return answer


async def _begin(request: Request, session: Session, address: str) -> Response:
    token = secrets.token_urlsafe(32)
    book = console_of(request).book
    for one in book.expired(time.monotonic()):
        await one.end()
    try:
        ended = book.add(token, session, address=address, now_s=time.monotonic())
    except FullError:
        await session.end()
        problem = "Too many people use this console now. Try again in a minute."
        return _form(request, problem=problem, status=503)
    if ended is not None:
        await ended.end()
    answer = RedirectResponse(f"{root_of(request)}/logs", status_code=303)
    _set(request, answer, COOKIE, token)
    return answer


def _may_be_anonymous(request: Request) -> bool:
    # The node sees the console, not the browser: on one machine it would give the rights of this machine to
    # each browser of the network.
    rule = console_of(request).settings.anonymous
    return rule is AnonymousAccess.ALWAYS or (
        rule is AnonymousAccess.LOOPBACK and is_loopback(str(request.scope[CLIENT]))
    )


def _form(
    request: Request, *, problem: str = "", notice: str = "", status: int = 200, user: str = ""
) -> Response:
    csrf = request.cookies.get(_FORM_COOKIE, "") or secrets.token_urlsafe(32)
    answer = page(
        request,
        "login.html",
        status=status,
        csrf=csrf,
        problem=problem,
        notice=notice,
        user=user,
        anonymous=_may_be_anonymous(request),
    )
    _set(request, answer, _FORM_COOKIE, csrf)
    return answer


def _set(request: Request, answer: Response, name: str, value: str) -> None:
    answer.set_cookie(
        name,
        value,
        path=root_of(request) or "/",
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
    )
