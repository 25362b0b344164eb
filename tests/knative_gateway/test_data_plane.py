"""Routes come in the order in which no event is too early for anybody."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from knative_gateway.data_plane import GatewayDataPlane, addressed
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Delivery, Key, ResourceStore, Routes, Subscriber
from tests.knative_gateway.asking import BROKER, CHANNEL, routes

SUBSCRIBER = Subscriber("s-1", "Trigger", "default", "t", 1, (), "http://x", None, None, Delivery())
SUBSCRIBED = replace(BROKER, subscribers=(SUBSCRIBER,))


class Both:
    """Ingress and dispatcher that write down what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []
        self.applied = Routes(0, {})
        self.failing: Mapping[str, str] = {}
        self.plane = GatewayDataPlane(self, apply_s_max=0.05)
        self.plane.dispatcher = Pushing(self)

    def use(self, given: Routes) -> None:
        self.told.append(("ingress", sorted(given.by_path)))

    def serve(self, given: Routes, failing: Mapping[str, str] | None = None) -> None:
        self.applied, self.failing = given, failing or {}
        self.plane.changed()


class Pushing:
    def __init__(self, both: Both) -> None:
        self._both = both

    @property
    def applied(self) -> Routes:
        return self._both.applied

    @property
    def failing(self) -> Mapping[str, str]:
        return self._both.failing

    def use(self, given: Routes) -> None:
        self._both.told.append(("dispatcher", sorted(given.by_path)))


async def test_what_is_new_takes_events_after_its_subscribers_have_places() -> None:
    both = Both()
    applying = asyncio.create_task(both.plane.apply(routes(SUBSCRIBED)))
    await asyncio.sleep(0)
    assert both.told == [("ingress", []), ("dispatcher", [BROKER.path])]
    both.serve(routes(BROKER))
    await asyncio.sleep(0)
    assert not applying.done()
    both.serve(routes(SUBSCRIBED))
    assert await applying == {}
    assert both.told[-1] == ("ingress", [BROKER.path])


async def test_what_is_gone_takes_no_events_before_its_subscribers_leave() -> None:
    both = Both()
    both.applied = routes(BROKER, CHANNEL)
    await both.plane.apply(routes(BROKER, CHANNEL))
    both.told.clear()
    both.applied = routes(CHANNEL)
    await both.plane.apply(routes(CHANNEL))
    assert both.told == [("ingress", [CHANNEL.path]), ("dispatcher", [CHANNEL.path]), ("ingress", [CHANNEL.path])]


async def test_one_that_cannot_be_set_up_holds_up_nobody() -> None:
    both = Both()
    both.failing = {"s-1": "its filter is broken"}
    assert await both.plane.apply(routes(SUBSCRIBED)) == {"s-1": "its filter is broken"}
    assert both.told[-1] == ("ingress", [BROKER.path])


async def test_waiting_has_an_end() -> None:
    both = Both()
    with pytest.raises(UnavailableError, match="no places after"):
        await both.plane.apply(routes(SUBSCRIBED))
    assert both.told[-1][0] == "dispatcher"


async def test_an_address_that_somebody_was_told_is_known() -> None:
    """Whichever replica gave it; one that has none yet is nowhere to send to."""
    url = {"status": {"address": {"url": "http://x"}}}
    there = {("Broker", "default", "b"): url, ("InMemoryChannel", "default", "c"): url, ("Broker", "default", "new"): {"status": {}}}

    class Resources:
        async def get(self, key: Key) -> Mapping[str, object] | None:
            return there.get((key.kind, key.namespace, key.name))

    known = addressed(cast("ResourceStore", Resources()))
    paths = ["/broker/default/b", "/channel/default/c", "/broker/default/new", "/broker/default/c", "/broker/default", "/x/default/b", ""]
    assert [path for path in paths if await known(path)] == ["/broker/default/b", "/channel/default/c"]
