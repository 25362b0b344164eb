"""Whose an OAuth access token is: a JWT, checked against the keys of `[oauth]` (RFC 7519, RFC 8725).

Laws: the algorithm is one that the configuration allows and that the key is made for, never what the token asks for alone; a token without
an expiry, of another issuer or for another audience is none. No reason has the token in it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.types import Options

from amqp_streams.authentication import OAuthSettings, TokenAlgorithm
from amqp_streams.errors import ConfigError
from amqp_streams.server.identity.users import user_name
from amqp_streams.wire.security.mechanisms import Failure, Success

RSA_BITS_MIN: Final = 2048
SECRET_BYTES_MIN: Final = 32
FILE_BYTES_MAX: Final = 1 << 20
GROUPS_MAX: Final = 1000
_GROUP_CHARACTERS_MAX: Final = 255
_CURVES: Final = {"secp256r1": TokenAlgorithm.ES256, "secp384r1": TokenAlgorithm.ES384, "secp521r1": TokenAlgorithm.ES512}
_RSA: Final = frozenset(algorithm for algorithm in TokenAlgorithm if algorithm.startswith(("RS", "PS")))
_HMAC: Final = frozenset(algorithm for algorithm in TokenAlgorithm if algorithm.symmetric)


@dataclass(frozen=True, slots=True)
class _Key:
    """A key and what it may check. `id`: the issuer's name for it."""

    value: Any = field(repr=False)
    algorithms: frozenset[TokenAlgorithm]
    id: str | None = None


class TokenCheck:
    """The check of one configuration. `now_ms`: the wall clock."""

    def __init__(self, settings: OAuthSettings, now_ms: Callable[[], int]) -> None:
        """Read the keys.

        Raises:
            ConfigError: a file cannot be read, or has no key that can be used; names it.
        """
        self.settings: Final = settings
        self._now_ms: Final = now_ms
        self._keys: Final = list(_read_keys(settings))

    def verify(self, token: str) -> Success | Failure:
        """Whose it is, in which groups, and until when. Takes some hundred microseconds."""
        try:
            claims = self._claims(token)
            user, expires_ms = self._user(claims), self._expiry_ms(claims)
        except _BadTokenError as error:
            return Failure(f"token: {error}")
        return Success(user, groups=_groups(_claim(claims, self.settings.groups_claim)), expires_ms=expires_ms)

    def _claims(self, token: str) -> Mapping[str, Any]:
        settings = self.settings
        try:
            header = jwt.get_unverified_header(token)
        except _MALFORMED as error:
            message = "it is not a JWT"
            raise _BadTokenError(message) from error
        algorithm = next((one for one in settings.algorithms if one == header.get("alg")), None)
        if algorithm is None:
            message = "it is signed by an algorithm that is not allowed"
            raise _BadTokenError(message)
        keys = [key for key in self._keys if algorithm in key.algorithms and (key.id is None or header.get("kid") in (None, key.id))]
        reason = "it is signed by no key that is known here"
        options: Options = {"require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        for key in keys:
            try:
                return jwt.decode(
                    token, key.value, algorithms=[algorithm], audience=settings.audience, issuer=settings.issuer, options=options
                )
            except jwt.InvalidSignatureError:
                continue
            except _MALFORMED as error:
                reason = _REASONS.get(type(error), "it is malformed")
        raise _BadTokenError(reason)

    def _user(self, claims: Mapping[str, Any]) -> str:
        user = _claim(claims, self.settings.user_claim)
        try:
            return user_name(user) if isinstance(user, str) else user_name("")
        except ValueError as error:
            message = f"its {self.settings.user_claim} is not a user"
            raise _BadTokenError(message) from error

    def _expiry_ms(self, claims: Mapping[str, Any]) -> int:
        """When it is over, clocks being as different as they may."""
        now_ms, leeway_ms = self._now_ms(), self.settings.leeway_ms
        expires_ms, valid_ms = _time_ms(claims, "exp"), _time_ms(claims, "nbf")
        assert expires_ms is not None, "required above"
        if now_ms >= expires_ms + leeway_ms:
            message = "it is expired"
            raise _BadTokenError(message)
        if valid_ms is not None and now_ms < valid_ms - leeway_ms:
            message = "it is not valid yet"
            raise _BadTokenError(message)
        return expires_ms + leeway_ms


class _BadTokenError(Exception):
    """The message says what is wrong, and nothing that is in the token."""


# A stranger's JSON may also be too deep, and its numbers too large.
_MALFORMED: Final = (jwt.PyJWTError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
_REASONS: Final[Mapping[type[Exception], str]] = {
    jwt.InvalidIssuerError: "it is of another issuer",
    jwt.InvalidAudienceError: "it is for another audience",
    jwt.MissingRequiredClaimError: "it lacks an expiry, an issuer or an audience",
}


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, else by its path: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _groups(value: object) -> frozenset[str]:
    """A list of names, or names with spaces between, as `scope` has them."""
    names = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    good = [name for name in names if isinstance(name, str) and 1 <= len(name) <= _GROUP_CHARACTERS_MAX]
    return frozenset(good[:GROUPS_MAX])


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        message = f"its {name} is not a time"
        raise _BadTokenError(message)
    return int(value * 1000)


# -- keys


def _read_keys(settings: OAuthSettings) -> Iterator[_Key]:
    for path in settings.keys:
        data = _read(path)
        try:
            keys = list(_jwks(data) if data.lstrip().startswith(b"{") else _pem(data))
        except (*_MALFORMED, AttributeError, UnsupportedAlgorithm) as error:
            message = f"oauth.keys: {path} has no keys: {error}"
            raise ConfigError(message) from error
        usable = [key for key in keys if not key.algorithms.isdisjoint(settings.algorithms)]
        if not usable:
            message = f"oauth.keys: {path} has no key for any of {', '.join(settings.algorithms)}"
            raise ConfigError(message)
        yield from usable
    if settings.secret_file is not None:
        yield _secret(settings.secret_file)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        message = f"oauth: {path} cannot be read: {error.strerror}"
        raise ConfigError(message) from error
    if len(data) > FILE_BYTES_MAX:
        message = f"oauth: {path} has more than {FILE_BYTES_MAX} bytes"
        raise ConfigError(message)
    return data


def _jwks(data: bytes) -> Iterator[_Key]:
    """RFC 7517. Keys for encryption, of kinds that we do not know, and secrets (which have a file of their own) are passed over."""
    for entry in json.loads(data)["keys"]:
        if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]) or entry.get("kty") == "oct":
            continue
        try:
            value = _public(jwt.PyJWK(entry).key)
        except jwt.PyJWTError:
            continue
        own = frozenset({entry["alg"]}) if "alg" in entry else frozenset(TokenAlgorithm)
        kid = entry.get("kid")
        yield _Key(value, _algorithms(value) & own, kid if isinstance(kid, str) else None)


