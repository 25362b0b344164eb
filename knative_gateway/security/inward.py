"""Which URLs lead to Brokers and Channels of this gateway, and from which namespaces events may go there. Pure.

Laws: events for a path of our own never leave the process, so they need no token; instead the namespaces decide, as `Inward.refusal` says.
A URL that leads here in a spelling that is not known to us is a stranger's: it is connected to, and asked for a token.
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
    """`base_url`: what the addresses of Brokers and Channels begin with. `may_pass`: from which namespace to which other one."""

    base_url: str
    may_pass: Callable[[str, str], bool] = _same

    def path_of(self, url: str) -> str | None:
        """The path of a Broker or Channel of this gateway; None: the URL leads elsewhere."""
        path = url.removeprefix(self.base_url)
        return path.removesuffix("/") if path != url and _is_path(path) else None

    def refusal(self, url: str, namespace: str) -> str | None:
        """Why events of an object in this namespace must not go to a URL; None: they may, or it leads elsewhere."""
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
    """The user name of a namespace's objects in rules."""
    return f"system:namespace:{namespace}"


@lru_cache(4096)
def looks_inward(url: str) -> bool:
    """Whether the URL has the path of a Broker or Channel, at any host: it may lead back here, so hops are counted."""
    try:
        return _is_path(urlsplit(url).path)
    except ValueError:
        return False


def _is_path(path: str) -> bool:
    return path.startswith(PREFIXES) and path.removesuffix("/").count("/") == _SLASHES and not {"?", "#"} & set(path)
