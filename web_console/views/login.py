"""[io] Login and logout."""

import secrets
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service_parts.networks import is_loopback, network_of
from service_parts.settings.choices import AnonymousAccess
from service_parts.shares import Shares
from web_console.http.forms import LOGIN_BYTES_MAX
from web_console.http.shield import CLIENT
from web_console.oidc.provider import Provider
from web_console.sessions.book import FullError
from web_console.sessions.logins import Login, LoginError
from web_console.sessions.visitor import Visitor
from web_console.views.requests import (
    COOKIE,
    console_of,
    form_of,
    page,
    read_form,
    root_of,
    session_of,
)

PROVIDER_PATH: Final = "/login/provider"
_LOGINS_MAX: Final = 8
"""Logins at the same time: each is a connection to the node and a derived key."""
_logins: Final = Shares(_LOGINS_MAX)
_FORM_COOKIE: Final = "amqp_console_form"
_NAME_MAX: Final = 1024
_ONLY_HERE: Final = "Only browsers on the machine of the console may continue without a login (--anonymous)."
_REASONS: Final = {
    "ended": "The session has ended. Log in again.",
    "refused": "The {noun} refuses the login of this session now. Log in again.",
    "out": "You are logged out.",
}


async def show(request: Request) -> Response:
    """The login page."""
    if session_of(request) is not None:
        return RedirectResponse(f"{root_of(request)}{console_of(request).product.home}", status_code=303)
    notice = _REASONS.get(request.query_params.get("reason", ""), "")
    return show_form(request, notice=notice.format(noun=console_of(request).product.noun))


async def enter(request: Request) -> Response:
    """Log in, and begin a session."""
    form = await read_form(request, LOGIN_BYTES_MAX)
    expected = request.cookies.get(_FORM_COOKIE, "")
    if not expected or not secrets.compare_digest(form.get("csrf", "").encode(), expected.encode()):
        return show_form(request, problem="The form was too old. Log in again.", status=403)
    console = console_of(request)
    address = network_of(str(request.scope[CLIENT]))
    user = form.get("user", "")[:_NAME_MAX]
    try:
        login = _login_of(request, form)
    except LoginError as error:
        return show_form(request, problem=str(error), status=error.status)
    wait_s = console.attempts.begin(address, time.monotonic())
    if wait_s > 0:
        return show_form(request, problem=f"Too many failed logins. Try again in {wait_s:.0f} s.", status=429)
    failed = False
    try:
        session = await log_in_as(request, login, address)
    except LoginError as error:
        failed = error.status == 401
        return show_form(request, problem=str(error), status=error.status, user=user)
    finally:
        console.attempts.end(address, time.monotonic(), failed=failed)
    home = RedirectResponse(f"{root_of(request)}{console_of(request).product.home}", status_code=303)
    return await begin_session(request, session, address, home)


async def log_in_as(request: Request, login: Login, address: str) -> Visitor:
    """Begin a session at the node or gateway.

    Raises:
        LoginError: it does not accept the login.
    """
    console = console_of(request)
    async with _logins.place(address):
        session = await console.product.log_in(console.settings, login, secrets.token_urlsafe(32))
    if session.is_anonymous and not _may_be_anonymous(request):
        # The token was not needed: it must not be a way around the rule.
        await session.end()
        raise LoginError(_ONLY_HERE, 403)
    return session


def _login_of(request: Request, form: Mapping[str, str]) -> Login:
    """Return what was given to log in.

    Raises:
        LoginError: nothing was given, or the browser may not continue without a login.
    """
    if form.get("how") == "anonymous":
        if not _may_be_anonymous(request):
            raise LoginError(_ONLY_HERE, 403)
        return Login()
    has_users = console_of(request).product.has_users
    token, user = form.get("token", ""), form.get("user", "")[:_NAME_MAX] if has_users else ""
    if not user and not token:
        wanted = "a user and a password, or a token" if has_users else "a token"
        message = f"Give {wanted}."
        raise LoginError(message, 400)
    return Login(user or None, None if token else form.get("password", ""), token or None)


async def leave(request: Request, session: Visitor) -> Response:
    """End the session."""
    form_of(request)
    console_of(request).book.remove(request.cookies.get(COOKIE, ""))
    await session.end()
    answer = RedirectResponse(f"{root_of(request)}/login?reason=out", status_code=303)
    answer.delete_cookie(COOKIE, path=root_of(request) or "/")
    return answer


async def begin_session(request: Request, session: Visitor, address: str, answer: Response) -> Response:
    """Keep a session, and return the answer with its cookie; another answer if too many people are here."""
    token = secrets.token_urlsafe(32)
    book = console_of(request).book
    for one in book.expired(time.monotonic()):
        await one.end()
    try:
        ended = book.add(token, session, address=address, now_s=time.monotonic())
    except FullError:
        await session.end()
        problem = "Too many people use this console now. Try again in a minute."
        return show_form(request, problem=problem, status=503)
    if ended is not None:
        await ended.end()
    _set(request, answer, COOKIE, token)
    return answer


def _may_be_anonymous(request: Request) -> bool:
    # The node sees the console, not the browser: on one machine it would give the rights of this machine to
    # each browser of the network.
    rule = console_of(request).settings.anonymous
    return rule is AnonymousAccess.ALWAYS or (
        rule is AnonymousAccess.LOOPBACK and is_loopback(str(request.scope[CLIENT]))
    )


def show_form(
    request: Request, *, problem: str = "", notice: str = "", status: int = 200, user: str = ""
) -> Response:
    """Return the login page."""
    csrf = request.cookies.get(_FORM_COOKIE, "") or secrets.token_urlsafe(32)
    provider = console_of(request).provider
    answer = page(
        request,
        "login.html",
        status=status,
        csrf=csrf,
        problem=problem,
        notice=notice,
        user=user,
        anonymous=_may_be_anonymous(request),
        provider="" if provider is None else provider.settings.name,
        provider_path=PROVIDER_PATH,
        provider_logout="" if provider is None else _logout_url(request, provider),
    )
    _set(request, answer, _FORM_COOKIE, csrf)
    return answer


def base_of(request: Request, provider: Provider) -> str:
    """Return the URL under which the browser reaches the console."""
    if provider.settings.url is not None:
        return provider.settings.url.rstrip("/")
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}{root_of(request)}"


def _logout_url(request: Request, provider: Provider) -> str:
    """Return where a person logs out of the provider; empty if that is not known, or not asked for."""
    if not provider.end_session or request.query_params.get("reason") != "out":
        return ""
    back = f"{base_of(request, provider)}/login"
    query = urlencode({"client_id": provider.settings.client_id, "post_logout_redirect_uri": back})
    return f"{provider.end_session}{'&' if '?' in provider.end_session else '?'}{query}"


def _set(request: Request, answer: Response, name: str, value: str) -> None:
    answer.set_cookie(
        name,
        value,
        path=root_of(request) or "/",
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
    )
