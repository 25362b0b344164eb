"""Who changed what: only what was really changed is noted."""

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

import pytest

from knative_gateway.api import Api
from knative_gateway.security.access import Gate, Identity
from knative_gateway.store import Store
from service_parts.health.changes import Changes
from tests.knative_gateway.api.client import APPLY, BROKERS, MERGE, TRIGGERS, call, trigger
from tests.knative_gateway.api.test_actions import Recorder


class Known:
    """Tokens and their users."""

    def __init__(self, users: dict[str, Identity]) -> None:
        self._users = users

    def identity(self, token: str) -> Identity | None:
        return self._users.get(token)


class Described:
    """Keeps changes, and knows nothing else."""

    def __init__(self) -> None:
        self.changes = Changes(lambda: 5)

    async def document(self) -> dict[str, object]:
        return {"kind": "Gateway"}


@pytest.fixture
async def health() -> Described:
    return Described()


@pytest.fixture
async def api(store: Store, health: Described) -> AsyncIterator[Api]:
    made = Api(store.resources, store.cursors, gate=Gate(), replays=Recorder(), health=health)
    await made.start()
    yield made
    await made.close()


def noted(health: Described) -> list[tuple[str, str, str]]:
    return [(each.what, each.type, each.name) for each in reversed(health.changes.latest())]


async def test_each_kind_of_change_is_noted_once(api: Api, health: Described) -> None:
    one = f"{TRIGGERS}/t"
    made = (await call(api, "POST", TRIGGERS, trigger())).json
    patch = {"metadata": {"labels": {"a": "b"}}}
    assert (await call(api, "PATCH", one, patch, headers=MERGE)).code == 200
    made = (await call(api, "GET", one)).json
    made["metadata"]["labels"] = {"a": "c"}
    assert (await call(api, "PUT", one, made)).code == 200
    for action in ("pause", "resume", "replay", "redrive", "match"):
        body = {"start": "earliest"} if action == "replay" else {}
        assert (await call(api, "POST", f"{one}/{action}", body)).code == 200
    assert (await call(api, "DELETE", one)).code == 200
    assert noted(health) == [
        (what, "Trigger", "default/t")
        for what in ("CREATE", "PATCH", "UPDATE", "PAUSE", "RESUME", "REPLAY", "REDRIVE", "DELETE")
    ]
    assert {each.user for each in health.changes.latest()} == {None}


async def test_what_changes_nothing_is_not_noted(api: Api, health: Described) -> None:
    broker = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Broker",
        "metadata": {"name": "b", "namespace": "default"},
    }
    query, dry = {"fieldManager": "m"}, {"dryRun": "All"}
    for code in (201, 200, 200):
        answer = await call(api, "PATCH", f"{BROKERS}/b", broker, query=query, headers=APPLY)
        assert answer.code == code
    assert (await call(api, "DELETE", f"{BROKERS}/b", query=dry)).code == 200
    assert (await call(api, "DELETE", BROKERS, query=dry)).code == 200
    assert (await call(api, "POST", TRIGGERS, trigger(), query=dry)).code == 201
    assert (await call(api, "DELETE", f"{BROKERS}/none")).code == 404
    await call(api, "GET", f"{BROKERS}/b")
    assert noted(health) == [("APPLY", "Broker", "default/b")]


async def test_a_collection_is_one_change(api: Api, health: Described) -> None:
    """Each object would push a change of another user out of the list."""
    for name in ("t1", "t2", "t3"):
        await call(api, "POST", TRIGGERS, trigger(name))
    assert (await call(api, "DELETE", TRIGGERS)).code == 200
    assert (await call(api, "DELETE", TRIGGERS)).code == 200
    latest = health.changes.latest()[0]
    assert (latest.what, latest.name, latest.details) == ("DELETECOLLECTION", "default/*", {"objects": "3"})
    assert len(health.changes.latest()) == 4


async def test_the_path_of_the_gateway_is_only_there_in_a_gateway(api: Api, store: Store) -> None:
    path = "/apis/gateway.knative.dev/v1/gateway"
    assert (await call(api, "GET", path)).json == {"kind": "Gateway"}
    assert (await call(api, "POST", path, {})).code == 405
    assert path in (await call(api, "GET", "/")).json["paths"]
    assert path in (await call(api, "GET", "/openapi.json")).json["paths"]
    assert (await call(Api(store.resources, store.cursors), "GET", path)).code == 404


async def test_a_token_that_is_revoked_during_a_request_is_noted_and_the_change_is_answered(
    store: Store, health: Described
) -> None:
    """The object was created, and the client was told that its token is not valid."""
    gate = Gate([Known({"a-token": Identity("ann")})])
    api = Api(store.resources, store.cursors, gate=gate, health=health)
    await api.start()
    write = store.resources.write

    async def revoking(*args: Any, **more: Any) -> Any:
        gate.use([Known({})], [])
        return await write(*args, **more)

    with patch.object(store.resources, "write", revoking):
        made = await call(api, "POST", TRIGGERS, trigger(), headers={"authorization": "Bearer a-token"})
    assert made.code == 201
    assert [(each.user, each.what) for each in health.changes.latest()] == [("ann", "CREATE")]
    assert (await call(api, "GET", TRIGGERS, headers={"authorization": "Bearer a-token"})).code == 401
    await api.close()
