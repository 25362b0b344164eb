"""Verbs on objects and collections, as the Kubernetes API has them."""

import asyncio
from typing import Any

import pytest

from knative_gateway.api import Api, ApiSettings, Namespaces, handlers
from knative_gateway.api.handlers import BODY_BYTES_MAX
from knative_gateway.api.reading import YAML_BYTES_MAX
from knative_gateway.store import Store
from tests.knative_gateway.api.client import (
    APPLY,
    BROKERS,
    JSON_PATCH,
    MERGE,
    TABLE,
    TRIGGERS,
    Answer,
    call,
    config_map,
    trigger,
)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def reason(answer: Answer) -> tuple[int, str]:
    body = answer.json
    assert (body["kind"], body["status"], body["code"]) == ("Status", "Failure", answer.code)
    return answer.code, body["reason"]


async def test_an_object_is_created_read_and_deleted(api: Api) -> None:
    made = await call(api, "POST", TRIGGERS, trigger())
    assert made.code == 201
    metadata = made.json["metadata"]
    assert (metadata["namespace"], metadata["generation"], metadata["creationTimestamp"]) == (
        "default",
        1,
        "2023-11-14T22:13:20Z",
    )
    assert metadata["managedFields"][0]["manager"] == "tests"
    assert (await call(api, "GET", f"{TRIGGERS}/t")).json == made.json
    gone = await call(api, "DELETE", f"{TRIGGERS}/t", {"propagationPolicy": "Background"})
    details = {"name": "t", "group": "eventing.knative.dev", "kind": "triggers", "uid": metadata["uid"]}
    assert (gone.json["status"], gone.json["details"]) == ("Success", details)
    missing = await call(api, "GET", f"{TRIGGERS}/t")
    assert reason(missing) == (404, "NotFound")
    assert missing.json["message"] == 'triggers.eventing.knative.dev "t" not found'


async def test_a_name_is_taken_once(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger())
    assert reason(await call(api, "POST", TRIGGERS, trigger())) == (409, "AlreadyExists")
    assert reason(await call(api, "POST", TRIGGERS, trigger(), query={"dryRun": "All"})) == (
        409,
        "AlreadyExists",
    )


