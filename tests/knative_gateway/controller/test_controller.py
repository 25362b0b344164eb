"""The control plane over a real store, logs in memory, and a data plane that does what the test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from knative_gateway.controller.controller import Controller, Times
from knative_gateway.controller.plan import Settings
from knative_gateway.errors import UnavailableError
from knative_gateway.ports import Failure, Key, Routes, Stored
from knative_gateway.resources.conditions import READY, status_of
from knative_gateway.resources.objects import Object, at, entries, put, text
from knative_gateway.store import Store, open_store, sqlite_url
from tests.knative_gateway.controller.world import BASE, NOW_MS, Logs, World, broker, channel, made, ref, service, subscription, trigger

QUICK = Times(settle=0, apply=0.05, retry=0.01, figures=3600, logs=3600, events=3600)


class Plane:
    """A data plane. `failing`: what it answers; `gate`: it takes its time while that is shut."""

    def __init__(self) -> None:
        self.applied: list[Routes] = []
        self.failing: dict[str, str] = {}
        self.error: UnavailableError | None = None
        self.attempts = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def apply(self, routes: Routes) -> Mapping[str, str]:
        await self.gate.wait()
        self.attempts += 1
        if self.error:
            raise self.error
        self.applied.append(routes)
        return dict(self.failing)


class Here:
    """What a test has at hand."""

    def __init__(self, store: Store) -> None:
        self.store, self.plane, self.logs = store, Plane(), Logs()
        self._world = World()
        self.now_ms = NOW_MS
        self.counters: dict[str, dict[str, int]] = {}

    def controller(self, *, counting: bool = True) -> Controller:
        counters = (lambda: self.counters) if counting else None
        settings = Settings(BASE, partitions=2, delete_logs=counting)
        stored = self.store
        return Controller(
            stored.resources,
            self.logs,
            self.plane,
            stored.checkpoints,
            settings,
            counters=counters,
            times=QUICK,
            clock_ms=lambda: self.now_ms,
        )

    async def send(self, object_: Mapping[str, object], namespace: str = "default") -> Key:
        key = self._world.send(object_, namespace=namespace)
        written = await self.store.resources.write(key, self._world.objects[key], expected_version=None)
        assert written is not None
        return key

    async def delete(self, key: Key) -> None:
        self._world.objects.pop(key)
        await self.store.resources.write(key, None, expected_version=None)

    async def until(self, key: Key, holds: Callable[[Object | None], bool]) -> Object:
        """The object, once it is as it should be."""
        async with asyncio.timeout(5):
            version, _ = await self.store.resources.list(key.group, key.kind)
            found = await self.store.resources.get(key)
            if not holds(found):
                async for change in self.store.resources.watch(key.group, key.kind, version):
                    found = None if change.type == "DELETED" else change.object
                    if change.key == key and holds(found) and holds(await self.store.resources.get(key)):
                        break
        return found or {}

    async def ready(self, key: Key, status: str = "True") -> Object:
        return await self.until(key, lambda object_: object_ is not None and status_of(object_, READY) == status)


@asynccontextmanager
async def here_at(path: Path) -> AsyncIterator[Here]:
    async with open_store(sqlite_url(path)) as store:
        yield Here(store)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with here_at(tmp_path) as made_:
        yield made_


async def soon(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what no feed tells."""
    async with asyncio.timeout(5):
        while not await holds():  # noqa: ASYNC110  the database has no event
            await asyncio.sleep(0.005)


async def test_what_is_there_at_the_start_and_what_comes_later_becomes_ready(here: Here) -> None:
    first = await here.send(broker())
    async with here.controller():
        found = await here.ready(first)
        assert at(found, "status", "address", "url") == f"{BASE}/broker/default/b"
        assert len(here.logs.logs["broker.default.b"]) == 2
        second = await here.send(trigger())
        await here.ready(second)
        assert [each.name for each in here.plane.applied[-1].by_path["/broker/default/b"].subscribers] == ["t"]


async def test_an_address_that_others_refer_to_is_followed(here: Here) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger("t", to=ref("c", "Channel", "messaging.knative.dev/v1")))
        await here.ready(key, "False")
        await here.send(channel())
        found = await here.ready(key)
        assert at(found, "status", "subscriberUri") == f"{BASE}/channel/default/c"


async def test_status_tells_while_the_data_plane_takes_its_time(here: Here) -> None:
    """Ready only after the data plane serves it: knative-eventing-test-spec, "Trigger Lifecycle"."""
    here.plane.gate.clear()
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key, "Unknown")
        here.plane.gate.set()
        await here.ready(key)


async def test_a_data_plane_that_fails_is_tried_again(here: Here) -> None:
    here.plane.error = UnavailableError("not yet")
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key, "Unknown")
        here.plane.error = None
        await here.ready(key)


