"""The target of a URL: host, port, TLS, and the first bytes of every request. Pure."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from knative_gateway.resources.hosts import ascii_host

_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = "%/:?#[]@!$&'()*+,;=~-._"

Endpoint = tuple[str, int, bool]
"""Host, port, and whether the connection uses TLS."""


@dataclass(frozen=True, slots=True)
class Target:
    """`head`: the request line and the headers with which every POST to the URL begins.

    `host`: the name to look up; an IPv6 address has no brackets.
    """

    host: str
    port: int
    is_tls: bool
    head: bytes
    endpoint: Endpoint

    @classmethod
    def of(cls, url: str) -> "Target":
        """Return the target of an absolute http or https URL.

        Raises:
            ValueError: the text is not such a URL, or its host is not a valid name.
        """
        parts = urlsplit(url)
        host = ascii_host(parts.hostname or "")
        if parts.scheme not in _PORTS or host is None:
            message = f"{url!r} is not an http or https URL"
            raise ValueError(message)
        port = parts.port or _PORTS[parts.scheme]
        path = quote(parts.path or "/", _SAFE) + (f"?{quote(parts.query, _SAFE)}" if parts.query else "")
        named = f"[{host}]" if ":" in host else host
        authority = named if port == _PORTS[parts.scheme] else f"{named}:{port}"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: knative-gateway\r\nAccept-Encoding:"
            " identity\r\n"
        )
        if parts.username is not None:
            secret = b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode(
                "ascii",
            )
            head += f"Authorization: Basic {secret}\r\n"
        is_tls = parts.scheme == "https"
        return cls(host, port, is_tls, head.encode("ascii"), (host, port, is_tls))
