"""Partitions that other containers serve, as configured in `[[redirect]]`.

Spec: Event Streams 4; AMQP 2.8.18.

Law: a link is never bound to or associated with a partition of another container; the peer is redirected
instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.policy import Redirect
from amqp_streams.wire.types import Int

_KNOWN_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another container that serves a log or some partitions of it."""

    host: str
    port: int
    container: str | None = None

    def error(self, log: str, partition: int | None = None) -> PeerError:
        """The redirect error for this log, or for this partition of it."""
        what = f"log {log!r}" if partition is None else f"partition {partition} of log {log!r}"
        owner = "" if self.container is None else f" ({self.container})"
        shown = f"[{self.host}]" if ":" in self.host else self.host
        info: dict[str, str | int] = {
            names.REDIRECT_HOSTNAME: self.host,
            names.REDIRECT_NETWORK_HOST: self.host,
            names.REDIRECT_PORT: Int(self.port),
            names.REDIRECT_ADDRESS: log,
        }
        if self.container is not None:
            info[names.REDIRECT_CONTAINER] = self.container
        if partition is not None:
            info[names.INFO_PARTITION] = str(partition)
        return PeerError(names.LINK_REDIRECT, f"{what} is served by {shown}:{self.port}{owner}", info)


Redirected = Mapping[int, Elsewhere]
"""The partitions of a log that other containers serve, by index."""
NOWHERE: Final[Redirected] = MappingProxyType({})
"""No partition is elsewhere."""


class Redirects:
    """All redirects of a node. The first one that matches a partition applies."""

    def __init__(self, redirects: Sequence[Redirect] = ()) -> None:
        self._rules: Final = tuple(
            (redirect, Elsewhere(redirect.host, redirect.port, redirect.container)) for redirect in redirects
        )
        self._known: Final[dict[tuple[str, int], Redirected]] = {}

    def of(self, log: str, partition_count: int) -> Redirected:
        """The partitions of a log that are elsewhere; returns the same object until the redirects change."""
        if not self._rules:
            return NOWHERE
        asked = (log, partition_count)
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            # One object for "nowhere", so that callers can compare by identity.
            known = self._known[asked] = self._look_up(log, partition_count) or NOWHERE
        return known

    def whole(self, log: str) -> Elsewhere | None:
        """The container of a log that is redirected as a whole, so that it need not exist here."""
        return next(
            (
                container
                for rule, container in self._rules
                if rule.partitions is None and fnmatchcase(log, rule.log)
            ),
            None,
        )

    def _look_up(self, log: str, partition_count: int) -> Redirected:
        found: dict[int, Elsewhere] = {}
        for rule, container in self._rules:
            if fnmatchcase(log, rule.log):
                for index in range(partition_count) if rule.partitions is None else rule.partitions:
                    if index < partition_count:
                        # The first redirect that matches applies.
                        found.setdefault(index, container)
        return found


def require_here(log: str, partition_count: int, elsewhere: Redirected, partition: int | None) -> None:
    """Check that the requested partition (None: any) is here.

    Raises:
        PeerError: amqp:link:redirect to its container; if all partitions are elsewhere, to the first one's.
    """
    if partition is not None:
        if partition in elsewhere:
            raise elsewhere[partition].error(log, partition)
    elif elsewhere and len(elsewhere) == partition_count:
        raise elsewhere[0].error(log)
