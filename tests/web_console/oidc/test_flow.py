"""The steps of a login without the network: seals, answers of the provider, ID tokens."""

import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from service_parts.tokens.algorithms import PublicKeyAlgorithm
from service_parts.tokens.keys import Key
from web_console.oidc.flow import (
    CODE_MAX,
    LEEWAY_MS,
    LOGIN_S_MAX,
    TOKEN_MAX,
    FlowError,
    authorization_url,
    begun,
    code_of,
    opened,
    person_of,
    refused,
    sealed,
    tokens_of,
)
from web_console.oidc_settings import OidcSettings

SETTINGS = OidcSettings("https://id.example", "console")
SEAL = b"k" * 32
PRIVATE = rsa.generate_private_key(65537, 2048)
KEYS = [Key(PRIVATE.public_key(), frozenset({PublicKeyAlgorithm.RS256}))]


def test_a_login_that_began_is_opened_again_until_it_is_too_old() -> None:
    login = begun(100.0)
    cookie = sealed(login, SEAL)
    assert opened(cookie, SEAL, 100.0 + LOGIN_S_MAX) == login
    for now_s in (101.0 + LOGIN_S_MAX, 99.0):
        with pytest.raises(FlowError, match="took too long"):
            opened(cookie, SEAL, now_s)


@given(st.text(max_size=300))
def test_a_cookie_that_the_console_has_not_made_is_refused(cookie: str) -> None:
    with pytest.raises(FlowError, match="has not begun"):
        opened(cookie, SEAL, 100.0)


@given(st.integers(0, 200), st.characters(codec="ascii"))
def test_a_cookie_that_was_changed_is_refused(index: int, other: str) -> None:
    cookie = sealed(begun(100.0), SEAL)
    at = index % len(cookie)
    changed = cookie[:at] + other + cookie[at + 1 :]
    if changed != cookie:
        with pytest.raises(FlowError):
            opened(changed, SEAL, 100.0)
    with pytest.raises(FlowError):
        opened(cookie, b"another key", 100.0)


def test_the_browser_is_sent_with_a_challenge_and_not_with_the_verifier() -> None:
    login = begun(1.0)
    url = authorization_url(
        "https://id.example/auth?p=1", SETTINGS, login, "http://c/login/provider/callback"
    )
    query = parse_qs(urlsplit(url).query)
    assert query["p"] == ["1"]
    assert query["redirect_uri"] == ["http://c/login/provider/callback"]
    assert login.verifier not in url
    assert len(query["code_challenge"][0]) == 43


def test_a_code_that_is_too_long_is_refused() -> None:
    login = begun(1.0)
    assert code_of({"state": login.state, "code": "x" * CODE_MAX}, login, SETTINGS)
    with pytest.raises(FlowError, match="has no code"):
        code_of({"state": login.state, "code": "x" * (CODE_MAX + 1)}, login, SETTINGS)


@given(st.dictionaries(st.sampled_from(("error", "error_description")), st.text() | st.integers()))
def test_the_words_for_an_error_are_short_and_of_one_line(answer: dict[str, Any]) -> None:
    words = refused(answer)
    assert len(words) < 500
    assert words.isprintable()


@given(
    st.dictionaries(
        st.sampled_from(("access_token", "token_type", "expires_in", "id_token", "refresh_token")),
        st.text(max_size=9) | st.floats() | st.none() | st.booleans() | st.lists(st.integers()),
    )
)
def test_any_answer_has_tokens_that_can_be_sent_or_is_refused(answer: dict[str, Any]) -> None:
    try:
        tokens = tokens_of(answer)
    except FlowError:
        return
    for each in (tokens.access_token, tokens.id_token, tokens.refresh_token):
        assert each is None or (each.isascii() and each.isprintable() and " " not in each)
    assert tokens.expires_in_s is None or tokens.expires_in_s >= 0


def test_a_token_has_a_bounded_length() -> None:
    assert tokens_of({"access_token": "x" * TOKEN_MAX, "token_type": "bearer"}).expires_in_s is None
    with pytest.raises(FlowError):
        tokens_of({"access_token": "x" * (TOKEN_MAX + 1), "token_type": "bearer"})


def id_token(**changes: Any) -> str:
    claims = {
        "iss": "https://id.example",
        "aud": "console",
        "sub": "1",
        "nonce": "n",
        "exp": 2000,
        "preferred_username": "alice",
    }
    return jwt.encode({**claims, **changes}, PRIVATE, "RS256")


def person(token: str, now_ms: int = 1_000_000, nonce: str | None = "n") -> Any:
    return person_of(token, KEYS, SETTINGS, nonce=nonce, now_ms=now_ms)


def test_an_id_token_names_a_person() -> None:
    found = person(id_token())
    assert (found.subject, found.name) == ("1", "alice")
    assert person(id_token(preferred_username="")).name == "1"
    assert person(id_token(nonce="other"), nonce=None).subject == "1"
    assert person(id_token(aud=["console", "x"], azp="console")).subject == "1"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://id.example/"},
        {"aud": "x"},
        {"aud": ["console", "x"]},
        {"azp": "x"},
        {"nonce": "m"},
        {"nonce": "\ud83d"},
        {"nonce": 1},
        {"nonce": None},
        {"exp": 1},
        {"exp": "x"},
        {"sub": "x" * 300},
    ],
)
def test_an_id_token_that_is_not_for_this_login_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(FlowError, match="ID token is not accepted"):
        person(id_token(**changes))


def test_the_clocks_may_differ_by_a_minute() -> None:
    assert person(id_token(), 2_000_000 + LEEWAY_MS - 1).subject == "1"
    with pytest.raises(FlowError, match="expired"):
        person(id_token(), 2_000_000 + LEEWAY_MS)


def test_a_token_without_a_signature_or_with_a_secret_is_refused() -> None:
    claims = jwt.decode(id_token(exp=time.time() + 60), options={"verify_signature": False})
    for token in (jwt.encode(claims, "", "none"), jwt.encode(claims, "s" * 32, "HS256")):
        with pytest.raises(FlowError, match="algorithm that is not allowed"):
            person(token)