async def test_a_name_may_be_generated(api: Api) -> None:
    body = trigger() | {"metadata": {"generateName": "t-"}}
    names = {(await call(api, "POST", TRIGGERS, body)).json["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("t-") and len(name) == 7 for name in names)


async def test_errors_are_reported_with_their_fields(api: Api) -> None:
    answer = await call(api, "POST", TRIGGERS, trigger(broker="", delivery={"retry": -1}))
    assert reason(answer) == (422, "Invalid")
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == ["spec.delivery.retry"]
    answer = await call(api, "POST", TRIGGERS, trigger(broker=""))
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == ["spec.broker"]


async def test_a_replacement_must_be_of_the_version_it_names(api: Api) -> None:
    made = (await call(api, "POST", TRIGGERS, trigger())).json
    changed = made | {"spec": made["spec"] | {"delivery": {"retry": 3}}}
    second = await call(api, "PUT", f"{TRIGGERS}/t", changed)
    assert (second.code, second.json["metadata"]["generation"]) == (200, 2)
    assert reason(await call(api, "PUT", f"{TRIGGERS}/t", changed)) == (409, "Conflict")
    without = changed | {"metadata": {"name": "t"}}
    assert (await call(api, "PUT", f"{TRIGGERS}/t", without)).code == 200
    assert reason(await call(api, "PUT", f"{TRIGGERS}/other", trigger("other"))) == (404, "NotFound")


async def test_a_write_that_changes_nothing_takes_no_version(api: Api) -> None:
    made = (await call(api, "POST", TRIGGERS, trigger())).json
    again = await call(api, "PATCH", f"{TRIGGERS}/t", {"spec": {"broker": "default"}}, headers=MERGE)
    assert again.json == made


async def test_patches_of_each_kind_are_taken(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger())
    merged = await call(api, "PATCH", f"{TRIGGERS}/t", {"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    assert merged.json["metadata"]["labels"] == {"a": "b", "eventing.knative.dev/broker": "default"}
    operations = [
        {"op": "test", "path": "/metadata/labels/a", "value": "b"},
        {"op": "add", "path": "/spec/delivery", "value": {"retry": 1}},
    ]
    patched = await call(api, "PATCH", f"{TRIGGERS}/t", operations, headers=JSON_PATCH)
    assert patched.json["spec"]["delivery"] == {"retry": 1}
    strategic = {"content-type": "application/strategic-merge-patch+json"}
    assert reason(await call(api, "PATCH", f"{TRIGGERS}/t", {}, headers=strategic)) == (
        415,
        "UnsupportedMediaType",
    )
    await call(api, "POST", CONFIG_MAPS, config_map(a="b"))
    assert (await call(api, "PATCH", f"{CONFIG_MAPS}/c", {"data": {"x": "y"}}, headers=strategic)).json[
        "data"
    ] == {"a": "b", "x": "y"}


async def test_server_side_apply_makes_changes_and_conflicts(api: Api) -> None:
    yaml = b"apiVersion: v1\nkind: ConfigMap\ndata:\n  since: 2026-01-01\n  yes: 'on'\n"
    one: dict[str, Any] = {"query": {"fieldManager": "one"}, "headers": APPLY}
    answer = await call(api, "PATCH", f"{CONFIG_MAPS}/c", yaml, **one)
    assert (answer.code, answer.json["data"]) == (201, {"since": "2026-01-01", "yes": "on"}), (
        "a date is a text, a key too"
    )
    assert (await call(api, "PATCH", f"{CONFIG_MAPS}/c", yaml, **one)).code == 200
    theirs = config_map(since="now")
    refused = await call(
        api, "PATCH", f"{CONFIG_MAPS}/c", theirs, query={"fieldManager": "two"}, headers=APPLY
    )
    assert reason(refused) == (409, "Conflict")
    assert refused.json["details"]["causes"][0]["field"] == ".data.since"
    forced = await call(
        api,
        "PATCH",
        f"{CONFIG_MAPS}/c",
        theirs,
        query={"fieldManager": "two", "force": "true"},
        headers=APPLY,
    )
    assert forced.json["data"]["since"] == "now"
    assert reason(await call(api, "PATCH", f"{CONFIG_MAPS}/c", theirs, headers=APPLY)) == (422, "Invalid")


async def test_status_is_written_through_its_subresource_only(api: Api) -> None:
    made = await call(
        api,
        "POST",
        BROKERS,
        {
            "apiVersion": "eventing.knative.dev/v1",
            "kind": "Broker",
            "metadata": {"name": "b"},
            "status": {"x": 1},
        },
    )
    assert "status" not in made.json
    status = {"status": {"address": {"url": "http://x/"}}, "spec": {"delivery": {"retry": 99}}}
    written = await call(api, "PATCH", f"{BROKERS}/b/status", status, headers=MERGE)
    assert written.json["status"] == {"address": {"url": "http://x/"}}
    assert written.json["spec"] == made.json["spec"]
    assert written.json["metadata"]["generation"] == 1
    put = await call(api, "PUT", f"{BROKERS}/b/status", written.json | {"status": {}})
    assert put.json["status"] == {}
    assert (await call(api, "GET", f"{BROKERS}/b/status")).json == put.json
    assert reason(await call(api, "DELETE", f"{BROKERS}/b/status")) == (405, "MethodNotAllowed")
    assert reason(await call(api, "GET", f"{CONFIG_MAPS}/c/status")) == (404, "NotFound")


async def test_a_dry_run_stores_nothing(api: Api) -> None:
    dry = {"dryRun": "All"}
    elsewhere = TRIGGERS.replace("default", "elsewhere")
    assert (await call(api, "POST", elsewhere, trigger(), query=dry)).code == 201
    assert (await call(api, "GET", "/api/v1/namespaces/elsewhere")).code == 404
    assert (
        await call(api, "PATCH", f"{TRIGGERS}/t", trigger(), query=dry | {"fieldManager": "x"}, headers=APPLY)
    ).code == 201
    await call(api, "POST", TRIGGERS, trigger())
    changed = await call(
        api, "PATCH", f"{TRIGGERS}/t", {"spec": {"delivery": {"retry": 1}}}, query=dry, headers=MERGE
    )
    assert changed.json["spec"]["delivery"] == {"retry": 1}
    assert (await call(api, "DELETE", f"{TRIGGERS}/t", {"dryRun": ["All"]})).json["status"] == "Success"
    assert "delivery" not in (await call(api, "GET", f"{TRIGGERS}/t")).json["spec"]
    assert reason(await call(api, "POST", TRIGGERS, trigger(), query={"dryRun": "Some"})) == (
        400,
        "BadRequest",
    )


async def test_unknown_fields_are_refused_reported_or_ignored(api: Api) -> None:
    body = trigger(brokr='x"ü')
    strict = await call(api, "POST", TRIGGERS, body, query={"fieldValidation": "Strict"})
    assert reason(strict) == (400, "BadRequest")
    assert 'unknown field "spec.brokr"' in strict.json["message"]
    warned = await call(api, "POST", TRIGGERS, body, query={"fieldValidation": "Warn"})
    assert (warned.code, warned.warnings) == (201, ['299 - "unknown field \\"spec.brokr\\""'])
    assert "brokr" not in warned.json["spec"]
    assert (
        await call(
            api, "POST", TRIGGERS, body | {"metadata": {"name": "u"}}, query={"fieldValidation": "Ignore"}
        )
    ).warnings == []
    assert reason(await call(api, "POST", TRIGGERS, body, query={"fieldValidation": "Perhaps"})) == (
        400,
        "BadRequest",
    )


async def test_a_delete_may_name_what_it_means(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger())
    assert reason(await call(api, "DELETE", f"{TRIGGERS}/t", {"preconditions": {"uid": "another"}})) == (
        409,
        "Conflict",
    )
    assert (await call(api, "DELETE", f"{TRIGGERS}/t")).code == 200
    assert reason(await call(api, "DELETE", f"{TRIGGERS}/t")) == (404, "NotFound")


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, label in [("a", "x"), ("b", "x"), ("c", "y")]:
        await call(
            api, "POST", TRIGGERS, trigger(name) | {"metadata": {"name": name, "labels": {"l": label}}}
        )
    answer = await call(api, "DELETE", TRIGGERS, query={"labelSelector": "l=x"})
    assert (answer.json["kind"], [each["metadata"]["name"] for each in answer.json["items"]]) == (
        "TriggerList",
        ["a", "b"],
    )
    assert [each["metadata"]["name"] for each in (await call(api, "GET", TRIGGERS)).json["items"]] == ["c"]


async def test_lists_come_in_pages(api: Api) -> None:
    for number in range(5):
        await call(api, "POST", TRIGGERS, trigger(f"t{number}"))
    first = (await call(api, "GET", TRIGGERS, query={"limit": "2"})).json
    assert first["metadata"]["remainingItemCount"] == 3
    await call(api, "DELETE", f"{TRIGGERS}/t1")
    names = [each["metadata"]["name"] for each in first["items"]]
    token = first["metadata"]["continue"]
    while token:
        page = (await call(api, "GET", TRIGGERS, query={"limit": "2", "continue": token})).json
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"], (
            "a watch after it misses nothing"
        )
        names += [each["metadata"]["name"] for each in page["items"]]
        token = page["metadata"].get("continue")
    assert names == ["t0", "t1", "t2", "t3", "t4"]
    every = (await call(api, "GET", TRIGGERS, query={"limit": "9" * 18})).json
    assert ([each["metadata"]["name"] for each in every["items"]], every["metadata"].get("continue")) == (
        ["t0", "t2", "t3", "t4"],
        None,
    )
    for query in (
        {"limit": "x"},
        {"continue": "x"},
        {"continue": "W10="},
        {"continue": "WzEsIDIsIDNd"},
        {"limit": "1", "continue": "WzEsICJcdWQ4MDAiLCAiYSJd"},
        {"limit": "1", "continue": "WzEsICJhIiwgIlx1MDAwMCJd"},
        {"labelSelector": "=="},
        {"limit": "-1"},
    ):
        assert reason(await call(api, "GET", TRIGGERS, query=query)) == (400, "BadRequest")


async def test_kubectl_gets_a_table_of_a_list_and_of_an_object(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger())
    for path in (TRIGGERS, f"{TRIGGERS}/t"):
        table = (await call(api, "GET", path, headers=TABLE)).json
        assert (table["kind"], [column["name"] for column in table["columnDefinitions"]][:2]) == (
            "Table",
            ["Name", "Broker"],
        )
        assert table["rows"][0]["cells"][:2] == ["t", "default"]
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        assert table["metadata"]["resourceVersion"] == "3"
    whole = (await call(api, "GET", TRIGGERS, headers=TABLE, query={"includeObject": "Object"})).json
    assert whole["rows"][0]["object"]["spec"]["broker"] == "default"


async def test_other_forms_are_metadata_alone_or_none(api: Api) -> None:
    await call(api, "POST", TRIGGERS, trigger())
    partial = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    listed = (await call(api, "GET", TRIGGERS, headers=partial)).json
    assert (listed["kind"], sorted(listed["items"][0])) == (
        "PartialObjectMetadataList",
        ["apiVersion", "kind", "metadata"],
    )
    assert reason(await call(api, "GET", TRIGGERS, headers={"accept": "text/html"})) == (406, "NotAcceptable")
    assert (
        await call(
            api, "GET", TRIGGERS, headers={"accept": "application/vnd.kubernetes.protobuf,application/json"}
        )
    ).code == 200


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/nowhere", (404, "NotFound")),
        ("GET", "/apis/nowhere/v1/things", (404, "NotFound")),
        ("GET", "/apis/eventing.knative.dev/v1/nothings", (404, "NotFound")),
        ("GET", "/apis/eventing.knative.dev/v1/triggers/t", (404, "NotFound")),
        ("GET", "/api/v1/namespaces/default/namespaces", (404, "NotFound")),
        ("GET", f"{TRIGGERS}/t/scale", (404, "NotFound")),
        ("GET", f"{TRIGGERS}/t/a/b/c/d", (404, "NotFound")),
        ("GET", f"{TRIGGERS}//t", (404, "NotFound")),
        ("POST", "/apis/eventing.knative.dev/v1/triggers", (405, "MethodNotAllowed")),
        ("PUT", TRIGGERS, (405, "MethodNotAllowed")),
        ("POST", f"{TRIGGERS}/t", (405, "MethodNotAllowed")),
        ("POST", "/version", (405, "MethodNotAllowed")),
        ("POST", f"{TRIGGERS}/t/deliveries", (405, "MethodNotAllowed")),
        ("GET", f"{TRIGGERS}/t/replay", (405, "MethodNotAllowed")),
    ],
)
async def test_unknown_paths_and_verbs_are_answered_with_a_status(
    api: Api, method: str, path: str, expected: tuple[int, str]
) -> None:
    assert reason(await call(api, method, path)) == expected


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"NaN", b'{"a":' * 100_000, b"\xff", b"{}", b""])
async def test_a_body_that_is_not_an_object_is_refused(api: Api, body: bytes) -> None:
    assert reason(await call(api, "POST", TRIGGERS, body)) == (400, "BadRequest")


