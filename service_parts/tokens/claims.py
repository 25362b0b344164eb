"""Verifies the signature and the claims of a JWT. Pure. Spec: RFC 7519, RFC 8725.

Laws: a token's algorithm must be one that the settings allow and that the key is for: the token alone does
not decide (RFC 8725, 3.1). A token without an expiry, from another issuer or for another audience is refused.
No message contains the token.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from jwt.types import Options

from service_parts.tokens.keys import MALFORMED, Key

GROUPS_MAX: Final = 1000
"""The most groups of a token. Further groups are ignored."""
NAME_CHARACTERS_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must contain: the issuer, an audience, and an allowed algorithm.

    A token must have at least one of the audiences.
    """

    issuer: str
    audience: tuple[str, ...]
    algorithms: Collection[str]


class BadTokenError(Exception):
    """A token is refused. The message says why and contains nothing of the token."""


_REASONS: Final[Mapping[type[Exception], str]] = {
    jwt.InvalidIssuerError: "another issuer issued it",
    jwt.InvalidAudienceError: "it is for another audience",
    jwt.MissingRequiredClaimError: "it has no expiry, no issuer or no audience",
}
# The times are checked with the caller's clock.
_OPTIONS: Final[Options] = {
    "require": ["exp", "iss", "aud"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


def signed_claims(token: str, keys: Sequence[Key], expected: Expected) -> Mapping[str, Any]:
    """Verify the signature, the issuer and the audience of a token, and return its claims.

    Call `expiry_ms` for its times.

    Raises:
        BadTokenError: the token is not a JWT, none of `keys` signed it, or its issuer or audience is wrong.
    """
    try:
        # Only the name of the algorithm and of the key are read before the signature is verified.
        header = jwt.get_unverified_header(token)
    except MALFORMED as error:
        message = "it is not a valid JWT"
        raise BadTokenError(message) from error
    # The settings decide which algorithms exist; the token only names one (RFC 8725, 3.1).
    algorithm = next((one for one in expected.algorithms if one == header.get("alg")), None)
    if algorithm is None:
        message = "it is signed with an algorithm that is not allowed"
        raise BadTokenError(message)
    reason = "no known key signed it"
    for key in keys:
        if algorithm not in key.algorithms or (
            key.id is not None and header.get("kid") not in (None, key.id)
        ):
            continue
        try:
            return jwt.decode(
                token,
                key.value,
                algorithms=[algorithm],
                audience=expected.audience,
                issuer=expected.issuer,
                options=_OPTIONS,
            )
        # Another key may have signed it: issuers publish the next key before they use it.
        except jwt.InvalidSignatureError:
            continue
        except MALFORMED as error:
            reason = _REASONS.get(type(error), "it is malformed")
    raise BadTokenError(reason)


def expiry_ms(claims: Mapping[str, Any], *, now_ms: int, leeway_ms: int) -> int:
    """Return when a token expires, in milliseconds since 1970, if clocks may differ by `leeway_ms`.

    Raises:
        BadTokenError: it is expired or not valid yet, or a time in it is not a number.
    """
    expires_ms = _time_ms(claims, "exp") + leeway_ms
    if now_ms >= expires_ms:
        message = "it has expired"
        raise BadTokenError(message)
    if "nbf" in claims and now_ms < _time_ms(claims, "nbf") - leeway_ms:
        message = "it is not valid yet"
        raise BadTokenError(message)
    return expires_ms


def claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim by its name, otherwise by its path, such as `realm_access.roles`.

    None if it is absent.
    """
    # The whole name first: a claim may be a URL, with dots.
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def group_names(value: object) -> frozenset[str]:
    """Return the groups in a claim.

    A list of names, or a text of names that spaces separate, as in `scope`.
    """
    names = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    good = [name for name in names if isinstance(name, str) and 1 <= len(name) <= NAME_CHARACTERS_MAX]
    return frozenset(good[:GROUPS_MAX])


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    # NaN and infinity fail the comparison.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        message = f"its claim {name} is not a valid time"
        raise BadTokenError(message)
    return int(value * 1000)
