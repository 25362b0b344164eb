"""The tokens of a session are renewed once for many requests, and end with the provider's refusal."""

import asyncio
import time
from typing import Any

import pytest

from service_parts.settings.choices import ProviderToken
from tests.web_console.oidc.provider import CLIENT, SECRET, ProviderServer
from web_console.oidc import renewing
from web_console.oidc.flow import Person, tokens_of
from web_console.oidc.provider import Provider
from web_console.oidc.renewing import AGAIN_S, EARLY_S, SessionTokens
from web_console.oidc_settings import OidcSettings
from web_console.sessions.logins import TokensEndedError


def tokens(
    provider: ProviderServer,
    *,
    user: str = "alice",
    kind: ProviderToken = ProviderToken.ACCESS,
    **change: Any,
) -> SessionTokens:
    console = Provider(OidcSettings(provider.issuer, CLIENT, SECRET, token=kind))
    answer = tokens_of({**provider._answer(user, None), **change})
    person = Person(user, user, int((time.time() + provider.life_s) * 1000))
    return SessionTokens(console, answer, person)


async def test_a_token_that_is_fresh_is_not_renewed(provider: ProviderServer) -> None:
    session = tokens(provider)
    before = provider.asked.count("/token")
    assert len({await session.current() for _ in range(3)}) == 1
    assert provider.asked.count("/token") == before
    assert provider.life_s > EARLY_S


@pytest.mark.parametrize("kind", ProviderToken)
async def test_many_requests_renew_a_token_once(provider: ProviderServer, kind: ProviderToken) -> None:
    provider.life_s = 0.0
    session = tokens(provider, kind=kind)
    provider.life_s = 300.0
    before = provider.asked.count("/token")
    found = await asyncio.gather(*(session.current() for _ in range(20)))
    assert len(set(found)) == 1
    assert provider.asked.count("/token") == before + 1


async def test_a_refusal_ends_the_session_for_good(provider: ProviderServer) -> None:
    provider.life_s = 0.0
    session = tokens(provider)
    provider.refuses_renewal = True
    for _ in range(2):
        with pytest.raises(TokensEndedError, match="Log in again"):
            await session.current()
    assert session.is_over


async def test_another_person_in_a_renewed_login_ends_the_session(provider: ProviderServer) -> None:
    provider.life_s = 0.0
    session = tokens(provider)
    provider.life_s = 300.0
    provider.claims = {"sub": "mallory"}
    with pytest.raises(TokensEndedError):
        await session.current()


async def test_a_provider_that_is_away_ends_nothing_and_is_asked_again_later(
    provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.life_s = 0.0
    session = tokens(provider)
    await session._provider.metadata()
    provider.lies["/token"] = lambda _: (503, b"", {})
    before = provider.asked.count("/token")
    for _ in range(5):
        assert await session.current()
    assert provider.asked.count("/token") == before + 1
    assert AGAIN_S >= 1
    provider.lies.clear()
    provider.life_s = 300.0
    monkeypatch.setattr(renewing, "AGAIN_S", 0.0)
    old = session._token
    assert await session.current() != old
    assert not session.is_over


async def test_without_a_refresh_token_the_last_token_is_sent(provider: ProviderServer) -> None:
    provider.life_s = 0.0
    session = tokens(provider, refresh_token=None)
    before = provider.asked.count("/token")
    assert await session.current()
    assert provider.asked.count("/token") == before


async def test_a_provider_that_does_not_say_how_long_a_token_lives_is_not_asked(
    provider: ProviderServer,
) -> None:
    session = tokens(provider, expires_in=None)
    before = provider.asked.count("/token")
    assert await session.current()
    assert provider.asked.count("/token") == before