async def test_a_subscriber_that_cannot_be_set_up_is_tried_again(here: Here) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger())
        uid = text(await here.ready(key), "metadata", "uid")
        here.plane.failing = {uid: "no such offset"}
        await here.send(trigger("other"))
        found = await here.ready(key, "False")
        reasons = {text(each, "type"): text(each, "reason") for each in entries(found, "status", "conditions")}
        assert reasons["SubscriptionReady"] == "SubscriberFailing"
        here.plane.failing = {}
        await here.ready(key)


async def test_logs_that_cannot_be_made_are_tried_again(here: Here) -> None:
    here.logs.away = True
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key, "False")
        here.logs.away = False
        await here.ready(key)


async def test_a_log_that_went_is_made_again(here: Here) -> None:
    async with here.controller() as controller:
        key = await here.send(broker())
        await here.ready(key)
        here.logs.logs.clear()
        await controller.check_logs()
        await controller.settled()
        assert list(here.logs.logs) == ["broker.default.b"]
        await here.ready(key)


async def test_what_happened_is_told_by_event_objects_for_an_hour(here: Here) -> None:
    async with here.controller() as controller:
        await here.send(broker())
        key = await here.send(trigger(to=ref("s")))
        await here.ready(key, "False")
        await here.send(service("s"))
        await here.ready(key)

        async def told() -> list[tuple[str, str]]:
            _, events = await here.store.resources.list("", "Event", "default")
            about = [each for each in events if text(each, "involvedObject", "kind") == "Trigger"]
            return sorted((text(each, "type"), text(each, "reason")) for each in about)

        async def all_told() -> bool:
            return await told() == [("Normal", "TriggerReady"), ("Warning", "NotFound")]

        await soon(all_told)
        await controller.settled()
        await controller.forget_old_events()
        assert await all_told()
        here.now_ms += 2 * 3_600_000

        async def all_forgotten() -> bool:
            await controller.forget_old_events()
            return await told() == []

        await soon(all_forgotten)


async def test_positions_are_forgotten_with_the_trigger_and_not_before_the_data_plane_let_it_go(here: Here) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger())
        uid = text(await here.ready(key), "metadata", "uid")
        await here.store.checkpoints.save({(uid, 0): "0001"})
        here.plane.gate.clear()
        await here.delete(key)
        other = await here.send(service("s"))
        await here.until(other, lambda found: found is not None)
        assert await here.store.checkpoints.load(uid) == {0: "0001"}
        here.plane.gate.set()

        async def forgotten() -> bool:
            return not await here.store.checkpoints.load(uid)

        await soon(forgotten)
        assert here.plane.applied[-1].by_path["/broker/default/b"].subscribers == ()


async def test_nothing_is_forgotten_or_deleted_while_the_data_plane_could_not_let_it_go(here: Here) -> None:
    async with here.controller() as controller:
        source = await here.send(broker())
        key = await here.send(trigger())
        uid = text(await here.ready(key), "metadata", "uid")
        await here.store.checkpoints.save({(uid, 0): "0001"})
        here.plane.error = UnavailableError("not now")
        await here.delete(key)
        await here.delete(source)
        attempts = here.plane.attempts

        async def tried() -> bool:
            return here.plane.attempts > attempts + 1

        await soon(tried)
        await controller.settled()
        assert await here.store.checkpoints.load(uid) == {0: "0001"}
        assert list(here.logs.logs) == ["broker.default.b"]
        here.plane.error = None

        async def gone() -> bool:
            return not here.logs.logs and not await here.store.checkpoints.load(uid)

        await soon(gone)


async def test_it_knows_whether_all_is_served(here: Here) -> None:
    """Not while a log is missing, nor while the data plane has not taken the routes."""
    here.logs.away = True
    await here.send(broker())
    async with here.controller() as controller:
        await controller.settled()
        assert not controller.whole
        here.plane.gate.clear()
        here.logs.away = False

        async def ensured() -> bool:
            return bool(controller.routes.by_path)

        await soon(ensured)
        assert not controller.whole
        here.plane.gate.set()

        async def whole() -> bool:
            return controller.whole

        await soon(whole)


async def test_what_a_user_changes_meanwhile_is_not_written_over(here: Here) -> None:
    """A write is against the version that it was decided from."""
    await here.send(broker())
    key = await here.send(trigger())
    controller = here.controller()
    write = here.store.resources.write
    elsewhere = "http://elsewhere/"

    async def meddled(key_: Key, object_: Object | None, *, expected_version: int | None) -> Object | None:
        if key_.kind == "Broker" and not meddling.is_set():
            meddling.set()
            found = await here.store.resources.get(key)
            assert found is not None
            await write(key, put(found, ("spec", "subscriber", "uri"), elsewhere), expected_version=None)
            await soon(heard)
        return await write(key_, object_, expected_version=expected_version)

    async def heard() -> bool:
        return at(controller.objects[key], "spec", "subscriber", "uri") == elsewhere

    meddling = asyncio.Event()
    here.store.resources.write = meddled  # type: ignore[method-assign]  # somebody is always faster
    async with controller:
        found = await here.until(key, lambda each: each is not None and at(each, "status", "subscriberUri") is not None)
        assert at(found, "spec", "subscriber", "uri") == elsewhere
        assert at(found, "status", "subscriberUri") == elsewhere


