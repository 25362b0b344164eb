"""[io] Reads the keys that verify JWTs from files, with the algorithms of each key. Spec: RFC 7517, RFC 8725.

Laws: a key is used only with the algorithms that it is for. A key that is too weak is not used. No message
contains a key.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from service_parts.errors import SettingError
from service_parts.files import read_file
from service_parts.tokens.algorithms import TokenAlgorithm

RSA_BITS_MIN: Final = 2048
SECRET_BYTES_MIN: Final = 32
FILE_BYTES_MAX: Final = 1 << 20
PUBLISHED_MAX: Final = 100
"""Keys that an issuer may publish."""
_CURVES: Final = {
    "secp256r1": TokenAlgorithm.ES256,
    "secp384r1": TokenAlgorithm.ES384,
    "secp521r1": TokenAlgorithm.ES512,
}
_RSA: Final = frozenset(algorithm for algorithm in TokenAlgorithm if algorithm.startswith(("RS", "PS")))
_HMAC: Final = frozenset(algorithm for algorithm in TokenAlgorithm if algorithm.symmetric)

MALFORMED: Final = (
    jwt.PyJWTError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    AttributeError,
)
"""The exceptions that reading a key or a token can raise. JSON from a peer can be nested too deeply, or have
numbers that are too large.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and the algorithms for which it may be used. `id`: the issuer's name for the key."""

    value: Any = field(repr=False)
    algorithms: frozenset[str]
    id: str | None = None


def public_keys(path: Path, algorithms: Collection[str]) -> list[Key]:
    """Return the keys in a JWKS or PEM file that are for one of `algorithms`.

    Raises:
        SettingError: the file cannot be read or has no such key. The message names the file.
    """
    data = read_file(path, FILE_BYTES_MAX)
    try:
        keys = list(_jwks(data) if data.lstrip().startswith(b"{") else _pem(data))
    except (*MALFORMED, UnsupportedAlgorithm) as error:
        message = f"{path} does not contain keys: {error}"
        raise SettingError(message) from error
    usable = [key for key in keys if not key.algorithms.isdisjoint(algorithms)]
    if not usable:
        message = f"{path} does not contain a key for any of {', '.join(algorithms)}"
        raise SettingError(message)
    return usable


def published_keys(document: object, algorithms: Collection[str]) -> list[Key]:
    """Return the keys in a JWKS, as JSON, that are for one of `algorithms`. Others are ignored.

    Raises:
        ValueError: it is not a JWKS, or has more than `PUBLISHED_MAX` keys.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > PUBLISHED_MAX:
        message = f"it does not have a list of at most {PUBLISHED_MAX} keys"
        raise ValueError(message)
    keys: list[Key] = []
    for entry in entries:
        # One key that cannot be read, for example of a new kind, must not hide the others.
        with suppress(*MALFORMED, UnsupportedAlgorithm):
            keys += _of_entries([entry])
    return [key for key in keys if not key.algorithms.isdisjoint(algorithms)]


def secret_key(path: Path) -> Key:
    """Return the secret in a file, for the symmetric algorithms.

    Raises:
        SettingError: the file cannot be read, other users can read it, or the secret is too short. The
            message names the file.
    """
    # Before the secret is read: a secret that others can read is not one.
    if path.exists() and path.stat().st_mode & 0o077:
        message = f"other users can access {path}: run chmod 600 {path}"
        raise SettingError(message)
    value = read_file(path, FILE_BYTES_MAX).strip()
    if len(value) < SECRET_BYTES_MIN:
        message = f"{path} must have at least {SECRET_BYTES_MIN} bytes"
        raise SettingError(message)
    return Key(value, _HMAC)


def client_secret(path: Path) -> str:
    """Return the secret of a client in a file.

    Raises:
        SettingError: the file cannot be read, other users can read it, or it has no text. The message names
            the file.
    """
    if path.exists() and path.stat().st_mode & 0o077:
        message = f"other users can access {path}: run chmod 600 {path}"
        raise SettingError(message)
    text = read_file(path, FILE_BYTES_MAX).strip()
    if not text or not text.isascii():
        message = f"{path} must have a client secret, in ASCII"
        raise SettingError(message)
    return text.decode()


def _jwks(data: bytes) -> Iterator[Key]:
    """Read a JWKS (RFC 7517).

    Skips keys for encryption, keys that must not verify, unknown kinds, and secrets, which `secret_key` reads
    from a file of their own.
    """
    yield from _of_entries(json.loads(data)["keys"])


def _of_entries(entries: Iterable[Any]) -> Iterator[Key]:
    for entry in entries:
        if (
            entry.get("use", "sig") != "sig"
            or "verify" not in entry.get("key_ops", ["verify"])
            or entry.get("kty") == "oct"
        ):
            continue
        try:
            value = _public(jwt.PyJWK(entry).key)
        except (jwt.PyJWTError, NotImplementedError):  # PyJWT raises the second for "alg": "none"
            continue
        # The issuer may restrict a key to one algorithm.
        own = frozenset[str]({entry["alg"]} if "alg" in entry else TokenAlgorithm)
        kid = entry.get("kid")
        yield Key(value, _algorithms(value) & own, kid if isinstance(kid, str) else None)


def _pem(data: bytes) -> Iterator[Key]:
    # It would verify tokens too, but a service that has it can also create them.
    if b"PRIVATE KEY" in data:
        message = "it contains a private key, which only the issuer may have: use the public key"
        raise ValueError(message)
    if b"BEGIN CERTIFICATE" in data:
        keys: list[Any] = [certificate.public_key() for certificate in x509.load_pem_x509_certificates(data)]
    else:
        keys = [serialization.load_pem_public_key(data)]
    for key in keys:
        yield Key(key, _algorithms(key))


def _public(key: Any) -> Any:
    """Return the public key, also of a private key that is in a JWKS by mistake."""
    return key.public_key() if hasattr(key, "public_key") else key


def _algorithms(key: object) -> frozenset[str]:
    """Return the algorithms of a key; empty for a key that is too weak."""

    match key:
        case rsa.RSAPublicKey():
            return _RSA if key.key_size >= RSA_BITS_MIN else frozenset()
        case ec.EllipticCurvePublicKey():
            return frozenset({_CURVES[key.curve.name]} if key.curve.name in _CURVES else ())
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return frozenset({TokenAlgorithm.EDDSA})
        case _:
            return frozenset()
