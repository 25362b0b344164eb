"""[io] The OpenID Connect provider: its metadata, its keys, and its token endpoint.

Laws: only the issuer's host and the hosts of the settings are asked. An answer has at most `ANSWER_BYTES_MAX`
bytes and takes at most `ANSWER_S_MAX` seconds, and redirects are not followed. Metadata and keys are read at
most once in `KEPT_S`; keys also if a token has a new one, at most once in `KEYS_AGAIN_S`. After a failure,
neither is read again for `FAILED_S`; while the keys cannot be read, the known ones count. No message contains
a token, a code or a secret.
"""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import h11
import jwt

from amqp_streams import __version__
from service_parts.tokens.algorithms import PublicKeyAlgorithm
from service_parts.tokens.keys import MALFORMED, Key, published_keys
from web_console.http.outgoing import FAILURES, TooLargeError, exchange, tls_of
from web_console.oidc.flow import FlowError, Person, TokenAnswer, person_of, refused, tokens_of
from web_console.oidc_settings import OidcSettings

ANSWER_BYTES_MAX: Final = 1 << 20
ANSWER_S_MAX: Final = 10.0
KEPT_S: Final = 600.0
KEYS_AGAIN_S: Final = 30.0
FAILED_S: Final = 3.0
"""How long after a failure the metadata, or the keys, are not asked for again."""
_PATH: Final = "/.well-known/openid-configuration"
_FORM: Final = "application/x-www-form-urlencoded"


class ProviderError(Exception):
    """The provider does not answer, or gives an answer that the console cannot use."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the provider has published about itself, checked. `end_session`: empty if it has no logout."""

    authorization: str
    token: str
    keys: str
    end_session: str
    posts_secret: bool


