"""[io] Finds the user of a bearer token: tokens of a file, and JWTs of an issuer (RFC 7519, RFC 8725).

The settings, not the token, choose the algorithms of a JWT; the algorithm must also fit the key. A JWT
without an expiry, of another issuer or for another audience is not valid. Only hashes of the tokens of the
file are in memory. Error messages do not contain tokens.
"""

import csv
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from knative_gateway.config import GatewaySettings, JwtSettings
from knative_gateway.errors import ConfigError
from knative_gateway.security.access import Identity, Rule, Tokens
from service_parts.errors import raised_as
from service_parts.files import read_file
from service_parts.tokens.claims import (
    NAME_CHARACTERS_MAX,
    BadTokenError,
    Expected,
    claim,
    expiry_ms,
    group_names,
    signed_claims,
)
from service_parts.tokens.keys import public_keys

TOKEN_CHARACTERS_MIN: Final = 16
TOKEN_CHARACTERS_MAX: Final = 16_384
FILE_BYTES_MAX: Final = 4 << 20
KNOWN_MAX: Final = 4096
"""Valid JWTs that are cached. Senders use one token for thousands of events."""


class StaticTokens:
    """Tokens of a file with one line for each, as in Kubernetes: `token,user,uid,"group1,group2"`.

    uid and groups are optional.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: the file cannot be read, other users may read it, or a line is not valid.
        """
        self._known: Final = dict(_lines(path))

    def identity(self, token: str) -> Identity | None:
        """Return the user; None for an unknown token.

        The time does not depend on the token's content, because its hash is looked up.
        """
        return self._known.get(_hash(token))


class JwtTokens:
    """JWTs of one issuer. `now_ms`: the wall clock."""

    def __init__(self, settings: JwtSettings, now_ms: Callable[[], int]) -> None:
        """Read the keys.

        Raises:
            ConfigError: the file cannot be read, or has no usable key.
        """
        self._settings: Final = settings
        self._now_ms: Final = now_ms
        self._expected: Final = Expected(settings.issuer, settings.audience, settings.algorithms)
        with raised_as(ConfigError, "jwt.keys"):
            self._keys: Final = public_keys(settings.keys, settings.algorithms)
        self._known: Final[OrderedDict[bytes, tuple[Identity, int]]] = OrderedDict()

    def identity(self, token: str) -> Identity | None:
        """Return the user; None if the token is not valid."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            return None
        hashed = _hash(token)
        known = self._known.get(hashed)
        if known is None:
            known = self._check(token)
            if known is None:
                return None
            # Only valid tokens are cached: an attacker could otherwise push them out with invalid ones.
            self._known[hashed] = known
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        identity, expires_ms = known
        # Checked at each use, because the cache outlives the expiry.
        if self._now_ms() >= expires_ms:
            del self._known[hashed]
            return None
        return identity

    def _check(self, token: str) -> tuple[Identity, int] | None:
        """Return the user and the expiry; None if the token is not valid."""
        settings = self._settings
        try:
            claims = signed_claims(token, self._keys, self._expected)
            expires_ms = expiry_ms(claims, now_ms=self._now_ms(), leeway_ms=round(settings.leeway * 1000))
        except BadTokenError:
            return None
        user = claim(claims, settings.user_claim)
        if not isinstance(user, str) or not 1 <= len(user) <= NAME_CHARACTERS_MAX or not user.isprintable():
            return None
        return Identity(user, group_names(claim(claims, settings.groups_claim))), expires_ms


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def credentials(settings: GatewaySettings, now_ms: Callable[[], int]) -> tuple[list[Tokens], list[Rule]]:
    """Return the tokens and rules of the settings, for a `Gate`.

    Raises:
        ConfigError: a file cannot be used.
    """
    tokens: list[Tokens] = [] if settings.tokens is None else [StaticTokens(settings.tokens)]
    if settings.jwt is not None:
        tokens.append(JwtTokens(settings.jwt, now_ms))
    return tokens, [Rule(rule.users, rule.groups, rule.allow, rule.namespaces) for rule in settings.rules]


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _lines(path: Path) -> Iterator[tuple[bytes, Identity]]:
    with raised_as(ConfigError, "tokens"):
        data = read_file(path, FILE_BYTES_MAX)
    # Access by the group is allowed, because containers often get secrets through a group.
    if path.stat().st_mode & 0o007:
        message = f"tokens: other users can access {path}: run chmod o= {path}"
        raise ConfigError(message)
    seen: set[bytes] = set()
    try:
        rows = list(csv.reader(data.decode().splitlines(), strict=True, skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"tokens: {path} is not valid CSV: {error}"
        raise ConfigError(message) from None
    for number, row in enumerate(rows, 1):
        if not row or row[0].startswith("#"):
            continue
        words = _wrong(row)
        hashed = _hash(row[0].strip())
        if words is None and hashed in seen:
            words = "the token is repeated"
        if words is not None:
            message = f"tokens: {path}, line {number}: {words}"
            raise ConfigError(message)
        seen.add(hashed)
        groups = row[3].split(",") if len(row) > 3 else []
        yield hashed, Identity(row[1].strip(), frozenset(group.strip() for group in groups if group.strip()))


def _wrong(row: list[str]) -> str | None:
    """Return what is not valid in a line; None if the line is valid. The text does not contain the token."""
    if not 2 <= len(row) <= 4 or not row[1].strip():
        return 'expected token,user,uid,"group1,group2"'
    token = row[0].strip()
    if not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX:
        return f"the token must have {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} characters"
    if not token.isascii() or not token.isprintable() or " " in token:
        return "the token must be printable ASCII without spaces"
    return None
