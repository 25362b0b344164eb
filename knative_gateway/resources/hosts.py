"""Names of hosts. Pure."""

import re
from typing import Final

DNS_NAME_CHARACTERS_MAX: Final = 253
_LABEL: Final = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_DNS_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.IGNORECASE | re.ASCII)


def is_dns_name(host: str) -> bool:
    """Whether this can be the name of a host (RFC 1123; underscores and a dot at its end are allowed)."""
    return len(host) <= DNS_NAME_CHARACTERS_MAX and _DNS_NAME.fullmatch(host) is not None
