"""The settings of a web console that a service runs. Pure."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from service_parts.settings.choices import AnonymousAccess, ProviderToken
from service_parts.settings.fields import Settings
from service_parts.settings.listeners import Listener


class ConsoleSettings(Settings):
    """The web console, which the service runs in a process of its own. It needs the extra `console`."""

    listen: Listener = Field(
        description="Where browsers connect, for example `127.0.0.1:8081`. `/console` of the node's admin"
        " listener, or of the gateway, redirects there."
    )
    url: str | None = Field(
        default=None,
        description="How the console connects to the service: a URL without a user. By default the first"
        " address of `listen`; required if all of them use TLS, because the certificate has a name.",
    )
    ca: Path | None = Field(
        default=None, description="Authorities that signed the certificate of the service, PEM, for `url`."
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Names by which browsers may reach the console. By default on loopback `localhost`, else"
        " all.",
    )
    anonymous: AnonymousAccess = Field(
        default=AnonymousAccess.LOOPBACK,
        description="Which browsers may continue without a login, if the service allows it.",
    )

    oidc_issuer: str | None = Field(
        default=None,
        min_length=1,
        max_length=2048,
        description="Let people log in with this OpenID Connect provider: its issuer, exactly as in its"
        " metadata, for example `https://id.example.org/realms/main`.",
    )
    oidc_client_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="The client id of the console at the provider.",
    )
    oidc_client_secret: Path | None = Field(
        default=None,
        description="A file with the client secret, which only the user of the service may read. By default"
        " the console is a public client.",
    )
    oidc_scopes: tuple[str, ...] = Field(
        default=("openid", "profile"),
        description="The scopes that the console asks for. Some providers give a refresh token only with"
        " `offline_access`.",
    )
    oidc_token: ProviderToken = Field(
        default=ProviderToken.ACCESS,
        description="Which token of the provider the console sends to the service, which must accept it.",
    )
    oidc_url: str | None = Field(
        default=None,
        description="The URL under which browsers reach the console, if it is not that of their requests. The"
        " provider sends browsers to `/login/provider/callback` below it.",
    )
    oidc_hosts: tuple[str, ...] = Field(
        default=(), description="Hosts of the provider in addition to that of the issuer."
    )
    oidc_ca: Path | None = Field(
        default=None, description="Authorities that signed the certificate of the provider, PEM."
    )

    @model_validator(mode="after")
    def _has_a_client(self) -> Self:
        if (self.oidc_issuer is None) is not (self.oidc_client_id is None):
            message = "oidc_issuer and oidc_client_id must be given together"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _has_no_user(self) -> Self:
        if self.url is not None and "@" in self.url:
            # Each person who opens the console would be this user. The message does not repeat the password.
            message = "url must not contain a user or password: people log in with their own"
            raise ValueError(message)
        return self
