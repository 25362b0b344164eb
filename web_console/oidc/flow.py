"""The steps of a login that need no network: what the browser brings along, and checks of the answers. Pure.

A login that has begun is in a cookie of the browser, signed with a key of this process, so that many logins
that do not end take no memory. Spec: OpenID Connect Core 1.0, section 3.1; RFC 7636; RFC 9207.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from service_parts.tokens.algorithms import PublicKeyAlgorithm
from service_parts.tokens.claims import BadTokenError, Expected, expiry_ms, signed_claims
from service_parts.tokens.keys import Key
from web_console.oidc_settings import OidcSettings

LOGIN_S_MAX: Final = 600.0
"""How long a person may take at the provider."""
CODE_MAX: Final = 4096
"""Characters of an authorization code."""
TOKEN_MAX: Final = 12 << 10
"""Characters of a token."""
LEEWAY_MS: Final = 60_000
"""How far the clocks of console and provider may differ."""
_WORDS_MAX: Final = 200
_SUBJECT_MAX: Final = 255
_PARTS: Final = 5


class FlowError(Exception):
    """A login is refused. The message is for the person, and contains no secret."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A login that has begun. `begun_s`: by the clock of the process."""

    state: str
    nonce: str
    verifier: str
    begun_s: int


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """The answer of the provider's token endpoint. `expires_in_s`: of the access token; None: not known."""

    access_token: str
    id_token: str | None
    refresh_token: str | None
    expires_in_s: float | None


@dataclass(frozen=True, slots=True)
class Person:
    """Who has logged in. `expires_ms`: when the ID token expires."""

    subject: str
    name: str
    expires_ms: int


def begun(now_s: float) -> Begun:
    """Return a new login."""
    return Begun(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), int(now_s))


def sealed(login: Begun, key: bytes) -> str:
    """Return a login as the value of a cookie."""
    text = f"{login.state}.{login.nonce}.{login.verifier}.{login.begun_s}"
    return f"{text}.{_seal(text, key)}"


def opened(cookie: str, key: bytes, now_s: float) -> Begun:
    """Return the login in a cookie.

    Raises:
        FlowError: it is not a login of this process, or began too long ago.
    """
    text, _, seal = cookie.rpartition(".")
    parts = cookie.split(".")
    if len(parts) != _PARTS or not hmac.compare_digest(seal.encode(), _seal(text, key).encode()):
        message = "This browser has not begun this login here, or the console was restarted. Log in again."
        raise FlowError(message)
    login = Begun(parts[0], parts[1], parts[2], int(parts[3]))
    if not 0 <= now_s - login.begun_s <= LOGIN_S_MAX:
        message = "The login took too long. Log in again."
        raise FlowError(message)
    return login


def authorization_url(endpoint: str, settings: OidcSettings, login: Begun, redirect_uri: str) -> str:
    """Return where the browser goes to log in."""
    challenge = urlsafe_b64encode(hashlib.sha256(login.verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(settings.scopes),
        "state": login.state,
        "nonce": login.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def code_of(query: Mapping[str, str], login: Begun, settings: OidcSettings) -> str:
    """Return the code that the provider gave to the browser.

    Raises:
        FlowError: the answer does not belong to this login, or the provider refuses the login.
    """
    if not hmac.compare_digest(query.get("state", "").encode(), login.state.encode()):
        message = "The answer of the provider does not belong to this login. Log in again."
        raise FlowError(message)
    # RFC 9207: the answer of another provider must not be taken for one of ours.
    if query.get("iss", settings.issuer) != settings.issuer:
        message = "The answer is from another provider than the one of this console. Log in again."
        raise FlowError(message)
    if "error" in query:
        raise FlowError(refused(query))
    code = query.get("code", "")
    if not code or len(code) > CODE_MAX:
        message = "The answer of the provider has no code. Log in again."
        raise FlowError(message)
    return code


def refused(answer: Mapping[str, Any]) -> str:
    """Return the words for an error of the provider (RFC 6749, 5.2)."""
    code, more = _plain(answer.get("error")), _plain(answer.get("error_description"))
    return f"The provider refuses the login: {code or 'without a reason'}{f' ({more})' if more else ''}."


def tokens_of(answer: Mapping[str, Any]) -> TokenAnswer:
    """Return the tokens in an answer of the token endpoint.

    Raises:
        FlowError: it is not such an answer.
    """
    access, kind = answer.get("access_token"), answer.get("token_type")
    if not is_token(access) or not isinstance(kind, str) or kind.lower() != "bearer":
        message = "The provider's answer has no bearer token that the console can use."
        raise FlowError(message)
    assert isinstance(access, str)
    seconds = answer.get("expires_in")
    is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1 << 32
    id_token, refresh = answer.get("id_token"), answer.get("refresh_token")
    return TokenAnswer(
        access,
        id_token if is_token(id_token) else None,
        refresh if is_token(refresh) else None,
        float(seconds) if is_time and seconds is not None else None,
    )


def is_token(value: object) -> bool:
    """Return whether a value is a token that can be sent."""
    return (
        isinstance(value, str) and 0 < len(value) <= TOKEN_MAX and value.isascii() and value.isprintable()
    ) and " " not in str(value)


def person_of(
    id_token: str, keys: Sequence[Key], settings: OidcSettings, *, nonce: str | None, now_ms: int
) -> Person:
    """Return who an ID token is about (OpenID Connect Core 3.1.3.7). `nonce` None: of a renewed login.

    Raises:
        FlowError: the token is not valid for this login.
    """
    try:
        expected = Expected(settings.issuer, (settings.client_id,), tuple(PublicKeyAlgorithm))
        claims = signed_claims(id_token, keys, expected)
        expires_ms = expiry_ms(claims, now_ms=now_ms, leeway_ms=LEEWAY_MS)
    except BadTokenError as error:
        message = f"The provider's ID token is not accepted: {error}."
        raise FlowError(message) from error
    audience = claims.get("aud")
    party = claims.get(
        "azp", settings.client_id if not isinstance(audience, list) or len(audience) == 1 else None
    )
    if party != settings.client_id:
        message = "The provider's ID token is not accepted: it was issued to another client."
        raise FlowError(message)
    given = claims.get("nonce")
    if nonce is not None and not (
        isinstance(given, str) and hmac.compare_digest(given.encode(errors="replace"), nonce.encode())
    ):
        message = "The provider's ID token is not accepted: it belongs to another login."
        raise FlowError(message)
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _SUBJECT_MAX:
        message = "The provider's ID token is not accepted: it names no subject."
        raise FlowError(message)
    names = (claims.get(name) for name in ("preferred_username", "email", "name"))
    name = next((each for each in names if isinstance(each, str) and each), subject)
    return Person(subject, _plain(name), expires_ms)


def _seal(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(each if each.isprintable() else " " for each in text[:_WORDS_MAX]).strip()
