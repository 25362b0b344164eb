"""The settings of a web console that a service runs. Pure."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from service_parts.settings.choices import AnonymousAccess
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

    @model_validator(mode="after")
    def _has_no_user(self) -> Self:
        if self.url is not None and "@" in self.url:
            # Each person who opens the console would be this user. The message does not repeat the password.
            message = "url must not contain a user or password: people log in with their own"
            raise ValueError(message)
        return self
