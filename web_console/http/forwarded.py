"""What a reverse proxy says of a request: the client's address, the scheme, the prefix of paths. Pure."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){1,8}")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request came from.

    `prefix`: the part of the path that belongs to the proxy, without a slash at the end.
    """

    client: str
    scheme: str
    prefix: str


def origin_of(
    peer: str, scheme: str, headers: Mapping[str, str], *, trusted: Sequence[str], prefix: str
) -> Origin:
    """Return the origin of a request.

    `peer`: the address of the connection, empty on a Unix socket. `headers`: with names in lower case.
    `prefix`: that of the settings. The headers count only if `peer` is trusted: everyone can send them.
    """
    if peer and not _is_in(peer, trusted):
        return Origin(peer, scheme, prefix)
    forwarded = headers.get("x-forwarded-proto", "").lower()
    given = headers.get("x-forwarded-prefix", "").rstrip("/")
    return Origin(
        _client(headers.get("x-forwarded-for", ""), trusted) or peer,
        forwarded if forwarded in {"http", "https"} else scheme,
        given if PREFIX.fullmatch(given) else prefix,
    )


def inner_path(path: str, prefix: str) -> str:
    """Return the path with the prefix exactly once: some proxies remove it, others leave it."""
    return path if not prefix or path == prefix or path.startswith(f"{prefix}/") else prefix + path


def _client(forwarded: str, trusted: Sequence[str]) -> str:
    """The last address that is not a trusted proxy. The entries before it may be invented.

    If all are trusted, the last one: the proxy added it.
    """
    entries = [entry.strip()[:64] for entry in forwarded.split(",") if entry.strip()][-16:]
    last = entries[-1] if entries else ""
    return next((entry for entry in reversed(entries) if not _is_in(entry, trusted)), last)


def _is_in(host: str, networks: Sequence[str]) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(network, strict=False) for network in networks)
