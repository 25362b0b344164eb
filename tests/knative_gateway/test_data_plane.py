"""The order of the routes ensures that an event is never too early for a subscriber."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast

from knative_gateway.data_plane import GatewayDataPlane, addressed
from knative_gateway.ports import Delivery, Key, ResourceStore, Route, Routes, Subscriber
from tests.knative_gateway.asking import BROKER, CHANNEL, routes

SUBSCRIBER = Subscriber("s-1", "Trigger", "default", "t", 1, (), "http://x", None, None, Delivery())
SUBSCRIBED = replace(BROKER, subscribers=(SUBSCRIBER,))

DELETED = {
    "apiVersion": "eventing.knative.dev/v1",
    "kind": "Broker",
    "metadata": {"name": BROKER.name, "namespace": BROKER.namespace, "uid": BROKER.uid},
}


class Both:
    """An ingress and a dispatcher that record their calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []
        self.by_path: dict[str, Route] = {}
        self.not_placed: Mapping[str, str] = {}
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.plane = GatewayDataPlane(
            self, gather_s=0, forget=lambda log: self.told.append(("forgotten", [log]))
        )
        self.plane.dispatcher = Pushing(self)
        self.plane.on_change = self.heard.put_nowait

    def use(self, given: Routes) -> None:
        self.told.append(("ingress", sorted(given.by_path)))

    def remove(self, paths: Collection[str]) -> None:
        self.told.append(("removed", sorted(paths)))

    async def serve(self, *given: Route, failing: Mapping[str, str] | None = None) -> None:
        self.by_path, self.not_placed = {route.path: route for route in given}, failing or {}
        for route in given or (SUBSCRIBED,):
            self.plane.changed(route.path)
        await self.has_looked()

    async def has_looked(self) -> None:
        """The plane reports each path that it examined."""
        async with asyncio.timeout(60):
            await self.heard.get()
        while not self.heard.empty():
            self.heard.get_nowait()


class Pushing:
    def __init__(self, both: Both) -> None:
        self._both = both

    def served(self, path: str) -> Route | None:
        return self._both.by_path.get(path)

    def failing_at(self, _path: str) -> Mapping[str, str]:
        return self._both.not_placed

    def use(self, given: Routes) -> None:
        self._both.told.append(("dispatcher", sorted(given.by_path)))


async def test_a_new_broker_takes_events_after_its_subscribers_have_cursors() -> None:
    both = Both()
    both.plane.use(routes(SUBSCRIBED))
    assert both.told == [("ingress", []), ("dispatcher", [BROKER.path])]
    await both.serve(BROKER)
    assert both.told[-1] == ("ingress", [])
    assert both.plane.served(BROKER.path) is None
    await both.serve(SUBSCRIBED)
    assert both.told[-1] == ("ingress", [BROKER.path])
    assert both.plane.served(BROKER.path) == SUBSCRIBED


async def test_a_removed_broker_takes_no_events_before_its_subscribers_leave() -> None:
    both = Both()
    both.plane.use(routes(BROKER, CHANNEL))
    await both.serve(BROKER, CHANNEL)
    both.told.clear()
    both.plane.use(routes(CHANNEL))
    assert both.told == [
        ("ingress", [CHANNEL.path]),
        ("forgotten", [BROKER.log]),
        ("dispatcher", [CHANNEL.path]),
    ]
    assert both.heard.get_nowait() == BROKER.path
    assert both.plane.served(BROKER.path) is None


async def test_a_subscriber_that_cannot_be_set_up_delays_no_other() -> None:
    both = Both()
    both.plane.use(routes(SUBSCRIBED))
    await both.serve(failing={"s-1": "its filter is broken"})
    assert both.plane.failing(BROKER.path) == {"s-1": "its filter is broken"}
    assert both.told[-1] == ("ingress", [BROKER.path])


