"""[io] The tokens of one session, in memory only: they are renewed before they expire."""

import asyncio
import time
from typing import Final

from service_parts.settings.choices import ProviderToken
from web_console.oidc.flow import FlowError, Person, TokenAnswer
from web_console.oidc.provider import Provider, ProviderError
from web_console.sessions.logins import TokensEndedError

EARLY_S: Final = 30.0
"""How long before its expiry a token is renewed, or a quarter of its life if that is less."""
AGAIN_S: Final = 5.0
"""How long after a provider that did not answer it is not asked again."""


class SessionTokens:
    """See `logins.Tokens`."""

    def __init__(self, provider: Provider, answer: TokenAnswer, person: Person) -> None:
        self._provider: Final = provider
        self._subject: Final = person.subject
        self._lock: Final = asyncio.Lock()
        self._refresh: str | None = None
        self._is_over = False
        self._asked_s = -AGAIN_S
        self._token = ""
        self._expires_s: float | None = None
        self._early_s = EARLY_S
        self._use(answer, person)

    @property
    def is_over(self) -> bool:
        """See `logins.Tokens`."""
        return self._is_over

    async def current(self) -> str:
        """See `logins.Tokens`."""
        if self._is_fresh():
            return self._token
        async with self._lock:
            # Many requests may have waited: one of them has renewed the token.
            if not self._is_fresh() and self._refresh is not None:
                await self._renew(self._refresh)
        if self._is_over:
            message = "The provider does not renew this login. Log in again."
            raise TokensEndedError(message)
        # Without a refresh token the node or gateway refuses it, which ends the session.
        return self._token

    async def _renew(self, refresh: str) -> None:
        now_s = time.monotonic()
        if now_s - self._asked_s < AGAIN_S:
            return
        self._asked_s = now_s
        try:
            answer = await self._provider.renew(refresh)
            person = None
            if answer.id_token is not None:
                person = await self._provider.person(answer.id_token, nonce=None)
        except ProviderError:
            return  # away: the token may still be valid, and the next request asks again
        except FlowError:
            self._end()
            return
        # OpenID Connect Core 12.2: a renewed login is of the same person.
        if person is not None and person.subject != self._subject:
            self._end()
            return
        self._use(answer, person)

    def _end(self) -> None:
        self._is_over, self._refresh, self._token = True, None, ""

    def _use(self, answer: TokenAnswer, person: Person | None) -> None:
        now_s = time.monotonic()
        self._refresh = answer.refresh_token or self._refresh
        if self._provider.settings.token is ProviderToken.ID:
            if answer.id_token is None or person is None:
                return  # the provider renewed the access token only
            self._token = answer.id_token
            life_s: float | None = person.expires_ms / 1000 - time.time()
        else:
            self._token, life_s = answer.access_token, answer.expires_in_s
        self._expires_s = None if life_s is None else now_s + life_s
        self._early_s = EARLY_S if life_s is None else min(EARLY_S, life_s / 4)
        self._asked_s = -AGAIN_S

    def _is_fresh(self) -> bool:
        if self._is_over:
            return False
        return self._expires_s is None or time.monotonic() < self._expires_s - self._early_s
