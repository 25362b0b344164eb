"""[io] Where a dead letter or a reply is that a subscriber caused.

Laws: only Brokers and Channels of one namespace are searched: the right to trace in a namespace is not a
right in another one. An answer does not show whether another namespace has a Broker or Channel. All searches
of one answer together look at `LOCATED_MAX` events, and each takes at most `LOCATED_S_MAX` seconds; after one
that takes longer, nothing is searched.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.errors import UnavailableError
from knative_gateway.paths.stored import Budget, Log, by_identity
from knative_gateway.ports import EventLog, Route, Stored
from knative_gateway.security.inward import looks_inward

LOCATED_MAX: Final = 5_000
"""Events that are looked at for the dead letters and replies of one answer."""
LOCATED_S_MAX: Final = 3.0
"""How long one dead letter or reply is looked for."""
_CLOCKS_MS: Final = 2_000
"""How far the clocks of gateway and node may differ."""


def _any(_arrival: Arrival) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Sought:
    """An event that was sent at about `at_ms`. `is_it`: more that it must fulfil."""

    id: str
    source: str
    at_ms: int
    is_it: Callable[[Arrival], bool] = _any


class Search:
    """The searches of one answer."""

    def __init__(self, routes: Mapping[str, Route], events: EventLog, namespace: str) -> None:
        self._routes: Final = routes
        self._events: Final = events
        self._namespace: Final = namespace
        self._budget: Final = Budget(LOCATED_MAX)
        self._found: Final[dict[tuple[object, ...], Mapping[str, object]]] = {}

    async def at_url(self, url: str, sought: Sought) -> Mapping[str, object]:
        """Return where an event is that was sent to a URL."""
        route = self._routes.get(urlsplit(url).path.removesuffix("/")) if looks_inward(url) else None
        # One note for both: it must not show what another namespace has.
        if route is None or route.namespace != self._namespace:
            return {"note": "this is not a Broker or Channel of this namespace"}
        return await self.in_route(route, sought)

    async def in_route(self, route: Route, sought: Sought) -> Mapping[str, object]:
        """Return where an event is that was sent to a Broker or Channel of the namespace."""
        assert route.namespace == self._namespace, "the right to trace is one for this namespace"
        # The same event may have failed at many subscribers with one URL.
        known = (route.log, sought.id, sought.source, sought.at_ms)
        if known not in self._found:
            self._found[known] = await self._located(route.log, sought)
        return {**name_of_route(route), **self._found[known]}

    async def _located(self, name: str, sought: Sought) -> Mapping[str, object]:
        """Look back from the time at which the event was sent."""
        same = by_identity(sought.id, sought.source)

        def matching(stored: Stored) -> Arrival | None:
            arrival = same(stored)
            return arrival if arrival is not None and sought.is_it(arrival) else None

        if not self._budget.lasts():
            return {"note": "it was not searched: the searches before it have looked at many events"}
        try:
            async with asyncio.timeout(LOCATED_S_MAX):
                log = await Log.opened(self._events, name)
                marks = await log.before_time(sought.at_ms + _CLOCKS_MS)
                found = await log.searched(marks, matching, self._budget, enough=1)
        except (TimeoutError, UnavailableError):
            self._budget.events = 0
            return {"note": "the search for it took too long"}
        if found.arrivals:
            return dict(found.arrivals[0].where)
        return {"note": "it is not among the events of that time that were looked at"}


def name_of_route(route: Route) -> dict[str, object]:
    """Return how an answer names a Broker or Channel."""
    return {"kind": route.kind, "namespace": route.namespace, "name": route.name}