async def test_a_new_subscriber_is_not_served_because_another_one_fails() -> None:
    """Otherwise it would be Ready without a position."""
    both = Both()
    more = replace(SUBSCRIBED, subscribers=(SUBSCRIBER, replace(SUBSCRIBER, uid="s-2", name="u")))
    both.plane.use(routes(SUBSCRIBED))
    await both.serve(SUBSCRIBED, failing={"s-1": "its filter is broken"})
    both.plane.use(routes(more))
    await both.has_looked()
    assert both.plane.served(BROKER.path) == SUBSCRIBED
    await both.serve(more, failing={"s-1": "its filter is broken"})
    assert both.plane.served(BROKER.path) == more


async def test_a_successor_of_the_same_name_takes_no_events_because_its_predecessor_did() -> None:
    both = Both()
    both.plane.use(routes(BROKER))
    await both.serve(BROKER)
    both.told.clear()
    both.by_path = {}
    both.plane.use(routes(replace(BROKER, uid="another")))
    assert both.told[:2] == [("ingress", []), ("forgotten", [BROKER.log])]
    assert both.plane.served(BROKER.path) is None


async def test_a_deleted_broker_takes_no_events_before_the_controller_knows() -> None:
    both = Both()
    both.plane.use(routes(BROKER, CHANNEL))
    await both.serve(BROKER, CHANNEL)
    both.told.clear()
    both.plane.removed((DELETED, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}}))
    assert both.told == [("removed", [BROKER.path]), ("forgotten", [BROKER.log])]
    both.plane.removed((DELETED,))
    assert len(both.told) == 2
    # The controller changes another route first.
    both.plane.use(routes(BROKER, replace(CHANNEL, uid="another"), version=2))
    both.heard = asyncio.Queue()
    both.plane.on_change = both.heard.put_nowait
    await both.serve(BROKER, replace(CHANNEL, uid="another"))
    assert both.told[-1] == ("ingress", [CHANNEL.path])
    assert both.plane.served(BROKER.path) is None


async def test_a_deleted_collection_changes_the_routes_once() -> None:
    """Each change copies all routes: a thousand Brokers that are deleted one by one would cost a million."""
    both, count = Both(), 100
    given = [
        replace(BROKER, name=f"b{each}", path=f"/broker/default/b{each}", uid=f"u{each}")
        for each in range(count)
    ]
    both.plane.use(routes(*given))
    await both.serve(*given)
    both.told.clear()
    both.plane.removed(
        [
            {**DELETED, "metadata": {"name": each.name, "namespace": each.namespace, "uid": each.uid}}
            for each in given
        ]
    )
    assert both.told == [
        ("removed", sorted(each.path for each in given)),
        *[("forgotten", [BROKER.log])] * count,
    ]


async def test_a_successor_is_not_removed_with_its_predecessor() -> None:
    both = Both()
    successor = replace(BROKER, uid="another")
    both.plane.use(routes(successor))
    await both.serve(successor)
    both.plane.removed((DELETED,))
    assert both.told[-1] == ("ingress", [BROKER.path])
    assert both.plane.served(BROKER.path) == successor


async def test_an_address_that_a_user_was_given_is_known() -> None:
    """The address may be from any replica. A Broker without an address is not reachable."""
    url = {"status": {"address": {"url": "http://x"}}}
    there: dict[tuple[str, str, str], Mapping[str, object]] = {
        ("Broker", "default", "b"): url,
        ("InMemoryChannel", "default", "c"): url,
        ("Broker", "default", "new"): {"status": {}},
    }

    class Resources:
        async def get(self, key: Key) -> Mapping[str, object] | None:
            return there.get((key.kind, key.namespace, key.name))

    known = addressed(cast("ResourceStore", Resources()))
    paths = [
        "/broker/default/b",
        "/channel/default/c",
        "/broker/default/new",
        "/broker/default/c",
        "/broker/default",
        "/x/default/b",
        "",
    ]
    assert [path for path in paths if await known(path)] == ["/broker/default/b", "/channel/default/c"]
