"""kubectl with the API, unchanged: 1.20 of Debian's package kubernetes-client, or the installed one (KUBECTL
names another).
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knative_gateway.cli.commands.kubeconfig import kubeconfig
from knative_gateway.resources.documents.manifests import written_yaml
from tests.knative_gateway.api.client import config_map, definition, trigger
from tests.knative_gateway.api.served import served

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(KUBECTL is None, reason="needs kubectl: apt-get install kubernetes-client"),
]
TRIGGER = "triggers.eventing.knative.dev"
READY = {
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "subscriberUri": "http://127.0.0.1/"}
}

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("state")) as made:
        yield made


@pytest.fixture
def environment(url: str, cache: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "kubeconfig").write_text(kubeconfig(url, namespace="default"))
    return {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(cache)}


@pytest.fixture
def kubectl(environment: dict[str, str]) -> Run:
    def run(*words: str, given: object = None, status: int = 0) -> str:
        """Run kubectl and return its output. `given`: a document for its stdin."""
        done = subprocess.run(
            [str(KUBECTL), *words],
            input="" if given is None else written_yaml(given),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def named(kubectl: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    """A Trigger of the test's own."""
    name = request.node.name.replace("_", "-").removeprefix("test-")[:50].rstrip("-")
    assert (
        kubectl("apply", "-f", "-", given=trigger(name)) == f"trigger.eventing.knative.dev/{name} created\n"
    )
    yield name
    kubectl("delete", "trigger", name, "--ignore-not-found")