class Provider:
    """The provider of a console."""

    def __init__(self, settings: OidcSettings) -> None:
        """Create a client.

        Raises:
            ValueError: the file with the authorities is not valid.
        """
        self.settings: Final = settings
        self._tls: Final = tls_of(settings.ca_file)
        self._lock: Final = asyncio.Lock()
        self._metadata: Metadata | None = None
        self._metadata_until_s = 0.0
        self._failure: str | None = None
        self._failed_s = 0.0
        self._keys_lock: Final = asyncio.Lock()
        self._keys: Sequence[Key] = ()
        self._keys_read_s = -KEPT_S
        self._keys_failure: str | None = None
        self._keys_failed_s = 0.0

    @property
    def end_session(self) -> str:
        """Where a person logs out of the provider; empty: not known, or nowhere."""
        return "" if self._metadata is None else self._metadata.end_session

    async def metadata(self) -> Metadata:
        """Return the metadata (OpenID Connect Discovery 1.0, section 4).

        Raises:
            ProviderError: the provider does not answer, or its answer is not valid.
        """
        async with self._lock:
            now_s = time.monotonic()
            if self._metadata is not None and now_s < self._metadata_until_s:
                return self._metadata
            # Everyone can ask for this without a login: a provider that is away must not make many wait.
            if self._failure is not None and now_s < self._failed_s + FAILED_S:
                raise ProviderError(self._failure)
            try:
                found = await self._json("GET", self.settings.issuer.rstrip("/") + _PATH)
                self._metadata = self._checked(found)
            except (ProviderError, FlowError) as error:
                self._failure, self._failed_s = str(error), time.monotonic()
                raise ProviderError(self._failure) from error
            self._failure, self._metadata_until_s = None, time.monotonic() + KEPT_S
            return self._metadata

    async def redeem(self, code: str, verifier: str, redirect_uri: str) -> TokenAnswer:
        """Return the tokens for a code.

        Raises:
            FlowError: the provider refuses the code.
            ProviderError: it does not answer, or its answer is not valid.
        """
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        return await self._tokens({**fields, "code_verifier": verifier})

    async def renew(self, refresh_token: str) -> TokenAnswer:
        """Return new tokens.

        Raises:
            FlowError: the provider does not renew the login.
            ProviderError: it does not answer, or its answer is not valid.
        """
        return await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def person(self, id_token: str, *, nonce: str | None) -> Person:
        """Return who an ID token is about. `nonce` None: of a renewed login.

        Raises:
            FlowError: the token is not valid.
            ProviderError: the keys cannot be read.
        """
        keys = await self._known_keys(id_token)
        now_ms = time.time_ns() // 1_000_000
        return person_of(id_token, keys, self.settings, nonce=nonce, now_ms=now_ms)

    # -- requests

    async def _known_keys(self, id_token: str) -> Sequence[Key]:
        try:
            key_id = jwt.get_unverified_header(id_token).get("kid")
        except MALFORMED:
            key_id = None
        metadata = await self.metadata()
        # While one login reads the keys, which may take long, those with a known key do not wait.
        if self._keys_lock.locked() and self._has(key_id):
            return self._keys
        async with self._keys_lock:
            age_s = time.monotonic() - self._keys_read_s
            is_known = self._has(key_id)
            is_new = key_id is not None and not is_known
            if age_s > KEPT_S or not self._keys or (is_new and age_s > KEYS_AGAIN_S):
                try:
                    await self._read_keys(metadata)
                except ProviderError:
                    if not is_known:
                        raise
            return self._keys

    def _has(self, key_id: object) -> bool:
        """Return whether a key has this id; for a token without one, whether a key has none."""
        return any(key.id == key_id for key in self._keys)

    async def _read_keys(self, metadata: Metadata) -> None:
        if self._keys_failure is not None and time.monotonic() < self._keys_failed_s + FAILED_S:
            raise ProviderError(self._keys_failure)
        try:
            self._keys = await self._published(metadata)
        except ProviderError as error:
            self._keys_failure, self._keys_failed_s = str(error), time.monotonic()
            raise
        self._keys_failure, self._keys_read_s = None, time.monotonic()

    async def _published(self, metadata: Metadata) -> Sequence[Key]:
        try:
            return published_keys(await self._json("GET", metadata.keys), tuple(PublicKeyAlgorithm))
        except FlowError as error:
            raise ProviderError(str(error)) from error
        except ValueError as error:
            message = f"The keys of the provider cannot be used: {error}."
            raise ProviderError(message) from error

    async def _tokens(self, fields: Mapping[str, str]) -> TokenAnswer:
        metadata, settings = await self.metadata(), self.settings
        head: list[tuple[str, str]] = []
        if settings.client_secret is None:
            fields = {**fields, "client_id": settings.client_id}
        elif metadata.posts_secret:
            fields = {**fields, "client_id": settings.client_id, "client_secret": settings.client_secret}
        else:
            # RFC 6749, 2.3.1: both are encoded before they are joined.
            pair = f"{quote(settings.client_id, safe='')}:{quote(settings.client_secret, safe='')}"
            head = [("Authorization", f"Basic {b64encode(pair.encode()).decode()}")]
        return tokens_of(await self._json("POST", metadata.token, urlencode(fields).encode(), head))

    async def _json(
        self, method: str, url: str, body: bytes = b"", more: Sequence[tuple[str, str]] = ()
    ) -> Mapping[str, Any]:
        parts = urlsplit(url)
        host = parts.hostname or ""
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = [
            ("Host", parts.netloc),
            ("User-Agent", f"amqp-event-streams-console/{__version__}"),
            ("Accept", "application/json"),
            ("Connection", "close"),
            *([("Content-Type", _FORM), ("Content-Length", str(len(body)))] if body else []),
            *more,
        ]
        request = h11.Request(method=method, target=target, headers=head)
        is_tls = parts.scheme == "https"
        where = (host, parts.port or (443 if is_tls else 80), self._tls if is_tls else None)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                code, raw = await exchange(where, request, body, bytes_max=ANSWER_BYTES_MAX)
        except TooLargeError as error:
            message = f"The answer of the provider at {parts.netloc} is too large for the console."
            raise ProviderError(message) from error
        except FAILURES as error:
            message = f"The provider at {parts.netloc} does not answer. Try again later."
            raise ProviderError(message) from error
        return _document(parts.netloc, code, raw)

    def _checked(self, found: Mapping[str, Any]) -> Metadata:
        settings = self.settings
        if found.get("issuer") != settings.issuer:
            message = (
                f"The issuer of the provider is {str(found.get('issuer'))[:200]!r}, and that of the settings"
                f" is {settings.issuer!r}. They must be equal."
            )
            raise ProviderError(message)
        methods = found.get("token_endpoint_auth_methods_supported")
        basic = not isinstance(methods, list) or "client_secret_basic" in methods
        try:
            end = found.get("end_session_endpoint")
            return Metadata(
                settings.endpoint(found.get("authorization_endpoint"), "authorization_endpoint"),
                settings.endpoint(found.get("token_endpoint"), "token_endpoint"),
                settings.endpoint(found.get("jwks_uri"), "jwks_uri"),
                settings.endpoint(end, "end_session_endpoint") if end is not None else "",
                posts_secret=not basic,
            )
        except ValueError as error:
            message = f"The metadata of the provider cannot be used: {error}"
            raise ProviderError(message) from error


def _document(host: str, code: int, raw: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and 200 <= code < 300:
        return found
    if isinstance(found, dict) and 400 <= code < 500 and "error" in found:
        raise FlowError(refused(found))
    if 300 <= code < 400:
        message = f"The provider at {host} answers with a redirect, which the console does not follow."
        raise ProviderError(message)
    words = f"status {code}" if not 200 <= code < 300 else "an answer that is not a JSON object"
    message = f"The provider at {host} gives {words}. Is the issuer right?"
    raise ProviderError(message)
