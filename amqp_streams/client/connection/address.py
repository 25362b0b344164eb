"""Where a node listens:

`amqp://user:password@host:port`, `amqps://`, `ws://`, `wss://`; IPv6 hosts in brackets.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

_PORTS: Final = {"amqp": 5672, "amqps": 5671, "ws": 80, "wss": 443}
_SECURE: Final = frozenset({"amqps", "wss"})
_WEBSOCKET: Final = frozenset({"ws", "wss"})


@dataclass(frozen=True, slots=True)
class Address:
    """One place to connect to.

    `path` is that of the WebSocket; `hostname` what the peer there is called, where that is not `host`.
    """

    scheme: str
    host: str
    port: int
    path: str = "/"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hostname: str | None = None

    @property
    def secure(self) -> bool:
        """TLS below."""
        return self.scheme in _SECURE

    @property
    def websocket(self) -> bool:
        """AMQP over WebSocket."""
        return self.scheme in _WEBSOCKET

    def __str__(self) -> str:
        """For people: without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path if self.websocket else ''}"

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read a URL; without a scheme it is amqp.

        Raises:
            ValueError: no scheme of ours, no host, or a port that is none.
        """
        parts = urlsplit(url if "://" in url else f"amqp://{url}")
        if parts.scheme not in _PORTS:
            message = f"{parts.scheme}:// is not one of amqp://, amqps://, ws://, wss://"
            raise ValueError(message)
        if not parts.hostname:
            message = f"no host in {parts.scheme}:// URL"
            raise ValueError(message)
        try:
            port = parts.port
        except ValueError:
            message = f"no port in {parts.scheme}://{parts.hostname}: 1 to 65535"
            raise ValueError(message) from None
        return cls(
            parts.scheme,
            parts.hostname,
            _PORTS[parts.scheme] if port is None else port,
            _path(parts),
            _part(parts.username),
            _part(parts.password),
        )


def _path(parts: SplitResult) -> str:
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def _part(text: str | None) -> str | None:
    return None if text is None else unquote(text)
