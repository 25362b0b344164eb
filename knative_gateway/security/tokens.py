"""[io] Whose a bearer token is: tokens of a file, and JWTs of an issuer whose keys are in a file (RFC 7519, RFC 8725).

Laws: a JWT's algorithm is one that the settings allow and that the key is made for, never what the token asks for alone; one without an
expiry, of another issuer or for another audience is none. Tokens of the file are known by their hashes only. No reason has a token in it.
"""

import csv
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.types import Options

from knative_gateway.config import GatewaySettings, JwtSettings, TokenAlgorithm
from knative_gateway.errors import ConfigError
from knative_gateway.security.access import Identity, Rule, Tokens

TOKEN_CHARACTERS_MIN: Final = 16
TOKEN_CHARACTERS_MAX: Final = 16_384
FILE_BYTES_MAX: Final = 4 << 20
RSA_BITS_MIN: Final = 2048
GROUPS_MAX: Final = 1000
NAME_CHARACTERS_MAX: Final = 255
KNOWN_MAX: Final = 4096
"""JWTs that were checked and are not over: senders use one for thousands of events."""
_CURVES: Final = {"secp256r1": TokenAlgorithm.ES256, "secp384r1": TokenAlgorithm.ES384, "secp521r1": TokenAlgorithm.ES512}
_RSA: Final = frozenset(algorithm for algorithm in TokenAlgorithm if algorithm.startswith(("RS", "PS")))
# A stranger's JSON may also be too deep, and its numbers too large.
_MALFORMED: Final = (jwt.PyJWTError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError)


class StaticTokens:
    """Tokens of a file, a line each as in Kubernetes: `token,user,uid,"group1,group2"`; the last two may be left out."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: it cannot be read, others may read it, or a line is wrong; names it.
        """
        self._known: Final = dict(_lines(path))

    def identity(self, token: str) -> Identity | None:
        """Whose; None: nobody's. How long it takes tells nothing of the tokens: hashes are looked up."""
        return self._known.get(_hash(token))


