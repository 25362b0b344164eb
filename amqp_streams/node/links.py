"""The links of a node: by log, and by the name that identifies a link across connections. Spec: AMQP 2.6.1.

Law: only links to a log's events or cursors are known by name. The names of other links are local to a
connection.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from amqp_streams.streams.attach import AttachRequest, Consuming, Grant, Informing, Kept, Pending, Producing

Identity: TypeAlias = tuple[str | None, str, str, bool]


class Links:
    """All links, including attaches that are not yet answered."""

    def __init__(self) -> None:
        self._by_log: dict[str, dict[Grant, None]] = {}
        # Counted, not searched: a log may have thousands of links.
        self._consumers: Counter[str] = Counter()
        self._by_name: dict[Identity, Grant | Pending] = {}
        self._names: dict[Grant | Pending, Identity] = {}

    def rival(self, request: AttachRequest) -> Grant | Pending | None:
        """The link attached with the same name, user, container and role: this attach steals it."""
        identity = _identity(request)
        return None if identity is None else self._by_name.get(identity)

    def add(self, request: AttachRequest, link: Grant | Pending) -> None:
        """Register a link or a waiting attach."""
        identity = _identity(request)
        if identity is not None and isinstance(link, Producing | Consuming | Kept | Pending):
            self._by_name[identity] = link
            self._names[link] = identity
        if isinstance(link, Producing | Consuming | Informing):
            links = self._by_log.setdefault(link.log.name, {})
            if isinstance(link, Consuming) and link not in links:
                self._consumers[link.log.name] += 1
            links[link] = None

    def remove(self, link: Grant | Pending) -> bool:
        """Forget a link; returns whether it was registered by its name or its log."""
        identity = self._names.pop(link, None)
        # A newer link may have the name: see `Consumers._name`.
        if identity is not None and self._by_name.get(identity) is link:
            del self._by_name[identity]
        if isinstance(link, Producing | Consuming | Informing):
            links = self._by_log.get(link.log.name, {})
            known = link in links
            links.pop(link, None)
            if isinstance(link, Consuming) and known:
                self._consumers[link.log.name] -= 1
            if not links:
                del self._consumers[link.log.name]
                self._by_log.pop(link.log.name, None)
            return known
        return identity is not None

    def of(self, log: str) -> Sequence[Grant]:
        """The links on a log."""
        return tuple(self._by_log.get(log, ()))

    def consumers_of(self, log: str) -> int:
        """The number of consumer links on a log."""
        return self._consumers[log]

    def consumers(self) -> Iterable[Consuming]:
        """All consumer links."""
        for links in self._by_log.values():
            for link in links:
                if isinstance(link, Consuming):
                    yield link


def _identity(request: AttachRequest) -> Identity | None:
    if not (request.container and request.link):
        return None
    return request.user, request.container, request.link, request.consumer
