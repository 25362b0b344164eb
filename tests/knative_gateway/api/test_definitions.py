"""Kinds that clients declare: served at once, in each version, and removed with all their objects."""

import asyncio
from pathlib import Path

from knative_gateway.api import Api
from knative_gateway.store import Store, open_store, sqlite_url
from tests.knative_gateway.api.client import APPLY, MERGE, call, definition, watching

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVICES = "/apis/serving.knative.dev/v1/namespaces/default/services"
SERVICE = {
    "apiVersion": "serving.knative.dev/v1",
    "kind": "Service",
    "metadata": {"name": "s"},
    "spec": {"any": {"thing": [1]}},
}


async def test_a_declared_kind_is_served_at_once_in_each_version(api: Api) -> None:
    assert (await call(api, "POST", SERVICES, SERVICE)).code == 404
    made = await call(api, "POST", CRDS, definition())
    assert {each["type"]: each["status"] for each in made.json["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    stored = await call(api, "POST", SERVICES, SERVICE)
    assert (stored.code, stored.json["spec"]) == (201, SERVICE["spec"])
    older = SERVICES.replace("v1", "v1beta1")
    assert (await call(api, "GET", f"{older}/s")).json["apiVersion"] == "serving.knative.dev/v1beta1"
    status = {"status": {"address": {"url": "http://x/"}}}
    assert (await call(api, "PATCH", f"{older}/s/status", status, headers=MERGE)).json["status"] == status[
        "status"
    ]
    changed = await call(api, "GET", f"{SERVICES}/s")
    assert (changed.json["apiVersion"], changed.json["status"]) == (
        "serving.knative.dev/v1",
        status["status"],
    )
    groups = [each["name"] for each in (await call(api, "GET", "/apis")).json["groups"]]
    assert "serving.knative.dev" in groups


async def test_pages_of_definitions_have_our_own_and_declared_ones(api: Api) -> None:
    await call(api, "POST", CRDS, definition())
    every = (await call(api, "GET", CRDS)).json["items"]
    names = [each["metadata"]["name"] for each in every]
    assert names == sorted(names)
    assert {"brokers.eventing.knative.dev", "services.serving.knative.dev"} < set(names)
    found, query = list[str](), {"limit": "2"}
    while True:
        page = (await call(api, "GET", CRDS, query=query)).json
        found += [each["metadata"]["name"] for each in page["items"]]
        assert page["metadata"].get("remainingItemCount", 0) == len(names) - len(found)
        if "continue" not in page["metadata"]:
            break
        query["continue"] = page["metadata"]["continue"]
    assert found == names


async def test_a_kind_goes_with_all_its_objects(api: Api, store: Store) -> None:
    await call(api, "POST", CRDS, definition())
    await call(api, "POST", SERVICES, SERVICE)
    assert (await call(api, "DELETE", f"{CRDS}/services.serving.knative.dev")).code == 200
    assert (await call(api, "GET", SERVICES)).code == 404
    assert (await store.resources.list("serving.knative.dev", "Service"))[1] == []


async def test_our_own_kinds_are_served_as_definitions_and_cannot_be_changed(api: Api) -> None:
    addressable = {"labelSelector": "duck.knative.dev/addressable=true"}
    found = (await call(api, "GET", CRDS, query=addressable)).json["items"]
    assert [each["spec"]["names"]["kind"] for each in found] == ["Broker", "Channel", "InMemoryChannel"]
    path = f"{CRDS}/brokers.eventing.knative.dev"
    theirs = (await call(api, "GET", path)).json
    assert (await call(api, "DELETE", path)).code == 403
    assert (await call(api, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=MERGE)).code == 403
    assert (
        await call(api, "POST", CRDS, definition("eventing.knative.dev", "Broker", "brokers"))
    ).code == 409
    query = {"fieldManager": "x", "force": "true"}
    applied = definition("eventing.knative.dev", "Broker", "brokers")
    assert (await call(api, "PATCH", path, applied, query=query, headers=APPLY)).code in {403, 422}
    assert (await call(api, "GET", path)).json == theirs
    async with watching(api, CRDS) as events:
        assert (await anext(events))["object"]["metadata"]["name"] == "brokers.eventing.knative.dev"


async def test_a_definition_is_followed_whichever_process_stored_it(tmp_path: Path) -> None:
    """Two gateways on one store, as two replicas on PostgreSQL; and after a restart."""
    async with open_store(sqlite_url(tmp_path)) as store:
        one, other = Api(store.resources, store.cursors), Api(store.resources, store.cursors)
        for api in (one, other):
            await api.start()
        await call(one, "POST", CRDS, definition())
        async with asyncio.timeout(60):
            # It is the answer that is waited for.
            while (await call(other, "POST", SERVICES, SERVICE)).code == 404:  # noqa: ASYNC110
                await asyncio.sleep(0)
        for api in (one, other):
            await api.close()
    async with open_store(sqlite_url(tmp_path)) as store:
        again = Api(store.resources, store.cursors)
        await again.start()
        assert (await call(again, "GET", f"{SERVICES}/s")).code == 200
        await again.close()
