"""The manifests in deploy/kubernetes are valid, agree with each other, and have settings that are valid."""

import base64
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes.client.models
import pydantic
import pytest
import yaml
from kubernetes.utils.quantity import parse_quantity

from tests.test_compose import PROGRAMS, ROOT, own_environment

FOLDER: Final = ROOT / "deploy" / "kubernetes"
FILES: Final = sorted(FOLDER.glob("*.yaml"))
MODELS: Final = {
    ("v1", "ConfigMap"): "V1ConfigMap",
    ("v1", "Secret"): "V1Secret",
    ("v1", "Service"): "V1Service",
    ("apps/v1", "Deployment"): "V1Deployment",
    ("policy/v1", "PodDisruptionBudget"): "V1PodDisruptionBudget",
    ("networking.k8s.io/v1", "NetworkPolicy"): "V1NetworkPolicy",
}
NAMESPACE: Final = "events"
READY_S: Final = 5
"""/readyz of a node asks Kafka for at most so long."""
DATABASE: Final = "postgresql://gateway:x@database.example/gateway"


def faults(value: Any, kind: str, path: str) -> Iterator[str]:
    """What the models of the Kubernetes client refuse, and fields that they do not know: an apply with strict
    validation refuses both.
    """
    model: Any = getattr(kubernetes.client.models, kind)
    try:
        model.model_validate(value)
    except pydantic.ValidationError as error:
        yield from (f"{path}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    yield from unknown(value, kind, path)


def unknown(value: Any, kind: str, path: str) -> Iterator[str]:
    nested = re.fullmatch(r"(?:(list)\[|dict[\[(]str, )(.*)[\])]", kind, re.IGNORECASE)
    if nested is not None:
        inner = enumerate(value) if nested[1] else value.items()
        for key, each in inner:
            yield from unknown(each, nested[2], f"{path}.{key}")
    elif kind.startswith("V") and isinstance(value, dict):
        model: Any = getattr(kubernetes.client.models, kind)
        own = {wire: name for name, wire in model.attribute_map.items()}
        for key, each in value.items():
            if key not in own:
                yield f"{path}.{key}: unknown"
            else:
                yield from unknown(each, model.openapi_types[own[key]], f"{path}.{key}")


def loaded() -> list[Mapping[str, Any]]:
    return [each for file in FILES for each in yaml.safe_load_all(file.read_text()) if each]


OBJECTS: Final = loaded()


def found(kind: str, name: str) -> Mapping[str, Any]:
    (one,) = (each for each in OBJECTS if each["kind"] == kind and each["metadata"]["name"] == name)
    return one


def pods() -> list[Mapping[str, Any]]:
    return [each["spec"]["template"] for each in OBJECTS if each["kind"] == "Deployment"]


def containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def test_kubernetes_knows_each_field_and_takes_each_value() -> None:
    assert len(OBJECTS) == 9
    for each in OBJECTS:
        kind = MODELS[each["apiVersion"], each["kind"]]
        assert list(faults(each, kind, each["kind"])) == []
    for each in (
        resources for pod in pods() for own in containers(pod) for resources in own["resources"].values()
    ):
        assert all(parse_quantity(amount) > 0 for amount in each.values())


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("spec", "replica"), 3, "Deployment.spec.replica: unknown"),
        (("spec", "replicas"), "3", "Deployment.spec.replicas: Input should be a valid integer"),
        (("spec", "template", "spec", "containers"), {}, "Input should be a valid list"),
        (("spec", "selector"), None, "Deployment.spec.selector: Field required"),
        (("spec", "template", "spec", "volumes"), [{"secret": {}}], "volumes.0.name: Field required"),
    ],
)
def test_the_check_finds_faults(path: tuple[str, ...], value: object, fault: str) -> None:
    spoilt = yaml.safe_load(yaml.safe_dump(found("Deployment", "amqp-streams-node")))
    inner = spoilt
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    if value is None:
        del inner[path[-1]]
    assert any(fault in each for each in faults(spoilt, "V1Deployment", "Deployment"))


def test_each_selector_finds_pods_and_each_port_has_a_name_there() -> None:
    labels = [pod["metadata"]["labels"] for pod in pods()]
    names = {port["name"]: port["containerPort"] for pod in pods() for port in containers(pod)[-1]["ports"]}
    for each in OBJECTS:
        spec = each.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert [own for own in labels if wanted.items() <= own.items()], each["metadata"]["name"]
        for port in spec.get("ports", ()):
            assert names[port["targetPort"]] == port["port"], each["metadata"]["name"]
        for rule in spec.get("ingress", ()):
            assert {port["port"] for port in rule["ports"]} <= names.keys()
    for pod in pods():
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert containers(pod)[-1][probe]["httpGet"]["port"] in names
        assert str(pod["metadata"]["annotations"]["prometheus.io/port"]) in map(str, names.values())


