"""[io] Ingress and dispatcher together, as the receiver of the controller's routes: `ports.DataPlane`.

A removed route stops accepting events before its subscribers stop. A new route accepts events only after its
subscribers have their cursors, so that events are not stored before the start of a subscriber.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from knative_gateway.controller.deciding.relations import SOURCES
from knative_gateway.controller.deciding.sources import keys_of, names_of
from knative_gateway.ports import ResourceStore, Route, Routes
from knative_gateway.resources.objects import Object, at, key_of, uid_of

GATHER_S: Final = 0.01
"""Changes of paths within this time are combined, because each change of the ingress processes all paths."""


class Taking(Protocol):
    """The ingress."""

    def use(self, routes: Routes) -> None:
        """Accept events for these routes from the next request on."""

    def remove(self, paths: Collection[str]) -> None:
        """Accept no more events for these paths."""


class Pushing(Protocol):
    """The dispatcher."""

    def served(self, path: str) -> Route | None:
        """Return the route of a path as it is served now."""

    def failing_at(self, path: str) -> Mapping[str, str]:
        """Return why subscribers of a path could not begin, by uid."""

    def use(self, routes: Routes) -> None:
        """Begin to serve these routes."""


def addressed(resources: ResourceStore) -> Callable[[str], Awaitable[bool]]:
    """Return a function that returns whether a replica has published a path as the address of a Broker or
    Channel.
    """

    async def is_address(path: str) -> bool:
        found = [await resources.get(key) for key in keys_of(path)]
        return any(at(object_, "status", "address", "url") for object_ in found if object_ is not None)

    return is_address


class GatewayDataPlane:
    """Keeps ingress and dispatcher consistent. The dispatcher calls `changed`; see `ports.DataPlane`."""

    def __init__(
        self,
        ingress: Taking,
        gather_s: float = GATHER_S,
        *,
        forget: Callable[[str], None] = lambda _log: None,
    ) -> None:
        """`forget`: called with the log of each route that accepts events no longer."""
        self.dispatcher: Pushing
        self.on_change: Callable[[str], None] = lambda _path: None
        self._ingress: Final = ingress
        self._gather_s: Final = gather_s
        self._forget: Final = forget
        self._wanted = Routes(0, {})
        self._taking: dict[str, Route] = {}
        """The routes for which the ingress accepts events."""
        self._served: Final[dict[str, Route]] = {}
        """The routes for which the ingress accepts events and the dispatcher serves the subscribers."""
        self._removed: set[str] = set()
        """The uids of deleted objects whose routes are still wanted: the controller has not noticed yet."""
        self._changed: Final[dict[str, None]] = {}
        self._looking: asyncio.TimerHandle | None = None

    def use(self, routes: Routes) -> None:
        """Serve these routes and no others.

        A new route accepts events when each of its subscribers has its cursor, or has failed to get one.
        """
        before, self._wanted = self._taking, routes
        self._removed &= {route.uid for route in routes.by_path.values()}
        self._taking = {
            path: route
            for path, route in routes.by_path.items()
            if path in before and before[path].uid == route.uid
        }
        # First the ingress: an event that is accepted after its route was removed would stay without a
        # subscriber.
        self._ingress.use(Routes(routes.version, self._taking))
        for path, route in before.items():
            if path not in self._taking:
                # The link to the log ends with it. Its failure would be that of the log of a successor.
                self._forget(route.log)
        gone = [path for path in self._served if path not in self._taking]
        for path in gone:
            del self._served[path]
        self.dispatcher.use(routes)
        for path in gone:
            self.on_change(path)
        for path, route in routes.by_path.items():
            if self._served.get(path) is not route:
                self.changed(path)

    def removed(self, objects: Sequence[Object]) -> None:
        """See `ports.DataPlane`."""
        ended: dict[str, Route] = {}
        for object_ in objects:
            key = key_of(object_)
            if (key.group, key.kind) not in SOURCES:
                continue
            path, _ = names_of(key)
            wanted = self._wanted.by_path.get(path)
            if wanted is not None and wanted.uid == uid_of(object_):
                self._removed.add(wanted.uid)
                if path in self._taking:
                    ended[path] = self._taking[path]
        if not ended:
            return
        # Not through `use`, which compares all routes. Once for all objects: each change copies all routes.
        self._taking = {each: taken for each, taken in self._taking.items() if each not in ended}
        self._ingress.remove(ended.keys())
        for route in ended.values():
            self._forget(route.log)

    def served(self, path: str) -> Route | None:
        """See `ports.DataPlane`."""
        return self._served.get(path)

    def failing(self, path: str) -> Mapping[str, str]:
        """See `ports.DataPlane`."""
        return self.dispatcher.failing_at(path)

    def changed(self, path: str) -> None:
        """Report that the dispatcher serves another route at a path, or that its failing
        subscribers changed.
        """
        self._changed[path] = None
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(self._gather_s, self._look)

    def _look(self) -> None:
        """Accept events for the routes that the dispatcher serves by now."""
        self._looking = None
        paths = list(self._changed)
        self._changed.clear()
        for path in paths:
            route = self._wanted.by_path.get(path)
            if route is not None and route.uid not in self._removed and self._is_served(route):
                self._served[path] = self._taking[path] = route
        # Before `on_change`: the controller may report Ready from then on, and a sender may send at once.
        self._ingress.use(Routes(self._wanted.version, dict(self._taking)))
        for path in paths:
            self.on_change(path)

    def _is_served(self, route: Route) -> bool:
        """Return whether every subscriber has its cursor, or has failed to get one."""
        failing = self.dispatcher.failing_at(route.path)
        none_placed = bool(failing) and all(each.uid in failing for each in route.subscribers)
        return none_placed or self.dispatcher.served(route.path) == route
