"""[io] Ingress and dispatcher as the one that the controller gives routes to: `ports.DataPlane`.

The order is the law: what is gone takes no more events before its subscribers leave, and what is new takes none before its subscribers have
their places: none of its events is too early for them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from knative_gateway.controller.deciding.sources import keys_of
from knative_gateway.ports import ResourceStore, Route, Routes
from knative_gateway.resources.objects import at

GATHER_S: Final = 0.01
"""Paths that are served within this time are one change of the ingress, which looks at all of its paths."""


class Taking(Protocol):
    """The ingress."""

    def use(self, routes: Routes) -> None:
        """Take events for these from the next request on."""


class Pushing(Protocol):
    """The dispatcher."""

    def served(self, path: str) -> Route | None:
        """A route as it is served now."""

    def failing_at(self, path: str) -> Mapping[str, str]:
        """Subscribers of it that could not be set up, by uid, and why."""

    def use(self, routes: Routes) -> None:
        """Begin to serve these."""


def addressed(resources: ResourceStore) -> Callable[[str], Awaitable[bool]]:
    """Tells whether a Broker or Channel has been given a path as its address, by whichever replica."""

    async def is_address(path: str) -> bool:
        found = [await resources.get(key) for key in keys_of(path)]
        return any(at(object_, "status", "address", "url") for object_ in found if object_ is not None)

    return is_address


class GatewayDataPlane:
    """Both, kept in step. `changed` is what the dispatcher calls; see `ports.DataPlane`."""

    def __init__(self, ingress: Taking, gather_s: float = GATHER_S) -> None:
        self.dispatcher: Pushing
        self.on_change: Callable[[str], None] = lambda _path: None
        self._ingress: Final = ingress
        self._gather_s: Final = gather_s
        self._wanted = Routes(0, {})
        self._taking: dict[str, Route] = {}
        """What the ingress takes events for."""
        self._served: Final[dict[str, Route]] = {}
        """What the ingress takes events for and the dispatcher serves."""
        self._changed: Final[dict[str, None]] = {}
        self._looking: asyncio.TimerHandle | None = None

    def use(self, routes: Routes) -> None:
        """Serve these, and nothing else; what is new takes events when each of its subscribers has its place, or is known to have none."""
        before, self._wanted = self._taking, routes
        self._taking = {path: route for path, route in routes.by_path.items() if path in before and before[path].uid == route.uid}
        self._ingress.use(Routes(routes.version, self._taking))
        gone = [path for path in self._served if path not in self._taking]
        for path in gone:
            del self._served[path]
        self.dispatcher.use(routes)
        for path in gone:
            self.on_change(path)
        for path, route in routes.by_path.items():
            if self._served.get(path) is not route:
                self.changed(path)

    def served(self, path: str) -> Route | None:
        """See `ports.DataPlane`."""
        return self._served.get(path)

    def failing(self, path: str) -> Mapping[str, str]:
        """See `ports.DataPlane`."""
        return self.dispatcher.failing_at(path)

    def changed(self, path: str) -> None:
        """The dispatcher serves something else at a path than before, or has other subscribers that it could not set up."""
        self._changed[path] = None
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(self._gather_s, self._look)

    def _look(self) -> None:
        """Take events for what has come to be served."""
        self._looking = None
        paths = list(self._changed)
        self._changed.clear()
        for path in paths:
            route = self._wanted.by_path.get(path)
            if route is not None and self._is_served(route):
                self._served[path] = self._taking[path] = route
        self._ingress.use(Routes(self._wanted.version, dict(self._taking)))
        for path in paths:
            self.on_change(path)

    def _is_served(self, route: Route) -> bool:
        """Every subscriber has its place, or it is known why it has none."""
        failing = self.dispatcher.failing_at(route.path)
        none_placed = bool(failing) and all(each.uid in failing for each in route.subscribers)
        return none_placed or self.dispatcher.served(route.path) == route