def _pem(data: bytes) -> Iterator[_Key]:
    if b"PRIVATE KEY" in data:
        message = "there is a private key in it, which belongs to the issuer alone: give the public one"
        raise ValueError(message)
    if b"BEGIN CERTIFICATE" in data:
        for certificate in x509.load_pem_x509_certificates(data):
            yield _Key(certificate.public_key(), _algorithms(certificate.public_key()))
        return
    value = serialization.load_pem_public_key(data)
    yield _Key(value, _algorithms(value))


def _public(key: Any) -> Any:
    """A JWKS may, by mistake, have private keys: what they are good for is checking."""
    return key.public_key() if hasattr(key, "public_key") else key


def _algorithms(key: object) -> frozenset[TokenAlgorithm]:
    """What a key can check; keys that are too weak check nothing."""
    match key:
        case rsa.RSAPublicKey():
            return _RSA if key.key_size >= RSA_BITS_MIN else frozenset()
        case ec.EllipticCurvePublicKey():
            return frozenset({_CURVES[key.curve.name]} if key.curve.name in _CURVES else ())
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return frozenset({TokenAlgorithm.EDDSA})
        case _:
            return frozenset()


def _secret(path: Path) -> _Key:
    if path.exists() and path.stat().st_mode & 0o077:
        message = f"oauth.secret_file: {path} is open to others: chmod 600 {path}"
        raise ConfigError(message)
    value = _read(path).strip()
    if len(value) < SECRET_BYTES_MIN:
        message = f"oauth.secret_file: {path} has less than {SECRET_BYTES_MIN} bytes"
        raise ConfigError(message)
    return _Key(value, _HMAC)
