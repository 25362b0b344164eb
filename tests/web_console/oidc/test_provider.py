"""The provider's metadata, keys and tokens over HTTP: a real server that is away, slow, or lies."""

import asyncio
import json
import threading
from typing import Any

import pytest

from tests.web_console.oidc.provider import CLIENT, SECRET, ProviderServer
from web_console.oidc import provider as module
from web_console.oidc.flow import FlowError
from web_console.oidc.provider import (
    ANSWER_BYTES_MAX,
    ANSWER_S_MAX,
    FAILED_S,
    KEPT_S,
    Provider,
    ProviderError,
)
from web_console.oidc_settings import OidcSettings

METADATA = "/.well-known/openid-configuration"


def of(server: ProviderServer, **more: Any) -> Provider:
    return Provider(OidcSettings(server.issuer, CLIENT, SECRET, **more))


async def test_metadata_is_read_once_also_for_many_at_the_same_time(provider: ProviderServer) -> None:
    console = of(provider)
    before = provider.asked.count(METADATA)
    await asyncio.gather(*(console.metadata() for _ in range(20)))
    assert provider.asked.count(METADATA) == before + 1
    assert KEPT_S >= 60


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "http://other.example"}, "They must be equal"),
        ({"issuer": None}, "They must be equal"),
        ({"token_endpoint": "http://evil.example/token"}, "has no TLS"),
        ({"token_endpoint": "https://evil.example/token"}, "not that of the issuer"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not an https:// URL"),
        ({"jwks_uri": None}, "does not publish jwks_uri"),
        ({"end_session_endpoint": "https://evil.example/"}, "not that of the issuer"),
    ],
)
async def test_metadata_that_is_not_right_is_refused(
    provider: ProviderServer, change: dict[str, Any], words: str
) -> None:
    provider.lies[METADATA] = lambda found: {**found, **change}
    with pytest.raises(ProviderError, match=words):
        await of(provider).metadata()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, b"[]", {}), "not a JSON object"),
        ((200, b"[" * 100_000, {}), "not a JSON object"),
        ((200, b"x" * (ANSWER_BYTES_MAX + 1), {}), "too large"),
        ((302, b"", {"location": "http://localhost:1/"}), "redirect"),
        ((404, b"", {}), "status 404"),
        ((200, b"{}", {"content-length": "99"}), "does not answer"),
    ],
)
async def test_other_answers_are_refused(
    provider: ProviderServer, answer: tuple[int, bytes, dict[str, str]], words: str
) -> None:
    provider.lies[METADATA] = lambda _: answer
    with pytest.raises(ProviderError, match=words):
        await of(provider).metadata()


async def test_a_provider_that_is_away_or_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProviderServer() as server:
        gone = of(server)
    with pytest.raises(ProviderError, match="does not answer"):
        await gone.metadata()

    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()
        ended.set()

    monkeypatch.setattr(module, "ANSWER_S_MAX", 0.05)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(ProviderError, match="does not answer"):
            await Provider(OidcSettings(f"http://127.0.0.1:{port}", CLIENT)).metadata()
        await ended.wait()
    assert ANSWER_S_MAX <= 15