async def test_a_body_has_a_limit_and_a_type(api: Api) -> None:
    assert reason(await call(api, "POST", TRIGGERS, b" " * (BODY_BYTES_MAX + 1))) == (
        413,
        "RequestEntityTooLarge",
    )
    other = {"content-type": "text/plain"}
    assert reason(await call(api, "POST", TRIGGERS, b"x", headers=other)) == (415, "UnsupportedMediaType")
    two = {"content-type": "application/yaml"}
    assert (
        await call(
            api,
            "POST",
            CONFIG_MAPS,
            b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j"}}',
            headers=two,
        )
    ).code == 201
    assert reason(await call(api, "POST", CONFIG_MAPS, b"a: " + b"b" * YAML_BYTES_MAX, headers=two)) == (
        413,
        "RequestEntityTooLarge",
    )
    assert reason(await call(api, "POST", TRIGGERS, b"a: b\n---\nc: d\n", headers=two)) == (400, "BadRequest")


async def test_a_manager_s_name_has_an_end(api: Api) -> None:
    assert reason(await call(api, "POST", TRIGGERS, trigger(), query={"fieldManager": "x" * 200})) == (
        400,
        "BadRequest",
    )


async def test_a_namespace_is_made_when_something_comes_into_it(api: Api) -> None:
    elsewhere = TRIGGERS.replace("default", "elsewhere")
    assert (await call(api, "POST", elsewhere, trigger())).code == 201
    assert (await call(api, "GET", "/api/v1/namespaces/elsewhere")).json["status"]["phase"] == "Active"
    assert reason(await call(api, "POST", TRIGGERS.replace("default", "NO"), trigger())) == (422, "Invalid")


