"""The control plane over a real store, logs in memory, and a data plane that the test controls."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from knative_gateway.controller.deciding import reconcile
from knative_gateway.controller.deciding.sources import source
from knative_gateway.ports import Failure, Key, StoredCursor
from knative_gateway.resources.objects import Object, at, entries, put, text
from tests.knative_gateway.controller.rig import Here, Plane, here_at, soon
from tests.knative_gateway.controller.world import (
    BASE,
    NOW_MS,
    broker,
    channel,
    made,
    ref,
    service,
    subscription,
    trigger,
)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with here_at(tmp_path) as made_:
        yield made_


async def test_existing_and_later_objects_become_ready(here: Here) -> None:
    first = await here.send(broker())
    async with here.controller():
        found = await here.ready(first)
        assert at(found, "status", "address", "url") == f"{BASE}/broker/default/b"
        assert len(here.logs.logs["broker.default.b"]) == 2
        second = await here.send(trigger())
        await here.ready(second)
        assert [each.name for each in here.plane.applied[-1].by_path["/broker/default/b"].subscribers] == [
            "t"
        ]


async def test_an_address_that_others_refer_to_is_followed(here: Here) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger("t", to=ref("c", "Channel", "messaging.knative.dev/v1")))
        await here.ready(key, "False")
        await here.send(channel())
        found = await here.ready(key)
        assert at(found, "status", "subscriberUri") == f"{BASE}/channel/default/c"


async def test_a_status_is_current_while_the_data_plane_is_slow(here: Here) -> None:
    """Ready only after the data plane serves it: knative-eventing-test-spec, "Trigger Lifecycle"."""
    here.plane.works = False
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key, "Unknown")
        here.plane.works = True
        await here.ready(key)


async def test_no_object_waits_for_the_subscribers_of_another(here: Here) -> None:
    """One slow path delays neither the status nor the route of another path."""
    here.plane.late = {"/broker/default/late"}
    async with here.controller():
        late = await here.send(broker("late"))
        await here.ready(late, "Unknown")
        await here.ready(await here.send(broker()))
        here.plane.late = set()
        here.plane.works = True
        await here.ready(late)


async def test_a_subscriber_that_could_not_be_set_up_is_ready_when_it_is(here: Here) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger())
        uid = text(await here.ready(key), "metadata", "uid")
        here.plane.not_placed = {uid: "no such offset"}
        await here.send(trigger("other"))
        found = await here.ready(key, "False")
        reasons = {
            text(each, "type"): text(each, "reason") for each in entries(found, "status", "conditions")
        }
        assert reasons["SubscriptionReady"] == "SubscriberFailing"
        here.plane.not_placed = {}
        here.plane.on_change("/broker/default/b")
        await here.ready(key)


async def test_logs_that_cannot_be_created_are_retried(here: Here) -> None:
    here.logs.away = True
    async with here.controller():
        key = await here.send(broker())
        await here.ready(key, "False")
        here.logs.away = False
        await here.ready(key)


async def test_a_log_that_was_deleted_is_created_again(here: Here) -> None:
    async with here.controller() as controller:
        key = await here.send(broker())
        await here.ready(key)
        here.logs.logs.clear()
        await controller.check_logs()
        await controller.settled()
        assert list(here.logs.logs) == ["broker.default.b"]
        await here.ready(key)


async def test_event_objects_report_changes_for_an_hour(here: Here) -> None:
    async with here.controller() as controller:
        # A Trigger that is reconciled before its Broker gets one Event more.
        await here.ready(await here.send(broker()))
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


async def test_positions_are_forgotten_with_the_trigger_and_not_before_the_data_plane_let_it_go(
    here: Here,
) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger())
        uid = text(await here.ready(key), "metadata", "uid")
        await here.store.cursors.save({(uid, 0): "0001"})
        here.plane.works = False
        await here.delete(key)
        other = await here.send(service("s"))
        await here.until(other, lambda found: found is not None)
        assert await here.store.cursors.load([uid]) == {uid: StoredCursor({0: "0001"})}
        here.plane.works = True

        async def forgotten() -> bool:
            return not await here.store.cursors.load([uid])

        await soon(forgotten)
        assert here.plane.applied[-1].by_path["/broker/default/b"].subscribers == ()


async def test_nothing_is_forgotten_or_deleted_while_the_data_plane_could_not_let_it_go(here: Here) -> None:
    async with here.controller() as controller:
        source = await here.send(broker())
        key = await here.send(trigger())
        uid = text(await here.ready(key), "metadata", "uid")
        await here.store.cursors.save({(uid, 0): "0001"})
        here.plane.works = False
        await here.delete(key)
        await here.delete(source)
        last = await here.send(broker("last"))
        await here.until(last, lambda found: at(found, "status") is not None)
        await controller.settled()
        assert await here.store.cursors.load([uid]) == {uid: StoredCursor({0: "0001"})}
        assert "broker.default.b" in here.logs.logs
        here.plane.works = True

        async def gone() -> bool:
            return list(here.logs.logs) == ["broker.default.last"] and not await here.store.cursors.load(
                [uid]
            )

        await soon(gone)


async def test_it_knows_whether_all_is_served(here: Here) -> None:
    """This is false while a log is missing, and before the data plane serves the routes."""
    here.logs.away = True
    here.plane.works = False  # from the start: routes are taken before logs are there
    await here.send(broker())
    async with here.controller() as controller:
        await controller.settled()
        assert controller.lacking is not None
        here.logs.away = False

        async def made_() -> bool:
            return bool(here.logs.logs)

        await soon(made_)
        assert controller.lacking is not None
        here.plane.works = True

        async def whole() -> bool:
            return controller.lacking is None

        await soon(whole)


async def test_a_concurrent_change_of_a_user_is_not_overwritten(here: Here) -> None:
    """A write is against the version that it was decided from."""
    await here.send(broker())
    key = await here.send(trigger())
    controller = here.controller()
    write, update = here.store.resources.write, here.store.resources.update
    elsewhere = "http://elsewhere/"

    async def meddled(objects: Mapping[Key, tuple[Object, int]]) -> Mapping[Key, Object]:
        if key in objects and not meddling.is_set():
            meddling.set()
            found = await here.store.resources.get(key)
            assert found is not None
            await write(key, put(found, ("spec", "subscriber", "uri"), elsewhere), expected_version=None)
            await soon(heard)
        return await update(objects)

    async def heard() -> bool:
        return at(controller.objects[key], "spec", "subscriber", "uri") == elsewhere

    meddling = asyncio.Event()
    here.store.resources.update = meddled  # type: ignore[method-assign]  # another writer is always faster
    async with controller:
        found = await here.until(
            key, lambda each: each is not None and at(each, "status", "subscriberUri") is not None
        )
        assert at(found, "spec", "subscriber", "uri") == elsewhere
        assert at(found, "status", "subscriberUri") == elsewhere


async def test_a_recreated_trigger_is_a_new_subscriber(here: Here) -> None:
    async with here.controller():
        await here.send(broker())
        key = await here.send(trigger())
        first = text(await here.ready(key), "metadata", "uid")
        await here.delete(key)
        await here.send(trigger())
        second = text(await here.ready(key), "metadata", "uid")
        assert first != second
        assert [each.uid for each in here.plane.applied[-1].by_path["/broker/default/b"].subscribers] == [
            second
        ]


async def test_a_namespace_takes_its_objects_along(here: Here) -> None:
    async with here.controller():
        namespace = await here.send(made("v1", "Namespace", "mine"), "")
        key = await here.send(broker(), "mine")
        await here.ready(key)
        await here.delete(namespace)
        await here.until(key, lambda found: found is None)


async def test_owned_objects_are_deleted_with_their_owner(here: Here) -> None:
    async with here.controller():
        owner = await here.send(service("owner"))
        uid = text(await here.store.resources.get(owner) or {}, "metadata", "uid")
        owned = await here.send(put(service("owned"), ("metadata", "ownerReferences"), [{"uid": uid}]))
        await here.until(owned, lambda found: found is not None)
        await here.delete(owner)
        await here.until(owned, lambda found: found is None)


async def test_two_replicas_agree_without_a_leader(here: Here) -> None:
    async with (
        here.controller(counting=False) as one,
        here.controller(counting=False, plane=Plane()) as other,
    ):
        keys = [
            await here.send(broker()),
            await here.send(channel()),
            await here.send(trigger()),
            await here.send(subscription()),
        ]
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
        await here.store.cursors.record(
            {uid: [Failure(NOW_MS, "id", "source", 0, "0001", 1, 500, "status 500", "no")]}
        )
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
        async with second.controller() as controller:

            async def served() -> bool:
                return bool(second.plane.applied)

            await soon(served)
            await controller.settled()
        assert [await second.store.resources.get(key) for key in keys] == before


async def test_a_config_map_with_a_slip_costs_its_broker_only_and_prevents_no_start(here: Here) -> None:
    config = await here.send({**made("v1", "ConfigMap", "c"), "data": {"delivery": "retry: !!bool x"}})
    bad = await here.send(broker("bad", {"config": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}}))
    async with here.controller():
        await here.ready(await here.send(broker()))
        await here.ready(bad, "False")
        await here.send({**made("v1", "ConfigMap", "c"), "data": {"delivery": "retry: 1"}})
        await here.ready(bad)
        assert config.name == "c"


async def test_an_object_that_cannot_be_stored_holds_up_no_other(here: Here) -> None:
    update = here.store.resources.update

    async def odd(objects: Mapping[Key, tuple[Object, int]]) -> Mapping[Key, Object]:
        if any(key.name == "bad" for key in objects):
            raise ValueError
        return await update(objects)

    here.store.resources.update = odd  # type: ignore[method-assign]  # whatever it is
    async with here.controller() as controller:
        await here.send(broker("bad"))
        await here.ready(await here.send(broker()))
        await controller.settled()


async def test_an_object_that_cannot_be_reconciled_says_so_and_the_others_are(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any exception concerns that object only, and the gateway starts."""

    def odd(key: Key, object_: Object, *rest: object) -> object:
        if key.name == "bad":
            raise RecursionError
        return source(key, object_, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reconcile, "source", odd)
    async with here.controller():
        bad = await here.send(broker("bad"))
        await here.ready(await here.send(broker()))
        found = await here.ready(bad, "False")
        assert [text(each, "reason") for each in entries(found, "status", "conditions")] == [
            "InternalError"
        ] * 2
