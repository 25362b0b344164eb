"""The URL of a node: `amqp://user:password@host:port`, `amqps://`, `ws://`, `wss://`.

IPv6 hosts in brackets.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

_PORTS: Final = {"amqp": 5672, "amqps": 5671, "ws": 80, "wss": 443}
_SECURE: Final = frozenset({"amqps", "wss"})
_WEBSOCKET: Final = frozenset({"ws", "wss"})


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one node.

    `path`: the path of the WebSocket. `hostname`: the name that the node uses for itself (in TLS, SASL and
    `open`), if it is not `host`.
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
        """Whether the connection uses TLS."""
        return self.scheme in _SECURE

    @property
    def websocket(self) -> bool:
        """Whether the connection is AMQP over WebSocket."""
        return self.scheme in _WEBSOCKET

    def __str__(self) -> str:
        """The URL without user and password, for log lines and messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path if self.websocket else ''}"

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Parse a URL. Without a scheme it is amqp.

        Raises:
            ValueError: unknown scheme, no host, or a port that is not valid.
        """
        parts = urlsplit(url if "://" in url else f"amqp://{url}")
        if parts.scheme not in _PORTS:
            message = f"{parts.scheme}:// is not one of amqp://, amqps://, ws://, wss://"
            raise ValueError(message)
        if not parts.hostname:
            message = f"the {parts.scheme}:// URL has no host"
            raise ValueError(message)
        try:
            port = parts.port
        except ValueError:
            message = f"the port in {parts.scheme}://{parts.hostname}:… must be a number from 1 to 65535"
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
