"""Partitions that another container serves, as the configuration says it (`[[redirect]]`). Spec: Event Streams 4; AMQP 2.8.18.

Law: a link is never bound to, associated with or sent from a partition that is elsewhere; it is told where to go.
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
    """A container that serves something in our stead."""

    host: str
    port: int
    container: str | None = None

    def error(self, log: str, partition: int | None = None) -> PeerError:
        """What a peer is told that wanted this log, or this partition of it, here."""
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


Places = Mapping[int, Elsewhere]
"""Which partitions of a log are elsewhere, and where: by index."""
NOWHERE: Final[Places] = MappingProxyType({})
"""All partitions are here."""


class Redirects:
    """All redirects of a node. The first that matches a partition counts."""

    def __init__(self, redirects: Sequence[Redirect] = ()) -> None:
        self._rules: Final = tuple((redirect, Elsewhere(redirect.host, redirect.port, redirect.container)) for redirect in redirects)
        self._known: Final[dict[tuple[str, int], Places]] = {}

    def of(self, log: str, partition_count: int) -> Places:
        """The partitions of a log that are elsewhere; the same object as long as nothing changes."""
        if not self._rules:
            return NOWHERE
        asked = (log, partition_count)
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[asked] = self._look_up(log, partition_count) or NOWHERE
        return known

    def whole(self, log: str) -> Elsewhere | None:
        """Where a log is that need not be here at all: redirected without a word of partitions."""
        return next((place for rule, place in self._rules if rule.partitions is None and fnmatchcase(log, rule.log)), None)

    def _look_up(self, log: str, partition_count: int) -> Places:
        found: dict[int, Elsewhere] = {}
        for rule, place in self._rules:
            if fnmatchcase(log, rule.log):
                for index in range(partition_count) if rule.partitions is None else rule.partitions:
                    if index < partition_count:
                        found.setdefault(index, place)
        return found


def require_here(log: str, partition_count: int, places: Places, partition: int | None) -> None:
    """Let a link pass that asks for a partition (None: any), if that, or any, is here.

    Raises:
        PeerError: amqp:link:redirect, to where it is; with every partition elsewhere, to where the first one is.
    """
    if partition is not None:
        if partition in places:
            raise places[partition].error(log, partition)
    elif places and len(places) == partition_count:
        raise places[0].error(log)