class JwtTokens:
    """JWTs of one issuer. `now_ms`: the wall clock."""

    def __init__(self, settings: JwtSettings, now_ms: Callable[[], int]) -> None:
        """Read the keys.

        Raises:
            ConfigError: the file cannot be read, or has no key that can be used; names it.
        """
        self._settings: Final = settings
        self._now_ms: Final = now_ms
        self._keys: Final = _keys(settings)
        self._known: Final[OrderedDict[bytes, tuple[Identity, int]]] = OrderedDict()

    def identity(self, token: str) -> Identity | None:
        """Whose; None: it is not believed."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            return None
        hashed = _hash(token)
        known = self._known.get(hashed)
        if known is None:
            known = self._check(token)
            if known is None:
                return None
            self._known[hashed] = known
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        identity, expires_ms = known
        if self._now_ms() >= expires_ms:
            del self._known[hashed]
            return None
        return identity

    def _check(self, token: str) -> tuple[Identity, int] | None:
        """Who it is and when that is over; None: the token is not good, whatever the reason."""
        try:
            claims = self._claims(token)
            leeway_ms = round(self._settings.leeway * 1000)
            expires_ms = _time_ms(claims["exp"]) + leeway_ms
            if "nbf" in claims and self._now_ms() < _time_ms(claims["nbf"]) - leeway_ms:
                return None
            user = _claim(claims, self._settings.user_claim)
        except _MALFORMED:
            return None
        if not isinstance(user, str) or not 1 <= len(user) <= NAME_CHARACTERS_MAX or not user.isprintable():
            return None
        return Identity(user, _groups(_claim(claims, self._settings.groups_claim))), expires_ms

    def _claims(self, token: str) -> Mapping[str, Any]:
        settings = self._settings
        header = jwt.get_unverified_header(token)
        algorithm = TokenAlgorithm(header["alg"])
        if algorithm not in settings.algorithms:
            raise jwt.InvalidAlgorithmError
        # Times are looked at with a clock of ours.
        options: Options = {"require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        for key in self._keys:
            if algorithm in key.algorithms and (key.id is None or header.get("kid") in (None, key.id)):
                try:
                    return jwt.decode(
                        token, key.value, algorithms=[algorithm], audience=settings.audience, issuer=settings.issuer, options=options
                    )
                except jwt.InvalidSignatureError:
                    continue
        raise jwt.InvalidSignatureError


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def credentials(settings: GatewaySettings, now_ms: Callable[[], int]) -> tuple[list[Tokens], list[Rule]]:
    """What the settings say of tokens and rules, for a `Gate`.

    Raises:
        ConfigError: a file cannot be used.
    """
    tokens: list[Tokens] = [] if settings.tokens is None else [StaticTokens(settings.tokens)]
    if settings.jwt is not None:
        tokens.append(JwtTokens(settings.jwt, now_ms))
    return tokens, [Rule(rule.users, rule.groups, rule.allow, rule.namespaces) for rule in settings.rules]


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _read(path: Path, setting: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        message = f"{setting}: {path} cannot be read: {error.strerror}"
        raise ConfigError(message) from None
    if len(data) > FILE_BYTES_MAX:
        message = f"{setting}: {path} has more than {FILE_BYTES_MAX} bytes"
        raise ConfigError(message)
    return data


def _lines(path: Path) -> Iterator[tuple[bytes, Identity]]:
    data = _read(path, "tokens")
    if path.stat().st_mode & 0o007:
        message = f"tokens: {path} is open to others: chmod o= {path}"
        raise ConfigError(message)
    seen: set[bytes] = set()
    try:
        rows = list(csv.reader(data.decode().splitlines(), strict=True, skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"tokens: {path} is not CSV: {error}"
        raise ConfigError(message) from None
    for number, row in enumerate(rows, 1):
        if not row or row[0].startswith("#"):
            continue
        words = _wrong(row)
        hashed = _hash(row[0].strip())
        if words is None and hashed in seen:
            words = "the token is there twice"
        if words is not None:
            message = f"tokens: {path}, line {number}: {words}"
            raise ConfigError(message)
        seen.add(hashed)
        groups = row[3].split(",") if len(row) > 3 else []
        yield hashed, Identity(row[1].strip(), frozenset(group.strip() for group in groups if group.strip()))


def _wrong(row: list[str]) -> str | None:
    """What is wrong with a line; not the token itself."""
    if not 2 <= len(row) <= 4 or not row[1].strip():
        return 'expected token,user,uid,"group1,group2"'
    token = row[0].strip()
    if not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX:
        return f"the token must have {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} characters"
    if not token.isascii() or not token.isprintable() or " " in token:
        return "the token must be printable ASCII without spaces"
    return None


# -- JWT


@dataclass(frozen=True, slots=True)
class _Key:
    """A key and what it may check. `id`: the issuer's name for it."""

    value: Any = field(repr=False)
    algorithms: frozenset[str]
    id: str | None = None


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
    good = [name for name in names if isinstance(name, str) and 1 <= len(name) <= NAME_CHARACTERS_MAX]
    return frozenset(good[:GROUPS_MAX])


def _time_ms(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        message = "no time"
        raise ValueError(message)
    return int(value * 1000)


def _keys(settings: JwtSettings) -> list[_Key]:
    data = _read(settings.keys, "jwt.keys")
    try:
        keys = list(_jwks(data) if data.lstrip().startswith(b"{") else _pem(data))
    except (*_MALFORMED, UnsupportedAlgorithm) as error:
        message = f"jwt.keys: {settings.keys} has no keys: {error}"
        raise ConfigError(message) from None
    usable = [key for key in keys if not key.algorithms.isdisjoint(settings.algorithms)]
    if not usable:
        message = f"jwt.keys: {settings.keys} has no key for any of {', '.join(settings.algorithms)}"
        raise ConfigError(message)
    return usable


def _jwks(data: bytes) -> Iterator[_Key]:
    """RFC 7517. Keys for encryption, of kinds that are not known, and secrets are passed over."""
    for entry in json.loads(data)["keys"]:
        if entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(entry).key
        except jwt.PyJWTError:
            continue
        public = key.public_key() if hasattr(key, "public_key") else key
        own = frozenset({entry["alg"]}) if "alg" in entry else frozenset(TokenAlgorithm)
        kid = entry.get("kid")
        yield _Key(public, _algorithms(public) & own, kid if isinstance(kid, str) else None)


def _pem(data: bytes) -> Iterator[_Key]:
    if b"PRIVATE KEY" in data:
        message = "there is a private key in it, which belongs to the issuer alone: give the public one"
        raise ValueError(message)
    if b"BEGIN CERTIFICATE" in data:
        keys: list[Any] = [certificate.public_key() for certificate in x509.load_pem_x509_certificates(data)]
    else:
        keys = [serialization.load_pem_public_key(data)]
    for key in keys:
        yield _Key(key, _algorithms(key))


def _algorithms(key: object) -> frozenset[str]:
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
