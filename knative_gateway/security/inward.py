"""The URLs of this gateway's Brokers and Channels, and the namespaces that may send events to them. Pure.

Events for such a URL stay in the process and need no token: `Inward.refusal` decides by namespace. Events for
another URL that also reaches this gateway use a connection like those of any client, and need a token.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

PREFIXES: Final = ("/broker/", "/channel/")
_SLASHES: Final = 3


def _same(source: str, target: str) -> bool:
    return source == target


@dataclass(frozen=True, slots=True)
class Inward:
    """`base_url`: the beginning of the addresses of Brokers and Channels.

    `may_pass(source, target)`: returns whether a namespace may send to another one.
    """

    base_url: str
    may_pass: Callable[[str, str], bool] = _same

    def path_of(self, url: str) -> str | None:
        """Return the path of a Broker or Channel of this gateway; None for any other URL."""
        path = url.removeprefix(self.base_url)
        # A prefix alone is not enough: the rest must be exactly the path of a Broker or Channel, without a
        # query.
        return path.removesuffix("/") if path != url and _is_path(path) else None

    def refusal(self, url: str, namespace: str) -> str | None:
        """Return why objects of a namespace may not send events to a URL; None if they may, and for other
        URLs.
        """
        path = self.path_of(url)
        if path is None:
            return None
        target = path.split("/")[2]
        if namespace == target or self.may_pass(namespace, target):
            return None
        return (
            f'objects of the namespace "{namespace}" must not send to the namespace "{target}": '
            f'a rule must allow the user "{user_of(namespace)}" to send there'
        )


def user_of(namespace: str) -> str:
    """Return the user name that stands in rules for the objects of a namespace."""
    return f"system:namespace:{namespace}"


@lru_cache(4096)
def looks_inward(url: str) -> bool:
    """Return whether the URL, at any host, has the path of a Broker or Channel.

    It may reach this gateway, so its hops are counted.
    """
    try:
        return _is_path(urlsplit(url).path)
    except ValueError:
        return False


def _is_path(path: str) -> bool:
    return (
        path.startswith(PREFIXES)
        and path.removesuffix("/").count("/") == _SLASHES
        and not {"?", "#"} & set(path)
    )
