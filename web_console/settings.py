"""The settings of a console. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service_parts.settings.choices import AnonymousAccess
from web_console.oidc_settings import OidcSettings

SESSIONS_MAX: Final = 100
IDLE_S: Final = 1800.0
LIFE_S: Final = 12 * 3600.0
LOOPBACK: Final = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How the console reaches the node, and how browsers reach the console.

    `root_path`: the prefix of all paths, for example `/console`. `hosts`: the values of the Host header that
    are accepted; empty: all. `trusted_proxies`: addresses whose `X-Forwarded-…` headers count.
    `idle_s`: a session that is not used for so long ends. `sessions_max`: more logins are refused.
    `anonymous`: from where browsers may continue without a login. `oidc`: how people log in with a provider.
    """

    url: str
    ca_file: Path | None = None
    plain_without_tls: bool = False
    anonymous: AnonymousAccess = AnonymousAccess.LOOPBACK
    oidc: OidcSettings | None = None
    root_path: str = ""
    hosts: Sequence[str] = ()
    trusted_proxies: Sequence[str] = LOOPBACK
    sessions_max: int = SESSIONS_MAX
    idle_s: float = IDLE_S
    life_s: float = LIFE_S
