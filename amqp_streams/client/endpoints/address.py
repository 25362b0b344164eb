"""The URL of a node: `amqp://user:password@host:port`, `amqps://`, `ws://`, `wss://`; and lists of them.

IPv6 hosts in brackets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

_PORTS: Final = {"amqp": 5672, "amqps": 5671, "ws": 80, "wss": 443}
_SECURE: Final = frozenset({"amqps", "wss"})
_WEBSOCKET: Final = frozenset({"ws", "wss"})


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one node.

    `path`: the path of the WebSocket. `hostname`: the name that the node uses for itself (in TLS, SASL and
    `open`), if it is not `host`. `ip`: the address to connect to, if the name `host` has several.
    """

    scheme: str
    host: str
    port: int
    path: str = "/"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hostname: str | None = None
    ip: str | None = None

    @property
    def secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme in _SECURE

    @property
    def websocket(self) -> bool:
        """Whether the connection is AMQP over WebSocket."""
        return self.scheme in _WEBSOCKET

    @property
    def url(self) -> str:
        """The URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path if self.websocket else ''}"

    def __str__(self) -> str:
        """The URL, and the IP address if the name has several, for log lines and messages."""
        return self.url if self.ip is None else f"{self.url} ({self.ip})"

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


def parse_all(endpoints: str | Iterable[str]) -> list[Address]:
    """Parse a list of URLs: a text in which commas separate them, or several texts.

    A part without a scheme (`HOST` or `HOST:PORT`) has the scheme, user and password of the part before it.

    Raises:
        ValueError: a part is empty or not valid. The message does not contain a user or password.
    """
    found: list[Address] = []
    for text in [endpoints] if isinstance(endpoints, str) else endpoints:
        for part in map(str.strip, text.split(",")):
            found.append(_next(part, found[-1] if found else None))
    if not found:
        message = "the list of endpoints is empty: give at least one URL"
        raise ValueError(message)
    return list(dict.fromkeys(found))


def _next(part: str, before: Address | None) -> Address:
    if not part:
        message = "an endpoint is empty: separate URLs with one comma"
        raise ValueError(message)
    if before is None or "://" in part:
        return Address.parse(part)
    if "@" in part:
        message = (
            "an endpoint after a comma must be a URL with a scheme, or HOST[:PORT]; write a comma in a"
            " password as %2C"
        )
        raise ValueError(message)
    parsed = Address.parse(f"{before.scheme}://{part}")
    return replace(parsed, user=before.user, password=before.password)


def _path(parts: SplitResult) -> str:
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def _part(text: str | None) -> str | None:
    return None if text is None else unquote(text)
