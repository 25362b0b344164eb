"""Keys are read from files of an issuer. Each key verifies only the algorithms for which it is made."""

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from service_parts.errors import SettingError
from service_parts.tokens.algorithms import TokenAlgorithm
from service_parts.tokens.keys import PUBLISHED_MAX, client_secret, public_keys, published_keys, secret_key

ES256 = ec.generate_private_key(ec.SECP256R1())
PUBLIC = [algorithm for algorithm in TokenAlgorithm if not algorithm.symmetric]


def pem(key: Any) -> bytes:
    """Return the public key."""
    data = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert isinstance(data, bytes)
    return data


def jwks(folder: Path, *entries: dict[str, Any]) -> Path:
    """Return a file of keys."""
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": entries}))
    return path


def entry(**more: Any) -> dict[str, Any]:
    """The public half of ES256 in a JWKS."""
    made = jwt.algorithms.ECAlgorithm.to_jwk(ES256.public_key(), as_dict=True)
    return {**made, **more}


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (rsa.generate_private_key(65537, 2048), {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        (ES256, {"ES256"}),
        (ec.generate_private_key(ec.SECP384R1()), {"ES384"}),
        (ed25519.Ed25519PrivateKey.generate(), {"EdDSA"}),
    ],
)
def test_a_key_checks_what_its_kind_is_made_for(tmp_path: Path, key: Any, algorithms: set[str]) -> None:
    (tmp_path / "key.pem").write_bytes(pem(key))
    [found] = public_keys(tmp_path / "key.pem", PUBLIC)
    assert found.algorithms == algorithms
    assert "Public" not in repr(found)


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP256K1())]
)
def test_a_key_that_is_too_weak_or_of_an_unknown_curve_checks_nothing(tmp_path: Path, key: Any) -> None:
    (tmp_path / "key.pem").write_bytes(pem(key))
    with pytest.raises(SettingError, match=r"key\.pem does not contain a key for any of RS256"):
        public_keys(tmp_path / "key.pem", PUBLIC)


@pytest.mark.parametrize(
    "more",
    [{"use": "enc"}, {"key_ops": ["sign"]}, {"alg": "ES384"}, {"alg": "none"}, {"kty": "oct", "k": "AAAA"}],
)
def test_a_key_that_its_issuer_keeps_for_something_else_is_skipped(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    with pytest.raises(SettingError, match="does not contain a key for any of"):
        public_keys(jwks(tmp_path, entry(**more)), PUBLIC)
    [found] = public_keys(jwks(tmp_path, entry(**more), entry(kid="good", key_ops=["verify"])), PUBLIC)
    assert found.id == "good"


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"{}", b'{"keys": 5}', b'{"keys": [5]}', b'{"keys":' * 100_000]
)
def test_a_file_without_keys_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "keys").write_bytes(data)
    with pytest.raises(SettingError, match="keys does not contain keys"):
        public_keys(tmp_path / "keys", PUBLIC)


def test_a_private_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(ES256.private_bytes(*form))
    with pytest.raises(SettingError, match="contains a private key") as caught:
        public_keys(tmp_path / "key.pem", PUBLIC)
    assert "MII" not in str(caught.value)


def test_a_secret_is_long_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x" * 32 + b"\n")
    path.chmod(0o640)
    with pytest.raises(SettingError, match="chmod 600"):
        secret_key(path)
    path.chmod(0o600)
    assert secret_key(path).algorithms == {"HS256", "HS384", "HS512"}
    path.write_bytes(b"x" * 31 + b"\n")
    with pytest.raises(SettingError, match="at least 32 bytes"):
        secret_key(path)


def test_published_keys_are_read_and_those_of_new_kinds_are_ignored() -> None:
    good = entry(kid="good")
    odd: list[object] = [{}, 5, None, {"kty": "new"}, {"kty": "RSA", "n": 1}]
    [found] = published_keys({"keys": [*odd, good]}, PUBLIC)
    assert found.id == "good"


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, {"keys": [{}] * (PUBLISHED_MAX + 1)}])
def test_what_is_not_a_list_of_keys_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="list of at most 100 keys"):
        published_keys(document, PUBLIC)


def test_a_client_secret_is_read_unless_others_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret \n")
    file.chmod(0o600)
    assert client_secret(file) == "s3cret"
    file.chmod(0o644)
    with pytest.raises(SettingError, match="run chmod 600"):
        client_secret(file)
    file.chmod(0o600)
    for text in ("", "ä"):
        file.write_text(text)
        with pytest.raises(SettingError, match="must have a client secret"):
            client_secret(file)
