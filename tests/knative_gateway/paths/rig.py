"""A dispatcher that serves a Broker with the path of a real one, and the paths of its events."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from knative_gateway.dispatcher.subscribers.standing import State
from knative_gateway.paths.answering import Paths
from knative_gateway.ports import Route, Subscriber
from knative_gateway.trying import Trials
from tests.knative_gateway.dispatcher.rig import LOG, Rig, route

BROKER: Mapping[str, Any] = {
    "apiVersion": "eventing.knative.dev/v1",
    "kind": "Broker",
    "metadata": {"namespace": "default", "name": "b", "uid": f"uid-of-{LOG}"},
}


def broker(*subscribers: Subscriber) -> Route:
    return replace(route(*subscribers), path="/broker/default/b")


class PathsRig(Rig):
    """Use with `async with`."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.paths = Paths(self.dispatcher, self.log, self.kept, Trials(self.log))
        return self

    async def serve(self, *subscribers: Subscriber) -> None:
        await self.use(broker(*subscribers))

    async def trace(self, offset: int = 0, partition: int = 0, **options: object) -> Any:
        return await self.paths.trace(BROKER, {"partition": partition, "offset": offset, **options})

    async def reaches(self, state: State, offset: int = 0) -> Any:
        """Wait until an event has a state at its first subscriber. Returns the entry of the answer."""
        async with asyncio.timeout(60):
            while (row := await self.state(offset))["state"] != state.value:  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.002)
        return row

    async def state(self, offset: int = 0) -> Any:
        """The first subscriber of an event."""
        return (await self.trace(offset))["subscribers"][0]