async def test_many_who_ask_for_a_provider_that_fails_ask_it_once(
    provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.lies[METADATA] = lambda _: (500, b"", {})
    console, before = of(provider), provider.asked.count(METADATA)
    for _ in range(20):
        with pytest.raises(ProviderError, match="status 500"):
            await console.metadata()
    assert provider.asked.count(METADATA) == before + 1
    provider.lies.clear()
    assert FAILED_S <= 10
    monkeypatch.setattr(module, "FAILED_S", 0.0)
    assert (await console.metadata()).token


async def test_no_error_has_the_secret_or_the_code(provider: ProviderServer) -> None:
    console = of(provider)
    with pytest.raises(FlowError) as refused:
        await console.redeem("the-code", "the-verifier", "http://c/")
    assert "invalid_grant" in str(refused.value)
    for hidden in (SECRET, "the-code", "the-verifier"):
        assert hidden not in str(refused.value)


async def test_a_public_client_and_one_that_posts_its_secret_are_known(provider: ProviderServer) -> None:
    provider.secret = None
    with pytest.raises(FlowError, match="invalid_grant"):
        await Provider(OidcSettings(provider.issuer, CLIENT)).redeem("x", "v", "http://c/")
    provider.lies[METADATA] = lambda found: {
        **found,
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    }
    with pytest.raises(FlowError, match="invalid_grant"):
        await of(provider).redeem("x", "v", "http://c/")


async def test_keys_are_read_again_for_a_new_key_and_not_for_each_token(
    provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = of(provider)
    token = provider._answer("alice", "n")["id_token"]
    assert (await console.person(token, nonce="n")).name == "alice"
    provider.rotate()
    try:
        new = provider._answer("alice", "n")["id_token"]
        before = provider.asked.count("/jwks")
        for _ in range(3):
            with pytest.raises(FlowError, match="no known key"):
                await console.person(new, nonce="n")
        assert provider.asked.count("/jwks") == before
        monkeypatch.setattr(module, "KEYS_AGAIN_S", 0.0)
        assert (await console.person(new, nonce="n")).name == "alice"
        assert provider.asked.count("/jwks") == before + 1
    finally:
        provider.rotate()


@pytest.mark.parametrize("keys", [{}, {"keys": 5}, {"keys": [{}] * 101}])
async def test_keys_that_are_none_are_refused(provider: ProviderServer, keys: Any) -> None:
    provider.lies["/jwks"] = lambda _: (200, json.dumps(keys).encode(), {})
    with pytest.raises(ProviderError, match="keys of the provider cannot be used"):
        await of(provider).person(provider._answer("alice", "n")["id_token"], nonce="n")


async def test_known_keys_count_while_the_key_url_is_away(
    provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = of(provider)
    token = provider._answer("alice", "n")["id_token"]
    assert (await console.person(token, nonce="n")).name == "alice"
    monkeypatch.setattr(module, "KEYS_AGAIN_S", 0.0)
    console._keys_read_s -= KEPT_S + 1
    provider.lies["/jwks"] = lambda _: (503, b"", {})
    before = provider.asked.count("/jwks")
    for _ in range(5):
        assert (await console.person(token, nonce="n")).name == "alice"
    provider.rotate()
    try:
        new = provider._answer("alice", "n")["id_token"]
        for _ in range(5):
            with pytest.raises(ProviderError, match="status 503"):
                await console.person(new, nonce="n")
        # All of them together asked once.
        assert provider.asked.count("/jwks") == before + 1
        provider.lies.clear()
        monkeypatch.setattr(module, "FAILED_S", 0.0)
        assert (await console.person(new, nonce="n")).name == "alice"
    finally:
        provider.rotate()


@pytest.mark.parametrize("answer", [(400, b'{"error": "x"}', {}), (200, b'{"keys": 5}', {})])
async def test_keys_that_fail_are_asked_for_once(
    provider: ProviderServer, answer: tuple[int, bytes, dict[str, str]]
) -> None:
    provider.lies["/jwks"] = lambda _: answer
    console, before = of(provider), provider.asked.count("/jwks")
    for _ in range(5):
        with pytest.raises(ProviderError):
            await console.person(provider._answer("alice", "n")["id_token"], nonce="n")
    assert provider.asked.count("/jwks") == before + 1


async def test_nobody_waits_for_keys_that_another_login_reads(provider: ProviderServer) -> None:
    console = of(provider)
    token = provider._answer("alice", "n")["id_token"]
    await console.person(token, nonce="n")
    console._keys_read_s -= KEPT_S + 1
    asked, goes_on = threading.Event(), threading.Event()

    def slow(found: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        goes_on.wait(ANSWER_S_MAX)
        return found

    provider.lies["/jwks"] = slow
    first = asyncio.create_task(console.person(token, nonce="n"))
    try:
        assert await asyncio.to_thread(asked.wait, ANSWER_S_MAX)
        assert (await console.metadata()).token
        assert (await console.person(token, nonce="n")).name == "alice"
        assert not first.done()
    finally:
        goes_on.set()
    assert (await first).name == "alice"
