"""Tokens: only a token that the issuer signed for this node, with a user and an expiry, is accepted."""

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams.errors import ConfigError
from amqp_streams.server.identity.tokens import TokenCheck
from amqp_streams.wire.security.mechanisms import Failure, Success
from tests.amqp_streams.server.issuer import (
    ISSUER,
    KEYS,
    NOW_MS,
    KeyFolder,
    claims,
    handmade,
    jwk,
    public_pem,
    token,
)

SECRET = b"0123456789abcdef0123456789abcdef"
EVERY = ["RS256", "PS256", "ES256", "ES384", "EdDSA"]


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path)


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> TokenCheck:
    folder = KeyFolder(tmp_path_factory.mktemp("keys")).jwks(*(jwk(algorithm) for algorithm in EVERY))
    return TokenCheck(folder.oauth(algorithms=EVERY), lambda: NOW_MS)


@pytest.mark.parametrize("algorithm", EVERY)
def test_a_token_of_the_issuer_gives_user_groups_and_expiry(check: TokenCheck, algorithm: str) -> None:
    good = check.verify(token(algorithm))
    assert good == Success("alice", groups=frozenset({"ops", "dev"}), expires_ms=NOW_MS + 60_000 + 30_000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": "https://evil.example.org"}, "another issuer issued it"),
        ({"iss": None}, "it has no expiry, no issuer or no audience"),
        ({"aud": "another"}, "it is for another audience"),
        ({"aud": ["another", "third"]}, "it is for another audience"),
        ({"aud": None}, "it has no expiry, no issuer or no audience"),
        ({"exp": None}, "it has no expiry, no issuer or no audience"),
        ({"exp": NOW_MS // 1000 - 30}, "it has expired"),
        ({"exp": 0}, "it has expired"),
        ({"exp": -1}, "its claim exp is not a valid time"),
        ({"exp": 1e300}, "its claim exp is not a valid time"),
        ({"exp": "tomorrow"}, "its claim exp is not a valid time"),
        ({"exp": True}, "its claim exp is not a valid time"),
        ({"nbf": NOW_MS // 1000 + 31}, "it is not valid yet"),
        ({"nbf": []}, "its claim nbf is not a valid time"),
        ({"sub": None}, "the claim sub is not a valid user name"),
        ({"sub": ""}, "the claim sub is not a valid user name"),
        ({"sub": "a\nb"}, "the claim sub is not a valid user name"),
    ],
)
def test_a_token_that_is_not_for_us_now_is_refused_with_the_reason(
    check: TokenCheck, changes: dict[str, Any], reason: str
) -> None:
    assert check.verify(token(**changes)) in (Failure(f"token: {reason}"), Failure("token: it is malformed"))
    assert changes.get("exp") == "tomorrow" or check.verify(token(**changes)) == Failure(f"token: {reason}")


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW_MS // 1000 - 29},
        {"nbf": NOW_MS // 1000 + 30},
        {"aud": ["x", "streams"]},
        {"exp": NOW_MS / 1000 + 0.5},
    ],
)
def test_clocks_may_differ_a_little_and_audiences_may_be_several(
    check: TokenCheck, changes: dict[str, Any]
) -> None:
    assert isinstance(check.verify(token(**changes)), Success)


def test_a_signature_of_another_key_does_not_count(check: TokenCheck) -> None:
    forged = token("ES256", ec.generate_private_key(ec.SECP256R1()))
    assert check.verify(forged) == Failure("token: no known key signed it")
    head, body, signature = token().split(".")
    other = token(sub="bob").split(".")[1]
    for changed in (f"{head}.{other}.{signature}", f"{head}.{body}.", f"{head}.{body}.{signature[:-4]}AAAA"):
        assert isinstance(check.verify(changed), Failure)


def test_an_unsigned_token_is_refused(check: TokenCheck) -> None:
    """RFC 8725, section 3.1."""
    for algorithm in ("none", "None", "NONE", None, 5, "", "RS1", ["ES256"]):
        assert isinstance(check.verify(handmade({"alg": algorithm, "typ": "JWT"}, claims())), Failure)


def test_a_public_key_is_never_taken_for_a_shared_secret(keys: KeyFolder) -> None:
    """RFC 8725, section 2.1: the oldest trick; here the secret is configured, too."""
    (keys.folder / "secret").write_bytes(SECRET)
    (keys.folder / "secret").chmod(0o600)
    pem = public_pem(KEYS["RS256"])
    keys.file("rsa.pem", pem)
    check = TokenCheck(
        keys.oauth(algorithms=["RS256", "HS256"], secret_file=keys.folder / "secret"), lambda: NOW_MS
    )
    for secret in (pem, pem.strip(), b"x"):
        assert isinstance(check.verify(handmade({"alg": "HS256"}, claims(), secret)), Failure)
    assert isinstance(check.verify(handmade({"alg": "HS256"}, claims(), SECRET)), Success)
    assert isinstance(check.verify(token("RS256")), Success)


def test_an_algorithm_that_is_not_allowed_is_refused_though_the_key_could(keys: KeyFolder) -> None:
    check = TokenCheck(keys.jwks(jwk("RS256")).oauth(algorithms=["PS256"]), lambda: NOW_MS)
    assert check.verify(token("RS256")) == Failure(
        "token: it is signed with an algorithm that is not allowed"
    )
    assert isinstance(check.verify(token("PS256")), Success)


def test_a_key_is_good_for_what_its_issuer_says_only(keys: KeyFolder) -> None:
    check = TokenCheck(
        keys.jwks(jwk("RS256", alg="RS256"), jwk("ES256", use="enc"), jwk("ES384", key_ops=["sign"])).oauth(),
        lambda: NOW_MS,
    )
    assert isinstance(check.verify(token("RS256")), Success)
    for algorithm in ("PS256", "ES256"):
        assert isinstance(check.verify(token(algorithm)), Failure)


def test_the_key_that_the_token_names_is_looked_at(keys: KeyFolder) -> None:
    check = TokenCheck(keys.jwks(jwk("ES256", kid="new"), jwk("RS256")).oauth(), lambda: NOW_MS)
    assert isinstance(check.verify(token(kid="new")), Success)
    assert isinstance(check.verify(token()), Success)
    assert isinstance(check.verify(token(kid="old")), Failure)
    assert isinstance(check.verify(token("RS256", kid="any")), Success), "keys without a name may be meant"


def test_user_and_groups_are_where_the_configuration_says(keys: KeyFolder) -> None:
    keys.jwks(jwk("ES256"))
    check = TokenCheck(
        keys.oauth(user_claim="preferred_username", groups_claim="realm_access.roles"), lambda: NOW_MS
    )
    good = check.verify(token(preferred_username="ann", realm_access={"roles": ["a", "b", 5, "", "x" * 300]}))
    assert isinstance(good, Success)
    assert (good.user, good.groups) == ("ann", frozenset({"a", "b"}))
    dotted = TokenCheck(keys.oauth(groups_claim="https://example.org/groups"), lambda: NOW_MS)
    good = dotted.verify(token(**{"https://example.org/groups": "a b"}))
    assert isinstance(good, Success)
    assert good.groups == frozenset({"a", "b"}), "as `scope` has them"
    none = TokenCheck(keys.oauth(groups_claim="no.such"), lambda: NOW_MS).verify(token())
    assert isinstance(none, Success)
    assert none.groups == frozenset()


@pytest.mark.parametrize("form", ["pem", "certificate", "jwks", "private jwks"])
def test_keys_come_in_several_forms(keys: KeyFolder, form: str, authority_pem: bytes) -> None:
    if form == "pem":
        keys.file("key.pem", public_pem(KEYS["ES256"]))
    elif form == "certificate":
        keys.file("certificate.pem", authority_pem)
    elif form == "jwks":
        keys.jwks(jwk("ES256"))
    else:
        keys.jwks(jwt.get_algorithm_by_name("ES256").to_jwk(KEYS["ES256"], as_dict=True))
    check = TokenCheck(keys.oauth(), lambda: NOW_MS)
    assert isinstance(check.verify(token()), Success) is (form != "certificate")


@pytest.fixture(scope="module")
def authority_pem(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from tests.amqp_streams.server.peers import Authority  # noqa: PLC0415  for this form alone

    return Authority(tmp_path_factory.mktemp("authority")).ca.read_bytes()


def private_pem() -> bytes:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = KEYS["ES256"].private_bytes(*form)
    assert isinstance(pem, bytes)
    return pem


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not contain keys"),
        (b"hello", "does not contain keys"),
        (b"{}", "does not contain keys"),
        (b'{"keys": 5}', "does not contain keys"),
        (b'{"keys": [5]}', "does not contain keys"),
        (b'{"keys":' * 100_000, "does not contain keys"),
        (b'{"keys": []}', "does not contain a key for any of RS256"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "does not contain a key for any of"),
        (json.dumps({"keys": [jwk("ES384")]}).encode(), "does not contain a key for any of"),
        (public_pem(ec.generate_private_key(ec.SECP256K1())), "does not contain a key for any of"),
        (public_pem(rsa.generate_private_key(65537, 1024)), "does not contain a key for any of"),
        (b"x" * (2 << 20), "is larger than"),
    ],
)
def test_files_without_a_key_that_can_be_used_stop_the_start(
    keys: KeyFolder, data: bytes, words: str
) -> None:
    with pytest.raises(ConfigError, match=rf"keys\.file.*{words}|{words}"):
        TokenCheck(keys.file("keys.file", data).oauth(), lambda: NOW_MS)


def test_a_private_key_is_refused_and_not_shown(keys: KeyFolder) -> None:
    with pytest.raises(ConfigError, match="contains a private key") as caught:
        TokenCheck(keys.file("key.pem", private_pem()).oauth(), lambda: NOW_MS)
    assert "MII" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "mode", "words"),
    [(SECRET[:31], 0o600, "at least 32 bytes"), (SECRET, 0o640, "chmod 600"), (None, 0, "cannot read")],
)
def test_a_secret_that_is_short_or_open_or_not_there_stops_the_start(
    keys: KeyFolder, data: bytes | None, mode: int, words: str
) -> None:
    path = keys.folder / "secret"
    if data is not None:
        path.write_bytes(data)
        path.chmod(mode)
    with pytest.raises(ConfigError, match=words):
        TokenCheck(keys.oauth(algorithms=["HS256"], secret_file=path), lambda: NOW_MS)


