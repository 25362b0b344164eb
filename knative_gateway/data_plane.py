"""[io] Ingress and dispatcher as the one that the controller gives routes to: `ports.DataPlane`.

The order is the law: what is gone takes no more events before its subscribers leave, and what is new takes none before its subscribers have
their places: none of its events is too early for them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from knative_gateway.controller.sources import keys_of
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import ResourceStore, Routes
from knative_gateway.resources.objects import at

APPLY_S_MAX: Final = 30.0


class Taking(Protocol):
    """The ingress."""

    def use(self, routes: Routes) -> None:
        """Take events for these from the next request on."""


class Pushing(Protocol):
    """The dispatcher."""

    @property
    def applied(self) -> Routes:
        """What is served now."""

    @property
    def failing(self) -> Mapping[str, str]:
        """Subscribers that could not be set up, by uid, and why."""

    def use(self, routes: Routes) -> None:
        """Begin to serve these."""


def addressed(resources: ResourceStore) -> Callable[[str], Awaitable[bool]]:
    """Tells whether a Broker or Channel has been given a path as its address, by whichever replica."""

    async def is_address(path: str) -> bool:
        found = [await resources.get(key) for key in keys_of(path)]
        return any(at(object_, "status", "address", "url") for object_ in found if object_ is not None)

    return is_address


class GatewayDataPlane:
    """Both, kept in step. `changed` is what the dispatcher calls."""

    def __init__(self, ingress: Taking, apply_s_max: float = APPLY_S_MAX) -> None:
        self.dispatcher: Pushing
        self._ingress: Final = ingress
        self._apply_s_max: Final = apply_s_max
        self._happened: Final = asyncio.Event()
        self._served = Routes(0, {})

    def changed(self) -> None:
        """The dispatcher serves something else than before."""
        self._happened.set()

    async def apply(self, routes: Routes) -> Mapping[str, str]:
        """Serve these, and nothing else; returns when every subscriber has its place, or why it has none, by uid.

        Raises:
            UnavailableError: it takes longer than it may; what is set up is served.
        """
        kept = {path: route for path, route in routes.by_path.items() if path in self._served.by_path}
        self._use(Routes(routes.version, kept))
        self._happened.clear()
        self.dispatcher.use(routes)
        try:
            async with asyncio.timeout(self._apply_s_max):
                while not self._settled(routes):
                    await self._happened.wait()
                    self._happened.clear()
        except TimeoutError:
            message = f"subscribers have no places after {self._apply_s_max:g} s"
            raise UnavailableError(message) from None
        self._use(routes)
        return self.dispatcher.failing

    def _use(self, routes: Routes) -> None:
        self._ingress.use(routes)
        self._served = routes

    def _settled(self, routes: Routes) -> bool:
        """Every route is served as it is wanted, or has subscribers of which is known why not."""
        applied, failing = self.dispatcher.applied.by_path, self.dispatcher.failing
        return all(
            applied.get(path) == route or any(subscriber.uid in failing for subscriber in route.subscribers)
            for path, route in routes.by_path.items()
        )
