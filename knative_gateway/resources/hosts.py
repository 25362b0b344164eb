"""Host names. Pure."""

import re
from ipaddress import IPv6Address
from typing import Final

DNS_NAME_CHARACTERS_MAX: Final = 253
_LABEL: Final = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_ZONE: Final = re.compile(r"[a-z0-9._~%-]*", re.IGNORECASE | re.ASCII)
_DNS_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.IGNORECASE | re.ASCII)


def is_dns_name(host: str) -> bool:
    """Return whether `host` is a valid host name (RFC 1123). Underscores and a final dot are allowed."""
    return len(host) <= DNS_NAME_CHARACTERS_MAX and _DNS_NAME.fullmatch(host) is not None


def ascii_host(host: str) -> str | None:
    """The host of a URL, without brackets, as it is looked up and as it is in a `Host` header: a name (that
    of an international domain in its ASCII form) or an address. None: it is neither.
    """
    if len(host) > DNS_NAME_CHARACTERS_MAX:
        return None
    try:
        if ":" in host:
            address, _, zone = host.partition("%")
            IPv6Address(address)
            return host if _ZONE.fullmatch(zone) else None
        written = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        return None
    return written if is_dns_name(written) else None
