"""[io] Login with an OpenID Connect provider: to the provider, and back with a code."""

import time
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service_parts.networks import network_of
from service_parts.settings.choices import ProviderToken
from web_console.http.shield import CLIENT
from web_console.oidc.flow import FlowError, authorization_url, begun, code_of, opened, sealed
from web_console.oidc.provider import Provider, ProviderError
from web_console.oidc.renewing import SessionTokens
from web_console.sessions.logins import Login, LoginError
from web_console.sessions.visitor import Visitor
from web_console.views.login import PROVIDER_PATH, base_of, begin_session, log_in_as, show_form
from web_console.views.requests import console_of, page, root_of, session_of

_CALLBACK: Final = f"{PROVIDER_PATH}/callback"
_COOKIE: Final = "amqp_console_provider"
_COOKIE_S: Final = 600


async def begin(request: Request) -> Response:
    """Send the browser to the provider."""
    provider = _provider(request)
    if session_of(request) is not None:
        return RedirectResponse(f"{root_of(request)}{console_of(request).product.home}", status_code=303)
    login = begun(time.monotonic())
    try:
        metadata = await provider.metadata()
    except ProviderError as error:
        return show_form(request, problem=str(error), status=503)
    url = authorization_url(metadata.authorization, provider.settings, login, _redirect_uri(request))
    answer = RedirectResponse(url, status_code=303)
    answer.set_cookie(
        _COOKIE,
        sealed(login, console_of(request).key),
        max_age=_COOKIE_S,
        path=root_of(request) or "/",
        httponly=True,
        # The browser comes back from the provider: with "strict" it would not send the cookie.
        samesite="lax",
        secure=request.scope["scheme"] == "https",
    )
    return answer


async def finish(request: Request) -> Response:
    """Take the code that the browser brings from the provider, and begin a session."""
    answer = await _finish(request)
    answer.delete_cookie(_COOKIE, path=root_of(request) or "/")
    return answer


async def _finish(request: Request) -> Response:
    provider, console = _provider(request), console_of(request)
    address = network_of(str(request.scope[CLIENT]))
    wait_s = console.attempts.begin(address, time.monotonic())
    if wait_s > 0:
        return show_form(request, problem=f"Too many failed logins. Try again in {wait_s:.0f} s.", status=429)
    failed = False
    try:
        session = await _session(request, provider, address)
    except LoginError as error:
        failed = error.status == 401
        return show_form(request, problem=str(error), status=error.status)
    finally:
        console.attempts.end(address, time.monotonic(), failed=failed)
    # Not a redirect: the browser comes from another site, and sends the cookie of the session only with a
    # request that a page of this one makes.
    here = page(request, "entered.html", home=f"{root_of(request)}{console.product.home}")
    return await begin_session(request, session, address, here)


async def _session(request: Request, provider: Provider, address: str) -> Visitor:
    """Return a session for the person whose code the browser brings.

    Raises:
        LoginError: the login is refused.
    """
    try:
        login = opened(request.cookies.get(_COOKIE, ""), console_of(request).key, time.monotonic())
        code = code_of(request.query_params, login, provider.settings)
    except FlowError as error:
        # Not a failed login: a page of another site could send the browser here, and use up its attempts.
        raise LoginError(str(error), 400) from error
    try:
        tokens = await provider.redeem(code, login.verifier, _redirect_uri(request))
        if tokens.id_token is None:
            message = "The provider's answer has no ID token that the console can use."
            raise FlowError(message)
        person = await provider.person(tokens.id_token, nonce=login.nonce)
    except FlowError as error:
        raise LoginError(str(error), 401) from error
    except ProviderError as error:
        raise LoginError(str(error), 503) from error
    renewing = SessionTokens(provider, tokens, person)
    sent = tokens.id_token if provider.settings.token is ProviderToken.ID else tokens.access_token
    return await log_in_as(request, Login(token=sent, tokens=renewing, shown=person.name), address)


def _provider(request: Request) -> Provider:
    provider = console_of(request).provider
    if provider is None:
        raise HTTPException(404, "This page does not exist.")
    return provider


def _redirect_uri(request: Request) -> str:
    return base_of(request, _provider(request)) + _CALLBACK
