"""How a JWT may be signed. Pure. Spec: RFC 7518, RFC 8037. Neither enumeration has `none`."""

from enum import StrEnum


class PublicKeyAlgorithm(StrEnum):
    """Algorithms whose tokens a public key checks. For services that share no secret with an issuer."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"


class TokenAlgorithm(StrEnum):
    """All algorithms that can be allowed: those of `PublicKeyAlgorithm`, and those of a shared secret."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"
    HS256 = "HS256"
    HS384 = "HS384"
    HS512 = "HS512"

    @property
    def symmetric(self) -> bool:
        """Who can check a token can also make one."""
        return self.startswith("HS")
