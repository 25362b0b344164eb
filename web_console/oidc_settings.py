"""The settings of the login with an OpenID Connect provider. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from service_parts.networks import is_this_machine
from service_parts.settings.choices import ProviderToken

SCOPES: Final = ("openid", "profile")
_URL_MAX: Final = 2048


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """How people log in with a provider.

    `client_secret`: None for a public client. `token`: which token the console sends to the node or gateway.
    `url`: the URL under which browsers reach the console; None: that of each request. `hosts`: hosts of
    the provider in addition to that of `issuer`. `ca_file`: the authorities of the provider's certificate.
    """

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: Sequence[str] = SCOPES
    token: ProviderToken = ProviderToken.ACCESS
    url: str | None = None
    hosts: Sequence[str] = ()
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: one of them is not valid.
        """
        parts = checked_url(self.issuer, "the issuer")
        if parts.query or parts.fragment:
            message = "the issuer must be a URL without a query"
            raise ValueError(message)
        if not self.client_id or "openid" not in self.scopes:
            message = "a client id is required, and the scope openid"
            raise ValueError(message)
        if self.url is not None:
            public = urlsplit(self.url)
            if public.scheme not in {"http", "https"} or not public.hostname or public.query:
                message = f"{self.url[:200]!r} is not the http:// or https:// URL of the console"
                raise ValueError(message)

    @property
    def name(self) -> str:
        """What the login page calls the provider: its host."""
        return urlsplit(self.issuer).netloc

    def endpoint(self, url: object, what: str) -> str:
        """Return a URL that the provider has published, if the console may use it.

        Raises:
            ValueError: it is not a URL with TLS of the provider's hosts.
        """
        if not isinstance(url, str):
            message = f"the provider does not publish {what}"
            raise ValueError(message)
        parts = checked_url(url, what)
        if parts.hostname not in {urlsplit(self.issuer).hostname, *(host.lower() for host in self.hosts)}:
            message = (
                f"{what} is on the host {parts.hostname!r}, which is not that of the issuer. If it is one of"
                " the provider, name it in oidc_hosts (--oidc-host)."
            )
            raise ValueError(message)
        return url


def checked_url(url: str, what: str) -> SplitResult:
    """Return the parts of a URL of the provider.

    Raises:
        ValueError: it is not a URL without a user, or has no TLS and is not on this machine.
    """
    shown = f"{what} {url[:200]!r}"
    is_text = url.isascii() and url.isprintable() and " " not in url and len(url) <= _URL_MAX
    parts = urlsplit(url) if is_text else SplitResult("", "", "", "", "")
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        message = f"{shown} is not an https:// URL without a user"
        raise ValueError(message)
    _ = parts.port  # raises ValueError for a number that is not a port
    if parts.scheme == "http" and not is_this_machine(parts.hostname):
        message = f"{shown} has no TLS: use https://"
        raise ValueError(message)
    return parts
