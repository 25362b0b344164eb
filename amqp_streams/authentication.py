"""Certificates and tokens: the sections `tls` (the listeners), `external` (client certificates) and `oauth`
(bearer tokens).

All are read again on SIGHUP. `server/identity/certificates.py` and `server/identity/tokens.py` apply them.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from service_parts.settings.fields import Milliseconds, Settings
from service_parts.tokens.algorithms import TokenAlgorithm

EXTERNAL_RULES_MAX: Final = 1000

_BRACES: Final = re.compile(r"\{(\w+)\}")


class ClientCertificates(StrEnum):
    """Whether a client must, or may, present a certificate signed by `client_ca`. A certificate that does not
    verify is refused in both cases.
    """

    REQUIRED = "required"
    OPTIONAL = "optional"


class TlsSettings(Settings):
    """The certificate of the TLS listeners, and whether clients need one."""

    certificate: Path = Field(description="Certificate chain, PEM. Read again on SIGHUP.")
    key: Path = Field(description="Private key of the certificate, PEM, not encrypted.")
    client_ca: Path | None = Field(
        default=None, description="Clients must show a certificate signed by one of these, PEM."
    )
    client_certificates: ClientCertificates = Field(
        default=ClientCertificates.REQUIRED,
        description=(
            "`optional`: clients may connect without a certificate. A certificate that does not verify is"
            " refused in both cases."
        ),
    )


class CertificateName(StrEnum):
    """The name in a certificate that a rule matches: a name of the subject, the whole subject, or an
    alternative name.
    """

    CN = "cn"
    DN = "dn"
    DNS = "dns"
    EMAIL = "email"
    URI = "uri"


class ExternalRule(Settings):
    """Which user a client certificate belongs to: a certificate whose `name` matches `pattern` belongs to
    `user`. The first rule that matches decides.
    """

    name: CertificateName = Field(
        description=(
            "The name in the certificate: `cn`, `dn` (the whole subject as in RFC 4514), or an "
            "alternative name: `dns`, `email`, `uri`."
        ),
    )
    pattern: str = Field(
        min_length=1, max_length=1000, description="A regular expression that must match the whole name."
    )
    user: str = Field(
        min_length=1,
        max_length=255,
        description=(
            "The user; `{0}` stands for the whole match, `{1}` or `{name}` for a group of the pattern."
        ),
    )

    @model_validator(mode="after")
    def _the_template_fits_the_pattern(self) -> Self:
        try:
            compiled = re.compile(self.pattern)
        except re.error as error:
            message = f"{self.pattern!r} is not a valid pattern: {error}"
            raise ValueError(message) from error
        # The groups are numbered too, and group 0 is the whole match.
        known = {*compiled.groupindex, *map(str, range(compiled.groups + 1))}
        # Checked when the settings are read, so that no login meets a rule that is not valid.
        used = set(_BRACES.findall(self.user))
        if not used <= known or any(brace in _BRACES.sub("", self.user) for brace in "{}"):
            allowed = ", ".join(f"{{{group}}}" for group in sorted(known))
            message = f"{self.user!r} may contain only these braces: {allowed}"
            raise ValueError(message)
        return self

    def user_of(self, name: str) -> str | None:
        """Returns the user for a name in a certificate; None if the rule does not match."""
        # The whole name: with a part, an attacker could put a trusted name into a longer one.
        found = re.fullmatch(self.pattern, name)
        if found is None:
            return None
        return _BRACES.sub(
            lambda braces: found[int(braces[1]) if braces[1].isdecimal() else braces[1]] or "", self.user
        )


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class OAuthSettings(Settings):
    """The bearer tokens that are accepted. Each token must have an expiry, this issuer, and one of these
    audiences.
    """

    issuer: str = Field(min_length=1, description="The `iss` of the tokens, exactly.")
    audience: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = Field(
        min_length=1, description="The `aud` of a token must contain one of these."
    )
    keys: Annotated[tuple[Path, ...], BeforeValidator(_one_or_more)] = Field(
        default=(),
        description=(
            "Files with public keys of the issuer: JWKS, or PEM (keys, certificates). Read again on SIGHUP."
        ),
    )
    secret_file: Path | None = Field(
        default=None,
        description=(
            "File with the secret shared with the issuer, for HS256, HS384 and HS512 only: at least 32 bytes,"
            " mode 0600."
        ),
    )
    algorithms: Annotated[tuple[TokenAlgorithm, ...], BeforeValidator(_one_or_more)] = Field(
        default=(TokenAlgorithm.RS256, TokenAlgorithm.PS256, TokenAlgorithm.ES256, TokenAlgorithm.EDDSA),
        min_length=1,
        description="How tokens may be signed.",
    )
    leeway_ms: Milliseconds = Field(
        default=30_000,
        ge=0,
        le=600_000,
        description="How far clocks may differ.",
        validation_alias=AliasChoices("leeway", "leeway_ms"),
    )
    user_claim: str = Field(
        default="sub",
        min_length=1,
        description="The claim that names the user; `a.b` is the claim `b` in `a` if no claim has that name.",
    )
    groups_claim: str = Field(
        default="groups",
        min_length=1,
        description="The claim that lists the user's groups: a list, or words as in `scope`.",
    )
    discovery: str | None = Field(
        default=None, description="URL of the issuer's metadata, which clients without a valid token get."
    )

    @model_validator(mode="after")
    def _keys_fit_the_algorithms(self) -> Self:
        symmetric = [algorithm for algorithm in self.algorithms if algorithm.symmetric]
        if symmetric and self.secret_file is None:
            message = (
                f"{symmetric[0]} needs a shared secret: set secret_file, or remove {symmetric[0]} from"
                " algorithms"
            )
            raise ValueError(message)
        if self.secret_file is not None and not symmetric:
            message = (
                "secret_file works only with HS256, HS384 and HS512: add one to algorithms, or remove"
                " secret_file"
            )
            raise ValueError(message)
        # The other algorithms need a public key.
        if len(symmetric) < len(self.algorithms) and not self.keys:
            message = "keys is empty: name a JWKS or PEM file with the issuer's public keys"
            raise ValueError(message)
        return self
