"""The official Python client against the API, without changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.knative_gateway.api.client import config_map, definition, trigger
from tests.knative_gateway.api.served import served

kubernetes: Any = pytest.importorskip("kubernetes", reason="needs the package kubernetes")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
TRIGGERS = ("eventing.knative.dev", "v1", "default", "triggers")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with served(tmp_path_factory.mktemp("state")) as url:
        configuration = kubernetes.client.Configuration()
        configuration.host = url
        with kubernetes.client.ApiClient(configuration) as made:
            yield made


@pytest.fixture
def objects(client: Any) -> Any:
    return kubernetes.client.CustomObjectsApi(client)


def test_custom_objects_are_made_read_changed_and_deleted(objects: Any) -> None:
    objects.create_namespaced_custom_object(*TRIGGERS, trigger("py"))
    merged = objects.patch_namespaced_custom_object(*TRIGGERS, "py", {"spec": {"delivery": {"retry": 1}}})
    assert merged["spec"]["delivery"] == {"retry": 1}
    operations = [{"op": "replace", "path": "/spec/delivery/retry", "value": 2}]
    patched = objects.patch_namespaced_custom_object(
        *TRIGGERS, "py", operations, _content_type="application/json-patch+json"
    )
    assert patched["spec"]["delivery"] == {"retry": 2}
    status = objects.patch_namespaced_custom_object_status(
        *TRIGGERS, "py", {"status": {"subscriberUri": "http://x/"}}
    )
    assert objects.get_namespaced_custom_object(*TRIGGERS, "py")["status"] == status["status"]
    with pytest.raises(kubernetes.client.ApiException) as caught:
        objects.replace_namespaced_custom_object(*TRIGGERS, "py", merged)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert [
        each["metadata"]["name"]
        for each in objects.list_cluster_custom_object("eventing.knative.dev", "v1", "triggers")["items"]
    ] == ["py"]
    assert objects.delete_namespaced_custom_object(*TRIGGERS, "py")["status"] == "Success"
    assert objects.delete_collection_namespaced_custom_object(*TRIGGERS)["items"] == []


def test_a_watch_reports_changes(objects: Any) -> None:
    version = objects.list_namespaced_custom_object(*TRIGGERS)["metadata"]["resourceVersion"]
    objects.create_namespaced_custom_object(*TRIGGERS, trigger("seen"))
    objects.delete_namespaced_custom_object(*TRIGGERS, "seen")
    watch = kubernetes.watch.Watch()
    told = []
    for event in watch.stream(
        objects.list_namespaced_custom_object, *TRIGGERS, resource_version=version, timeout_seconds=20
    ):
        told.append((event["type"], event["object"]["metadata"]["name"]))
        if event["type"] == "DELETED":
            watch.stop()
    assert told == [("ADDED", "seen"), ("DELETED", "seen")]
    with pytest.raises(kubernetes.client.ApiException) as caught:
        next(
            kubernetes.watch.Watch().stream(
                objects.list_namespaced_custom_object, *TRIGGERS, resource_version="100000"
            )
        )
    assert caught.value.status == 410


def test_core_objects_have_their_types(client: Any) -> None:
    core = kubernetes.client.CoreV1Api(client)
    core.create_namespaced_config_map("default", config_map("typed", a="b"))
    assert core.read_namespaced_config_map("typed", "default").data == {"a": "b"}
    assert core.patch_namespaced_config_map("typed", "default", {"data": {"c": "d"}}).data == {
        "a": "b",
        "c": "d",
    }
    assert "default" in [each.metadata.name for each in core.list_namespace().items]
    core.delete_namespaced_config_map("typed", "default")
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    assert (
        core.create_namespaced_service("default", service | {"apiVersion": "v1", "kind": "Service"}).spec.type
        == "ClusterIP"
    )
    assert core.list_namespaced_event("default").items == []


def test_the_dynamic_client_discovers_and_applies(client: Any, tmp_path: Path) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(client, cache_file=str(tmp_path / "cache"))
    brokers = dynamic.resources.get(api_version="eventing.knative.dev/v1", kind="Broker")
    body = {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Broker",
        "metadata": {"name": "b"},
        "spec": {"delivery": {"retry": 1}},
    }
    applied = dynamic.server_side_apply(
        brokers, body=body, name="b", namespace="default", field_manager="tests"
    )
    assert applied.spec.delivery.retry == 1
    assert [each.metadata.name for each in brokers.get(namespace="default").items] == ["b"]
    dynamic.delete(brokers, name="b", namespace="default")


def test_definitions_are_theirs_and_ours(client: Any) -> None:
    extensions = kubernetes.client.ApiextensionsV1Api(client)
    extensions.create_custom_resource_definition(definition("example.com", "Sink", "sinks"))
    found = {each.metadata.name: each for each in extensions.list_custom_resource_definition().items}
    assert {"sinks.example.com", "triggers.eventing.knative.dev"} <= set(found)
    assert found["sinks.example.com"].status.accepted_names.kind == "Sink"
    extensions.delete_custom_resource_definition("sinks.example.com")
