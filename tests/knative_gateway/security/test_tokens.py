"""The user of a bearer token of a file or of an issuer."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knative_gateway.config import GatewaySettings, JwtSettings
from knative_gateway.errors import ConfigError
from knative_gateway.security import tokens
from knative_gateway.security.access import Identity, Rule, Verb
from knative_gateway.security.tokens import JwtTokens, StaticTokens, credentials

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
GOOD = {"iss": "https://issuer", "aud": "gateway", "sub": "anna", "exp": NOW + 60, "groups": ["team", "ops"]}
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def made(claims: dict[str, Any], key: Any = KEY, algorithm: str = "ES256", **headers: str) -> str:
    return jwt.encode(claims, key, algorithm=algorithm, headers=headers)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "issuer.pem"
    path.write_bytes(pem(KEY))
    return path


Checker = Callable[..., JwtTokens]


@pytest.fixture(scope="module")
def checker(keys: Path) -> Checker:
    def make(now_ms: int = NOW_MS, **more: Any) -> JwtTokens:
        return JwtTokens(
            JwtSettings(**{"issuer": "https://issuer", "audience": "gateway", "keys": keys, **more}),
            lambda: now_ms,
        )

    return make


def token_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens.csv"
    path.write_text(text)
    path.chmod(mode)
    return path


# -- a file


def test_a_line_names_a_token_its_user_and_groups(tmp_path: Path) -> None:
    text = '# who\n\n0123456789abcdef,anna,1,"team, ops"\nfedcba9876543210,ben\n0000000000000000 , carl ,3\n'
    known = StaticTokens(token_file(tmp_path, text))
    assert known.identity("0123456789abcdef") == Identity("anna", frozenset({"team", "ops"}))
    assert known.identity("fedcba9876543210") == Identity("ben")
    assert known.identity("0000000000000000") == Identity("carl")
    for stranger in ("", "0123456789abcde", "# who", "anna", "\ud800"):
        assert known.identity(stranger) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("short,anna", "line 1: the token must have 16 to"),
        ("0123456789abcdef", "line 1: expected token,user"),
        ("\n0123456789abcdef,", "line 2: expected token,user"),
        ("0123456789abcdef,a,b,c,d", "line 1: expected token,user"),
        ("0123456789abcdéf,anna", "printable ASCII"),
        ("0123456 789abcdef,anna", "printable ASCII"),
        ("0123456789abcdef,anna\n0123456789abcdef,ben", "line 2: the token is repeated"),
        ('0123456789abcdef,anna,"', "is not valid CSV"),
    ],
)
def test_an_error_in_a_file_is_reported_without_the_token(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        StaticTokens(token_file(tmp_path, text))
    assert "0123456" not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="other users can access"):
        StaticTokens(token_file(tmp_path, "0123456789abcdef,anna", 0o644))
    with pytest.raises(ConfigError, match="cannot read "):
        StaticTokens(tmp_path / "nowhere")


# -- JWT


def test_a_token_of_the_issuer_is_accepted(checker: Checker) -> None:
    anna = Identity("anna", frozenset({"team", "ops"}))
    assert checker().identity(made(GOOD)) == anna
    assert checker().identity(made(GOOD | {"aud": ["other", "gateway"], "groups": "team ops"})) == anna
    nested = GOOD | {"realm": {"roles": ["r"]}, "email": "a@b"}
    assert checker(user_claim="email", groups_claim="realm.roles").identity(made(nested)) == Identity(
        "a@b", frozenset({"r"})
    )


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other"},
        {"aud": "other"},
        {"exp": NOW - 31},
        {"nbf": NOW + 31},
        {"exp": "soon"},
        {"exp": True},
        {"sub": ""},
        {"sub": "x\n"},
        {"sub": "x" * 256},
        *({name: None} for name in ("iss", "aud", "exp", "sub")),
    ],
)
def test_a_token_with_one_wrong_claim_is_refused(checker: Checker, claims: dict[str, Any]) -> None:
    wrong = {name: value for name, value in (GOOD | claims).items() if value is not None}
    try:
        token = made(wrong)
    except TypeError:  # PyJWT itself writes no such claim
        token = jwt.api_jws.encode(json.dumps(wrong).encode(), KEY, algorithm="ES256")
    assert checker().identity(token) is None


def test_a_signature_must_be_of_the_key_and_of_an_algorithm_that_is_allowed(
    checker: Checker, keys: Path
) -> None:
    assert checker().identity(made(GOOD, OTHER)) is None
    assert checker().identity(jwt.encode(GOOD, "", algorithm="none")) is None
    # The public key taken for a shared secret: PyJWT does not even write it so.
    _, body, _ = made(GOOD).split(".")
    confused = jwt.utils.base64url_encode(b'{"alg":"HS256","typ":"JWT"}').decode()
    mac = jwt.utils.base64url_encode(
        jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
            f"{confused}.{body}".encode(), pem(KEY)
        )
    )
    assert checker().identity(f"{confused}.{body}.{mac.decode()}") is None
    with pytest.raises(ConfigError, match="a key for any of RS256"):
        # As in TOML.
        JwtTokens(JwtSettings(issuer="i", audience=("a",), keys=keys, algorithms="RS256"), lambda: NOW_MS)  # type: ignore[arg-type]


def test_a_token_expires_at_its_time_although_it_was_accepted_before(
    checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW_MS]
    known = checker()
    monkeypatch.setattr(known, "_now_ms", lambda: now[0])
    token = made(GOOD)
    assert known.identity(token) is not None
    monkeypatch.setattr(known, "_check", lambda _token: None)
    now[0] = (NOW + 60 + 29) * 1000
    assert known.identity(token) is not None, "it is not checked again"
    now[0] = (NOW + 60 + 30) * 1000
    assert known.identity(token) is None
    assert not known._known


def test_only_so_many_are_remembered(checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "KNOWN_MAX", 3)
    known = checker()
    for number in range(5):
        assert known.identity(made(GOOD | {"sub": f"user-{number}"})) is not None
    assert len(known._known) == 3
    assert known.identity("x" * 20_000) is None


def test_keys_come_as_jwks_too_and_are_chosen_by_their_id(tmp_path: Path) -> None:
    entries = [
        json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())) | {"kid": kid}
        for kid, key in (("one", KEY), ("two", OTHER))
    ]
    signing = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key())) | {
        "kid": "one",
        "key_ops": ["sign"],
    }
    passed_over = [{"kty": "oct", "k": "AAAA"}, {"kty": "RSA", "use": "enc"}, {"kty": "unheard of"}, signing]
    (tmp_path / "jwks").write_text(json.dumps({"keys": passed_over + entries}))
    known = JwtTokens(
        JwtSettings(issuer="https://issuer", audience=("gateway",), keys=tmp_path / "jwks"), lambda: NOW_MS
    )
    assert known.identity(made(GOOD, OTHER, kid="two")) is not None
    assert known.identity(made(GOOD, OTHER)) is not None
    assert known.identity(made(GOOD, OTHER, kid="one")) is None
    assert len(known._keys) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": []}',
        b"nonsense",
        private(KEY),
        pem(rsa.generate_private_key(65537, 1024)),
    ],
)
def test_a_file_without_a_usable_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(ConfigError, match=r"jwt\.keys: .*keys does not contain"):
        JwtTokens(JwtSettings(issuer="i", audience=("a",), keys=tmp_path / "keys"), lambda: NOW_MS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=100)
    | st.builds(".".join, st.lists(st.text("ABCabc012_-", max_size=20), min_size=2, max_size=4))
)
def test_garbage_is_not_a_user(checker: Checker, garbage: str) -> None:
    assert checker().identity(garbage) is None


# -- settings


def test_settings_say_whose_tokens_count_and_what_they_allow(tmp_path: Path, keys: Path) -> None:
    assert credentials(GatewaySettings(), lambda: NOW_MS) == ([], [])
    given = {
        "tokens": str(token_file(tmp_path, "0123456789abcdef,anna")),
        "jwt": {"issuer": "https://issuer", "audience": "gateway", "keys": str(keys)},
        "rules": [{"users": "anna", "allow": ["read", "send"], "namespaces": "prod-*"}],
    }
    known, rules = credentials(GatewaySettings.model_validate(given), lambda: NOW_MS)
    assert [type(each).__name__ for each in known] == ["StaticTokens", "JwtTokens"]
    assert rules == [Rule(("anna",), (), (Verb.READ, Verb.SEND), ("prod-*",))]
    assert abs(tokens.wall_ms() - time.time() * 1000) < 60_000


@pytest.mark.parametrize(
    "given",
    [
        {"rules": [{"users": ["a"], "allow": ["read"]}]},
        {"tokens": "x", "rules": [{"allow": ["read"]}]},
        {"tokens": "x", "rules": [{"users": ["a"], "allow": []}]},
        {"tokens": "x", "rules": [{"users": ["a"], "allow": ["rule"]}]},
        {"jwt": {"issuer": "i", "audience": [], "keys": "k"}},
        {"jwt": {"issuer": "i", "audience": "a", "keys": "k", "algorithms": ["none"]}},
        {"jwt": {"issuer": "i", "audience": "a", "keys": "k", "algorithms": ["HS256"]}},
    ],
)
def test_settings_that_would_admit_unwanted_clients_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        GatewaySettings.model_validate(given)
