"""Discovery and schemas: the first requests of clients."""

from typing import Any

import pytest

from knative_gateway.api import Api
from knative_gateway.api.describing import openapi
from knative_gateway.resources.kinds import Registry
from tests.knative_gateway.api.client import Answer, call, definition

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


async def document(api: Api, path: str, **headers: str) -> Any:
    found = await call(api, "GET", path, headers=headers)
    assert found.code == 200, path
    return found.json


async def test_every_kind_is_discovered_under_its_group_and_version(api: Api) -> None:
    assert (await document(api, "/api", host="gateway:8080"))["serverAddressByClientCIDRs"][0][
        "serverAddress"
    ] == "gateway:8080"
    names = [each["name"] for each in (await document(api, "/api/v1"))["resources"]]
    assert names == ["namespaces", "namespaces/status", "configmaps", "services", "services/status", "events"]
    found = {}
    for group in (await document(api, "/apis"))["groups"]:
        assert (await document(api, f"/apis/{group['name']}"))["versions"] == group["versions"]
        listed = await document(api, f"/apis/{group['preferredVersion']['groupVersion']}")
        found[group["name"]] = [each["name"] for each in listed["resources"] if "/" not in each["name"]]
    assert found == {
        "eventing.knative.dev": ["brokers", "triggers"],
        "messaging.knative.dev": ["channels", "inmemorychannels", "subscriptions"],
        "apiextensions.k8s.io": ["customresourcedefinitions"],
    }


async def test_a_resource_says_what_it_is_called_and_what_it_can(api: Api) -> None:
    resources = (await document(api, "/apis/messaging.knative.dev/v1"))["resources"]
    channel, status = resources[0], resources[1]
    assert (channel["shortNames"], channel["categories"], channel["namespaced"]) == (
        ["ch"],
        ["all", "knative", "messaging", "channel"],
        True,
    )
    assert set(channel["verbs"]) >= {"get", "list", "watch", "create", "update", "patch", "delete"}
    assert (status["name"], status["verbs"]) == ("channels/status", ["get", "patch", "update"])


async def test_the_version_is_a_kubernetes_release(api: Api) -> None:
    version = await document(api, "/version")
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")
    assert "/openapi/v3" in (await document(api, "/"))["paths"]


async def test_older_kubectl_gets_the_second_openapi_in_a_form_it_takes(api: Api) -> None:
    answer = await call(api, "GET", "/openapi/v2", headers={"accept": PROTOBUF})
    assert answer.code == 200
    assert b"dev.knative.eventing.v1.Trigger" in answer.body
    assert answer.header("content-type") == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert (await document(api, "/openapi/v2"))["swagger"] == "2.0"


async def test_the_third_openapi_has_a_document_for_each_version(api: Api) -> None:
    paths = (await document(api, "/openapi/v3"))["paths"]
    assert set(paths) == {
        "api/v1",
        "apis/eventing.knative.dev/v1",
        "apis/messaging.knative.dev/v1",
        "apis/apiextensions.k8s.io/v1",
    }
    for name, place in paths.items():
        assert place["serverRelativeURL"].startswith(f"/openapi/v3/{name}?hash=")
        check(await document(api, f"/openapi/v3/{name}"))
    triggers = await document(api, "/openapi/v3/apis/eventing.knative.dev/v1")
    patch = triggers["paths"]["/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "eventing.knative.dev",
        "version": "v1",
        "kind": "Trigger",
    }
    assert {"fieldValidation", "dryRun", "force"} <= {each["name"] for each in patch["parameters"]}
    assert (
        "filters"
        in triggers["components"]["schemas"]["dev.knative.eventing.v1.Trigger"]["properties"]["spec"][
            "properties"
        ]
    )


async def test_the_whole_is_one_document_events_included(api: Api) -> None:
    whole = await document(api, "/openapi.json")
    check(whole)
    assert {
        "/broker/{namespace}/{name}",
        "/channel/{namespace}/{name}",
        "/healthz",
        "/readyz",
        "/metrics",
    } <= set(whole["paths"])
    for action in ("deliveries", "pause", "resume", "replay", "redrive"):
        assert (
            f"/apis/messaging.knative.dev/v1/namespaces/{{namespace}}/subscriptions/{{name}}/{action}"
            in whole["paths"]
        )


def check(openapi: Any) -> None:
    """References lead somewhere; every operation has an answer; every name in a path is a parameter."""
    assert openapi["openapi"].startswith("3.")

    def references(value: Any) -> Any:
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    schemas = openapi["components"]["schemas"]
    assert all(
        reference.removeprefix("#/components/schemas/") in schemas for reference in references(openapi)
    )
    for path, item in openapi["paths"].items():
        named = {each["name"] for each in item.get("parameters", []) if each["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path
        assert all(operation["responses"] for verb, operation in item.items() if verb != "parameters"), path


async def test_schemas_change_their_address_when_kinds_come(api: Api) -> None:
    before = (await document(api, "/openapi/v3"))["paths"]
    await call(api, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    after = (await document(api, "/openapi/v3"))["paths"]
    assert set(after) - set(before) == {"apis/serving.knative.dev/v1", "apis/serving.knative.dev/v1beta1"}
    assert after["api/v1"] != before["api/v1"]


async def test_unknown_kinds_are_not_discovered(api: Api) -> None:
    for path in (
        "/api/v2",
        "/apis/nothing",
        "/apis/nothing/v1",
        "/openapi/v4",
        "/openapi/v3/api/v2",
        "/openapi/v3/apis/nothing/v1",
    ):
        answer: Answer = await call(api, "GET", path)
        assert (answer.code, answer.json["kind"]) == (404, "Status"), path


async def test_documents_with_schemas_are_made_once_until_the_kinds_change(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one takes several milliseconds, and every user may ask for it."""
    made: list[object] = []
    whole = openapi.whole

    def counted(registry: Registry) -> dict[str, object]:
        made.append(registry)
        return whole(registry)

    monkeypatch.setattr(openapi, "whole", counted)
    first = await document(api, "/openapi.json")
    for path in ("/openapi.json", "/openapi.json/", "//openapi.json"):
        assert await document(api, path) == first
    assert len(made) == 1
    kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await call(api, "POST", kinds, definition())).code == 201
    assert "dev.knative.serving.v1.Service" in (await document(api, "/openapi.json"))["components"]["schemas"]
    assert len(made) == 2
    assert (await call(api, "GET", "/openapi/v2")).header("content-type") == "application/json"
    for path in ("/openapi/v9", "/openapi/v3/apis/none/v1"):
        assert (await call(api, "GET", path)).code == 404
        assert (await call(api, "GET", path)).code == 404