async def test_a_namespace_may_be_required(store: Store) -> None:
    api = Api(store.resources, store.cursors, settings=ApiSettings(namespaces=Namespaces.REQUIRED))
    await api.start()
    elsewhere = TRIGGERS.replace("default", "elsewhere")
    answer = await call(api, "POST", elsewhere, trigger())
    assert (reason(answer), answer.json["message"]) == ((404, "NotFound"), 'namespaces "elsewhere" not found')
    made = await call(
        api,
        "POST",
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}},
    )
    assert made.code == 201
    assert (await call(api, "POST", elsewhere, trigger())).code == 201
    await api.close()


async def test_a_namespace_goes_with_all_that_is_in_it(api: Api) -> None:
    elsewhere = TRIGGERS.replace("default", "elsewhere")
    for path, body in (
        (elsewhere, trigger()),
        (CONFIG_MAPS.replace("default", "elsewhere"), config_map()),
        (TRIGGERS, trigger("stays")),
    ):
        assert (await call(api, "POST", path, body)).code == 201
    assert (await call(api, "DELETE", "/api/v1/namespaces/elsewhere")).code == 200
    everything = (await call(api, "GET", "/apis/eventing.knative.dev/v1/triggers")).json["items"]
    assert [each["metadata"]["name"] for each in everything] == ["stays"]
    assert reason(await call(api, "GET", "/api/v1/namespaces/elsewhere")) == (404, "NotFound")
    assert reason(await call(api, "DELETE", "/api/v1/namespaces/default")) == (403, "Forbidden")


