"""The signature algorithms of JWTs. Pure. Spec: RFC 7518, RFC 8037. `none` is not among them."""

from enum import StrEnum


class PublicKeyAlgorithm(StrEnum):
    """Algorithms that verify a token with a public key: for services that share no secret with the issuer."""

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
    """All supported algorithms: those of `PublicKeyAlgorithm`, and those with a shared secret."""

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
        """Whether the key is a shared secret: then a service that verifies tokens can also create them."""
        # RFC 7518, 3.2: only HMAC uses a shared secret.
        return self.startswith("HS")
