"""An issuer of tokens for tests: keys of every kind, and JWTs of any content."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from amqp_streams.authentication import OAuthSettings

ISSUER = "https://id.example.org"
AUDIENCE = "streams"
NOW_MS = 1_900_000_000_000
KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
KEYS["PS256"] = KEYS["RS256"]


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token. None removes a claim."""
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": NOW_MS // 1000 + 60,
        "groups": ["ops", "dev"],
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def token(algorithm: str = "ES256", key: Any = None, *, kid: str | None = None, **changes: Any) -> str:
    """A token signed by the issuer, or with `key`."""
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(claims(**changes), KEYS[algorithm] if key is None else key, algorithm, headers=headers)


def handmade(header: dict[str, Any], payload: object, secret: bytes = b"") -> str:
    """Return a token that no library would create."""
    parts = [_encoded(json.dumps(part).encode()) for part in (header, payload)]
    signature = _encoded(hmac.digest(secret, ".".join(parts).encode(), hashlib.sha256)) if secret else ""
    return ".".join([*parts, signature])


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public_pem(key: Any) -> bytes:
    """Return the public key in PEM."""
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert isinstance(public, bytes)
    return public


def jwk(algorithm: str, **more: Any) -> dict[str, Any]:
    """The public half as an entry of a JWKS."""
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(KEYS[algorithm].public_key(), as_dict=True)
    return {name: value for name, value in made.items() if name not in {"alg", "key_ops"}} | more


@dataclass
class KeyFolder:
    """Key files and the settings that name them."""

    folder: Path
    settings: dict[str, Any] = field(
        default_factory=lambda: {"issuer": ISSUER, "audience": AUDIENCE, "keys": []}
    )

    def jwks(self, *keys: dict[str, Any], name: str = "jwks.json") -> "KeyFolder":
        """Return a JWKS with one more key."""
        return self.file(name, json.dumps({"keys": keys}).encode())

    def file(self, name: str, data: bytes) -> "KeyFolder":
        """One more file of keys."""
        (self.folder / name).write_bytes(data)
        if (path := str(self.folder / name)) not in self.settings["keys"]:
            self.settings["keys"].append(path)
        return self

    def oauth(self, **changes: Any) -> OAuthSettings:
        """Return the settings."""
        return OAuthSettings.model_validate(self.settings | changes)