async def test_a_recreated_trigger_starts_anew(here: Here) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger())
        first = text(await here.ready(key), "metadata", "uid")
        await here.delete(key)
        await here.send(trigger())
        second = text(await here.ready(key), "metadata", "uid")
        assert first != second
        assert [each.uid for each in here.plane.applied[-1].by_path["/broker/default/b"].subscribers] == [second]


async def test_a_log_goes_with_its_broker_and_a_successor_begins_with_an_empty_one(here: Here) -> None:
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key)
        here.logs.logs["broker.default.b"][0].append(Stored(0, "0001", NOW_MS, b""))
        await here.delete(key)

        async def gone() -> bool:
            return not here.logs.logs

        await soon(gone)
        await here.send(broker())
        await here.ready(key)
        assert here.logs.logs == {"broker.default.b": [[], []]}


async def test_a_log_stays_where_several_replicas_share_the_work(here: Here) -> None:
    """A late one could delete what is its successor's by now."""
    async with here.controller(counting=False) as controller:
        key = await here.send(broker())
        await here.ready(key)
        await here.delete(key)

        async def unserved() -> bool:
            return not here.plane.applied[-1].by_path

        await soon(unserved)
        await controller.settled()
        assert list(here.logs.logs) == ["broker.default.b"]


async def test_a_log_that_cannot_be_deleted_is_tried_again(here: Here) -> None:
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key)
        here.logs.away = True
        await here.delete(key)

        async def unserved() -> bool:
            return not here.plane.applied[-1].by_path

        await soon(unserved)
        here.logs.away = False

        async def gone() -> bool:
            return not here.logs.logs

        await soon(gone)


async def test_a_namespace_takes_its_objects_along(here: Here) -> None:
    async with here.controller():
        namespace = await here.send(made("v1", "Namespace", "mine"), "")
        key = await here.send(broker(), "mine")
        await here.ready(key)
        await here.delete(namespace)
        await here.until(key, lambda found: found is None)


async def test_what_is_owned_goes_with_its_owner(here: Here) -> None:
    async with here.controller():
        owner = await here.send(service("owner"))
        uid = text(await here.store.resources.get(owner) or {}, "metadata", "uid")
        owned = await here.send(put(service("owned"), ("metadata", "ownerReferences"), [{"uid": uid}]))
        await here.until(owned, lambda found: found is not None)
        await here.delete(owner)
        await here.until(owned, lambda found: found is None)


async def test_two_replicas_agree_without_a_leader(here: Here) -> None:
    async with here.controller(counting=False) as one, here.controller(counting=False) as other:
        keys = [await here.send(broker()), await here.send(channel()), await here.send(trigger()), await here.send(subscription())]
        for key in keys:
            await here.ready(key)
        await one.settled()
        await other.settled()
        version, _ = await here.store.resources.list("", "Service")
        await one.check_logs()
        await other.check_logs()
        await one.settled()
        await other.settled()
        assert (await here.store.resources.list("", "Service"))[0] == version, "they write over each other"
        _, events = await here.store.resources.list("", "Event")
        assert [at(each, "count") for each in events] == [1] * len(events)


async def test_counters_and_the_latest_failures_are_in_status(here: Here) -> None:
    async with here.controller() as controller:
        await here.send(broker())
        key = await here.send(trigger())
        uid = text(await here.ready(key), "metadata", "uid")
        await here.store.checkpoints.record(uid, [Failure(NOW_MS, "id", "source", 0, "0001", 1, 500, "status 500", "no")])
        here.counters = {uid: {"delivered": 3}}
        await controller.count()
        found = await here.until(key, lambda found: at(found, "status", "deliveries") is not None)
        assert at(found, "status", "deliveries") == {"delivered": 3}
        assert [text(each, "eventId") for each in entries(found, "status", "history")] == ["id"]
        await controller.settled()
        version, _ = await here.store.resources.list("", "Service")
        await controller.count()
        await controller.settled()
        assert (await here.store.resources.list("", "Service"))[0] == version, "nothing was counted meanwhile"


async def test_a_restart_finds_everything_as_it_was(tmp_path: Path) -> None:
    async with here_at(tmp_path) as first:
        async with first.controller():
            keys = [await first.send(broker()), await first.send(trigger())]
            for key in keys:
                await first.ready(key)
        before = [await first.store.resources.get(key) for key in keys]
    async with here_at(tmp_path) as second:
        second.plane.gate.set()
        async with second.controller() as controller:

            async def served() -> bool:
                return bool(second.plane.applied)

            await soon(served)
            await controller.settled()
        assert [await second.store.resources.get(key) for key in keys] == before
