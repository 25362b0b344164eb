"""Where a URL leads: host, port, TLS, and the beginning of every request that goes there. Pure."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/:?#[]@!$&'()*+,;=~-._"

Place = tuple[str, int, bool]
"""Host, port, and whether it is TLS."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart. `head`: request line and headers that every POST there begins with; `place`: host, port, and whether it is TLS."""

    host: str
    port: int
    is_tls: bool
    head: bytes
    place: Place

    @classmethod
    def of(cls, url: str) -> "Target":
        """Of an absolute http or https URL.

        Raises:
            ValueError: it is not such a URL, or its host is not a valid name.
        """
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna" if not (parts.hostname or "").isascii() else "ascii").decode("ascii")
        if parts.scheme not in _PORTS or not host:
            message = f"{url!r} is not an http or https URL"
            raise ValueError(message)
        port = parts.port or _PORTS[parts.scheme]
        path = quote(parts.path or "/", _SAFE) + (f"?{quote(parts.query, _SAFE)}" if parts.query else "")
        named = f"[{host}]" if ":" in host else host
        authority = named if port == _PORTS[parts.scheme] else f"{named}:{port}"
        head = f"POST {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: knative-gateway\r\nAccept-Encoding: identity\r\n"
        if parts.username is not None:
            secret = b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode("ascii")
            head += f"Authorization: Basic {secret}\r\n"
        is_tls = parts.scheme == "https"
        return cls(host, port, is_tls, head.encode("ascii"), (host, port, is_tls))