@given(
    st.text(max_size=60)
    | st.binary(max_size=40).map(bytes.hex)
    | st.lists(st.sampled_from([*token().split("."), "", "e30", "W10"]), max_size=5).map(".".join)
)
def test_arbitrary_text_is_not_a_token_and_raises_nothing(check: TokenCheck, text: str) -> None:
    assert isinstance(check.verify(text), Failure) or text.count(".") == 2


@pytest.mark.parametrize(
    "payload", [b"[" * 5000, b"[]", b"5", b'"x"', b'{"exp": NaN}', b"\xff", b"{" + b'"a":{' * 3000]
)
def test_signed_garbage_is_refused(check: TokenCheck, payload: bytes) -> None:
    """Invalid tokens that the issuer has signed, and a header with the deepest JSON, which is read before the
    signature is verified.
    """
    signed = jwt.PyJWS().encode(payload, KEYS["ES256"], "ES256")
    assert isinstance(check.verify(signed), Failure)
    _, body, signature = token().split(".")
    deep = jwt.utils.base64url_encode(b'{"alg":"ES256","x":' + b"[" * 6000).decode()
    assert isinstance(check.verify(f"{deep}.{body}.{signature}"), Failure)


def test_no_reason_and_no_representation_has_the_token_in_it(check: TokenCheck) -> None:
    bad = token(iss="https://evil.example.org")
    reason = check.verify(bad)
    assert isinstance(reason, Failure)
    assert not any(part in reason.reason for part in bad.split("."))
    assert ISSUER not in reason.reason