def write_status(kubectl: Run, url: str, name: str) -> None:
    """Write a status, as the controller does. Old releases of kubectl have no --subresource."""
    import urllib.request  # noqa: PLC0415  # only here

    path = f"{url}/apis/eventing.knative.dev/v1/namespaces/default/triggers/{name}/status"
    request = urllib.request.Request(
        path, json.dumps(READY).encode(), {"Content-Type": "application/merge-patch+json"}, method="PATCH"
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def test_apply_makes_leaves_alone_and_changes(kubectl: Run, named: str) -> None:
    assert kubectl("apply", "-f", "-", given=trigger(named)).endswith("unchanged\n")
    assert kubectl("apply", "-f", "-", given=trigger(named, delivery={"retry": 2})).endswith("configured\n")
    assert json.loads(kubectl("get", "trigger", named, "-o", "json"))["spec"]["delivery"] == {"retry": 2}
    assert kubectl("apply", "-f", "-", given=trigger(named)).endswith("configured\n")
    assert "delivery" not in json.loads(kubectl("get", "trigger", named, "-o", "json"))["spec"], (
        "what is applied no more goes"
    )


def test_get_shows_the_columns_of_the_kind(kubectl: Run, named: str, url: str) -> None:
    write_status(kubectl, url, named)
    head, row = kubectl("get", TRIGGER, named).splitlines()
    assert head.split() == ["NAME", "BROKER", "SUBSCRIBER_URI", "AGE", "READY", "REASON"]
    assert [row.split()[0], *row.split()[1:3], row.split()[4]] == [
        named,
        "default",
        "http://127.0.0.1/",
        "True",
    ]
    assert f"trigger.eventing.knative.dev/{named}" in kubectl("get", "all")
    assert (
        kubectl("get", "triggers", "-A", "-o", "name", "--field-selector", f"metadata.name={named}")
        == f"trigger.eventing.knative.dev/{named}\n"
    )


def test_get_follows_with_watch(kubectl: Run, named: str, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [str(KUBECTL), "get", "triggers", named, "-w"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().split()[0] for _ in range(2)] == ["NAME", named]
        kubectl("label", "trigger", named, "seen=yes")
        assert process.stdout.readline().split()[0] == named
        process.terminate()


def test_describe_shows_conditions_and_events(kubectl: Run, named: str, url: str) -> None:
    write_status(kubectl, url, named)
    uid = json.loads(kubectl("get", "trigger", named, "-o", "json"))["metadata"]["uid"]
    involved = {
        "kind": "Trigger",
        "namespace": "default",
        "name": named,
        "uid": uid,
        "apiVersion": "eventing.knative.dev/v1",
    }
    event = {
        "reason": "TriggerReady",
        "message": "it is well",
        "type": "Normal",
        "count": 1,
        "involvedObject": involved,
    }
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{named}.1", "namespace": "default"},
        **event,
    }
    kubectl("create", "-f", "-", given=body)
    told = kubectl("describe", "trigger", named)
    assert "Type:" in told
    assert "Ready" in told
    assert "it is well" in told


def test_wait_ends_when_the_condition_is_met(
    kubectl: Run, named: str, url: str, environment: dict[str, str]
) -> None:
    words = [str(KUBECTL), "wait", "--for=condition=Ready", f"trigger/{named}", "--timeout=60s"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        write_status(kubectl, url, named)
        assert process.communicate(timeout=90)[0] == f"trigger.eventing.knative.dev/{named} condition met\n"
    assert "timed out" in kubectl(
        "wait", "--for=condition=Nothing", f"trigger/{named}", "--timeout=1s", status=1
    )


def test_patches_of_both_kinds_change_it(kubectl: Run, named: str) -> None:
    kubectl("patch", "trigger", named, "--type=merge", "-p", '{"spec":{"delivery":{"retry":3}}}')
    kubectl(
        "patch",
        "trigger",
        named,
        "--type=json",
        "-p",
        '[{"op":"replace","path":"/spec/delivery/retry","value":4}]',
    )
    assert json.loads(kubectl("get", "trigger", named, "-o", "json"))["spec"]["delivery"] == {"retry": 4}
    assert "field is immutable" in kubectl(
        "patch", "trigger", named, "--type=merge", "-p", '{"spec":{"broker":"other"}}', status=1
    )


def test_labels_and_annotations_come_and_go(kubectl: Run, named: str) -> None:
    kubectl("label", "trigger", named, "a=b")
    kubectl("annotate", "trigger", named, "note=read me")
    assert kubectl("get", "triggers", "-l", "a=b", "-o", "name").strip().endswith(named)
    metadata = json.loads(kubectl("get", "trigger", named, "-o", "json"))["metadata"]
    assert metadata["annotations"]["note"] == "read me"
    kubectl("label", "trigger", named, "a-")
    assert kubectl("get", "triggers", "-l", "a=b", "-o", "name") == ""


def test_server_side_apply_keeps_count_of_owners(kubectl: Run, named: str) -> None:
    words = ("apply", "--server-side", "-f", "-")
    assert kubectl(*words, "--field-manager=one", given=trigger(named, delivery={"retry": 1})).endswith(
        "serverside-applied\n"
    )
    assert "conflict" in kubectl(
        *words, "--field-manager=two", given=trigger(named, delivery={"retry": 2}), status=1
    )
    kubectl(*words, "--field-manager=two", "--force-conflicts", given=trigger(named, delivery={"retry": 2}))
    assert json.loads(kubectl("get", "trigger", named, "-o", "json"))["spec"]["delivery"] == {"retry": 2}


def test_replace_needs_the_version_it_saw(kubectl: Run, named: str) -> None:
    seen = json.loads(kubectl("get", "trigger", named, "-o", "json"))
    assert kubectl(
        "replace", "-f", "-", given=seen | {"metadata": seen["metadata"] | {"labels": {"x": "y"}}}
    ).endswith("replaced\n")
    assert "the object has been modified" in kubectl(
        "replace", "-f", "-", given=seen | {"metadata": seen["metadata"] | {"labels": {}}}, status=1
    )


def test_delete_takes_it_away(kubectl: Run, named: str) -> None:
    assert kubectl("delete", "trigger", named) == f'trigger.eventing.knative.dev "{named}" deleted\n'
    assert "NotFound" in kubectl("get", "trigger", named, status=1)


def test_an_error_is_reported_with_its_field(kubectl: Run) -> None:
    assert "spec.subscriber: Required value" in kubectl(
        "apply", "--validate=false", "-f", "-", given=trigger("bad", subscriber={}), status=1
    )


def test_fields_are_explained_and_unknown_ones_refused(kubectl: Run) -> None:
    assert "retry" in kubectl("explain", "trigger.spec.delivery")
    body = trigger("misspelt", subscriber={"uri": "http://x/", "url": "http://x/"})
    assert "unknown field" in kubectl("apply", "-f", "-", given=body, status=1)


def test_the_rights_of_a_user_are_reported(kubectl: Run) -> None:
    assert kubectl("auth", "can-i", "create", "triggers") == "yes\n"


@pytest.mark.parametrize("where", ["server", "client"])
def test_a_dry_run_makes_nothing(kubectl: Run, where: str) -> None:
    assert "created" in kubectl("apply", f"--dry-run={where}", "-f", "-", given=trigger("dry"))
    assert "NotFound" in kubectl("get", "trigger", "dry", status=1)


def test_a_port_removed_from_a_service_is_removed_from_the_object(kubectl: Run) -> None:
    ports = [{"name": name, "port": port} for name, port in (("one", 80), ("two", 81))]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ports"}}
    kubectl("apply", "-f", "-", given=service | {"spec": {"ports": ports}})
    kubectl("apply", "-f", "-", given=service | {"spec": {"ports": ports[1:]}})
    assert [
        each["name"] for each in json.loads(kubectl("get", "service", "ports", "-o", "json"))["spec"]["ports"]
    ] == ["two"]


def test_core_kinds_are_applied_patched_and_created(kubectl: Run) -> None:
    kubectl("apply", "-f", "-", given=config_map("settings", partitions="4"))
    kubectl("apply", "-f", "-", given=config_map("settings", partitions="8"))
    kubectl("patch", "configmap", "settings", "-p", '{"data":{"retention":"P1D"}}')
    assert json.loads(kubectl("get", "cm", "settings", "-o", "json"))["data"] == {
        "partitions": "8",
        "retention": "P1D",
    }
    kubectl("create", "configmap", "literal", "--from-literal=a=b")
    assert json.loads(kubectl("get", "cm", "literal", "-o", "json"))["data"] == {"a": "b"}
    kubectl("create", "namespace", "made")
    assert "Active" in kubectl("get", "namespace", "made")
    kubectl("delete", "namespace", "made")


def test_a_kind_of_one_s_own_is_served_until_it_goes(kubectl: Run) -> None:
    kubectl("apply", "-f", "-", given=definition("example.com", "Sink", "sinks"))
    kubectl("wait", "--for=condition=Established", "crd/sinks.example.com", "--timeout=60s")
    assert "Broker" in kubectl("api-resources")
    kubectl(
        "apply",
        "-f",
        "-",
        given={"apiVersion": "example.com/v1", "kind": "Sink", "metadata": {"name": "one"}, "spec": {"a": 1}},
    )
    assert json.loads(kubectl("get", "sinks.example.com", "one", "-o", "json"))["spec"] == {"a": 1}
    kubectl("delete", "crd", "sinks.example.com")