async def test_a_path_that_is_not_a_name_names_nothing(api: Api) -> None:
    for name in ("\x00", "a\nb", "\ud800", "a" * 3_000):
        assert (await call(api, "GET", f"{TRIGGERS}/{name}")).code == 404


async def test_an_object_has_a_size(api: Api) -> None:
    """The limit holds for one large body and for many patches."""
    large = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"a": "x" * 1_000_000},
    }
    assert (await call(api, "POST", CONFIG_MAPS, large)).code == 201
    grown = await call(api, "PATCH", f"{CONFIG_MAPS}/a", {"data": {"b": "x" * 600_000}}, headers=MERGE)
    assert (grown.code, grown.json["reason"]) == (413, "RequestEntityTooLarge")
    copies = [{"op": "add", "path": "/data/c", "value": {}}] + [
        {"op": "copy", "from": "/data", "path": "/data/c/d"}
    ] * 9
    assert (await call(api, "PATCH", f"{CONFIG_MAPS}/a", copies, headers=JSON_PATCH)).code == 413


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "LIST"])
async def test_few_requests_hold_objects_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A thousand that wait for their turns would hold a thousand large objects."""
    monkeypatch.setattr(handlers, "REQUESTS_MAX", 4)
    monkeypatch.setattr(handlers, "LISTS_MAX", 4)
    api = Api(store.resources, store.cursors)
    await api.start()
    await call(api, "POST", TRIGGERS, trigger("a"))
    reading, most, name = 0, 0, "list" if method == "LIST" else "find"
    read = getattr(api.objects, name)

    async def noted(*values: Any) -> Any:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        found = await read(*values)
        reading -= 1
        return found

    monkeypatch.setattr(api.objects, name, noted)
    path, verb = (TRIGGERS, "GET") if method == "LIST" else (f"{TRIGGERS}/a", method)
    body: object = {} if method == "PATCH" else None
    answers = await asyncio.gather(*(call(api, verb, path, body, headers=MERGE) for _ in range(20)))
    assert {each.code for each in answers} <= {200, 404}
    assert most == 2, "a user has half of the places"
    await api.close()