def test_only_nodes_reach_the_listener_of_nodes() -> None:
    policy = found("NetworkPolicy", "amqp-streams-node")["spec"]
    (rule,) = (each for each in policy["ingress"] if {"port": "nodes"} in each["ports"])
    assert rule["from"] == [{"podSelector": policy["podSelector"]}]
    assert "Ingress" in policy["policyTypes"]


def test_only_prometheus_reaches_the_listener_without_tls() -> None:
    """It serves AMQP over WebSocket as well, so other pods must not reach it."""
    policy = found("NetworkPolicy", "amqp-streams-node")["spec"]
    (rule,) = (each for each in policy["ingress"] if {"port": "admin"} in each["ports"])
    (source,) = rule["from"]
    # In one entry: pods of this namespace that have this label. An empty selector would choose everything.
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    assert source["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}
    assert {len(each["ports"]) for each in policy["ingress"]} == {1}


def test_containers_may_do_little_and_keep_nothing() -> None:
    for pod in pods():
        spec = pod["spec"]
        own = spec["securityContext"]
        assert (own["runAsNonRoot"], own["runAsUser"]) == (True, 10001)
        assert own["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for each in containers(pod):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= each["resources"]["requests"].keys()
            assert "memory" in each["resources"]["limits"]
        for volume in spec["volumes"]:
            (kind,) = volume.keys() - {"name"}
            assert kind in {"configMap", "secret", "projected", "emptyDir"}
        mounted = {mount["name"] for each in containers(pod) for mount in each["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_what_a_pod_names_exists() -> None:
    made = {"amqp-streams-nodes": secret_names(), "amqp-streams-gateway": secret_names()}
    for pod in pods():
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                found("ConfigMap", volume["configMap"]["name"])
            if "secret" in volume:
                assert volume["secret"]["secretName"] in made
            for source in volume.get("projected", {}).get("sources", ()):
                assert source["secret"]["name"] in made or source["secret"]["optional"]
        for variable in containers(pod)[-1]["env"]:
            chosen = variable.get("valueFrom", {}).get("secretKeyRef")
            if chosen is not None:
                assert chosen["key"] in made[chosen["name"]]


def secret_names() -> set[str]:
    """The entries of all Secrets that secrets.sh prints."""
    return set(re.findall(r"^entry (\S+)", (FOLDER / "secrets.sh").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, bytes]]:
    """What secrets.sh prints, by Secret and entry. A second run prints the same."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("secrets")
    printed = [made(folder) for _ in range(2)]
    assert printed[0] == printed[1]
    objects = [each for each in yaml.safe_load_all(printed[0]) if each]
    for each in objects:
        assert list(faults(each, MODELS[each["apiVersion"], each["kind"]], "Secret")) == []
    return {
        each["metadata"]["name"]: {key: base64.b64decode(value) for key, value in each["data"].items()}
        for each in objects
    }


def made(folder: Path) -> str:
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", FOLDER / "secrets.sh", folder / "kept", NAMESPACE, DATABASE],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


def test_the_configuration_is_accepted_with_the_secrets(
    secrets: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    """The files are where the init container copies them."""
    places = {"/run/amqp-streams": tmp_path / "run", "/etc/amqp-streams": tmp_path / "etc"}
    for place in places.values():
        place.mkdir()
    (config,) = found("ConfigMap", "amqp-streams-nodes")["data"].items()
    for name, content in secrets["amqp-streams-nodes"].items():
        (places["/run/amqp-streams"] / name).write_bytes(content)
        (places["/run/amqp-streams"] / name).chmod(0o600)
    text = config[1]
    for port in ("5671", "5680", "8672"):
        assert f"0.0.0.0:{port}" in text
        text = text.replace(f"0.0.0.0:{port}", "127.0.0.1:0")
    assert set(re.findall(r"/run/amqp-streams/([\w.-]+)", text)) == secrets["amqp-streams-nodes"].keys()
    line = check("amqp-streams", config[0], text, places, {"AMQP_STREAMS_NODE_ADVERTISE": address()})
    assert line.returncode == 0, line.stderr
    assert address() == "10.1.2.3:5680"
    assert address("fd00::7") == "[fd00::7]:5680"


def test_a_pod_that_is_not_ready_does_not_keep_a_machine_from_being_drained() -> None:
    for name in ("amqp-streams-node", "amqp-streams-gateway"):
        budget = found("PodDisruptionBudget", name)["spec"]
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_probes_wait_as_long_as_the_answer_may_take() -> None:
    for pod in pods():
        for probe in ("startupProbe", "readinessProbe"):
            assert containers(pod)[-1][probe]["timeoutSeconds"] > READY_S


def test_files_for_kafka_are_in_a_secret_that_the_script_does_not_make(tmp_path: Path) -> None:
    """What people add to a Secret of the script could be removed when its certificates are renewed."""
    pod = found("Deployment", "amqp-streams-node")["spec"]["template"]
    (volume,) = (each["projected"] for each in pod["spec"]["volumes"] if "projected" in each)
    assert volume["sources"] == [
        {"secret": {"name": "amqp-streams-nodes"}},
        {"secret": {"name": "amqp-streams-kafka", "optional": True}},
    ]
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    assert "create secret generic amqp-streams-kafka" in page
    assert not re.search(r"^ *\$?.*kubectl.* replace ", page, re.MULTILINE)
    # Kubernetes shows each file of a projected volume as a link to one in a hidden folder.
    (tmp_path / "secrets" / "..data").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    for name in ("secret", "kafka-ca.pem", "kafka-password"):
        (tmp_path / "secrets" / "..data" / name).write_text(name)
        (tmp_path / "secrets" / name).symlink_to(f"..data/{name}")
    (copy,) = pod["spec"]["initContainers"]
    script = copy["command"][-1].replace("/run/amqp-streams", f"{tmp_path}/run")
    subprocess.run(["sh", "-c", script.replace("/secrets/", f"{tmp_path}/secrets/")], check=True)
    copied = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "run").iterdir()}
    assert copied == {"secret": 0o600, "kafka-ca.pem": 0o600, "kafka-password": 0o600}


def address(pod_ip: str = "10.1.2.3") -> str:
    """The address that the Deployment makes of the pod's, as the shell makes it."""
    script = containers(found("Deployment", "amqp-streams-node")["spec"]["template"])[-1]["command"][-1]
    asks = script.replace("exec amqp-streams serve", 'echo "$AMQP_STREAMS_NODE_ADVERTISE" #')
    given = {"POD_IP": pod_ip, "PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", asks], env=given, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_certificates_name_the_addresses_that_are_used(
    secrets: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    nodes, gateway = secrets["amqp-streams-nodes"], secrets["amqp-streams-gateway"]
    settings = tomllib.loads(found("ConfigMap", "amqp-streams-nodes")["data"]["node.toml"])
    host = re.search(r"@([^:/]+)", gateway["amqp-url"].decode())
    assert host is not None
    found("Service", host[1])
    for authority, certificate, name in (
        (nodes["nodes-ca.pem"], nodes["node.pem"], settings["node"]["certificate_name"]),
        (gateway["ca.pem"], nodes["server.pem"], host[1]),
    ):
        (tmp_path / "ca").write_bytes(authority)
        (tmp_path / "certificate").write_bytes(certificate)
        command = ["openssl", "verify", "-CAfile", tmp_path / "ca", "-verify_hostname", name]
        subprocess.run([*command, tmp_path / "certificate"], check=True, capture_output=True)


def test_the_gateway_accepts_its_configuration(
    secrets: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    pod = found("Deployment", "amqp-streams-gateway")["spec"]["template"]
    places = {
        place: tmp_path / place.replace("/", "_")
        for place in ("/run/amqp-streams", "/etc/amqp-streams", "/var/lib/amqp-streams")
    }
    for place in places.values():
        place.mkdir()
    given = {}
    for variable in containers(pod)[-1]["env"]:
        if "value" in variable:
            given[variable["name"]] = variable["value"].replace("$(POD_NAMESPACE)", NAMESPACE)
        elif "secretKeyRef" in variable["valueFrom"]:
            key = variable["valueFrom"]["secretKeyRef"]["key"]
            given[variable["name"]] = secrets["amqp-streams-gateway"][key].decode()
    (volume,) = (each["secret"] for each in pod["spec"]["volumes"] if "secret" in each)
    for item in volume["items"]:
        file = places["/run/amqp-streams"] / item["path"]
        file.write_bytes(secrets["amqp-streams-gateway"][item["key"]])
        # The gateway reads it as a member of the group.
        file.chmod(volume["defaultMode"])
    (config,) = found("ConfigMap", "amqp-streams-gateway")["data"].items()
    line = check(
        "knative-gateway", config[0], config[1].replace("0.0.0.0:8080", "127.0.0.1:0"), places, given
    )
    assert line.returncode == 0, line.stderr
    assert tomllib.loads(config[1])["tokens"] == "/run/amqp-streams/tokens.csv"


def check(
    program: str, name: str, text: str, places: Mapping[str, Path], given: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run the program's own check of its configuration, with folders in the place of those of the pod."""
    for old, new in places.items():
        text = text.replace(old, str(new))
        given = {key: value.replace(old, str(new)) for key, value in given.items()}
    file = places["/etc/amqp-streams"] / name
    file.write_text(text)
    return subprocess.run(
        [PROGRAMS / program, "serve", "--config", file, "--check"],
        env={**own_environment({}, file.parent), **given},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_secrets_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    for arguments, words in (
        ((), "usage"),
        ((str(tmp_path), "n", "mysql://x"), "postgresql://USER"),
        ((str(tmp_path), "a b", DATABASE), "got 'a b'"),
    ):
        done = subprocess.run(
            ["sh", FOLDER / "secrets.sh", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert words in done.stderr
