"""docker-compose.yml is whole: services, volumes, files and ports fit each other, and the settings are valid.

`tests/acceptance/test_compose.py` and `tests/deploy/test_services.py` run its commands.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

ROOT = Path(__file__).parent.parent
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
PROGRAMS = Path(sys.executable).parent
OURS = {"amqp-streams", "knative-gateway"}
ONCE = {"passwords", "certificates", "node-certificates", "job"}
"""Services that do their work and end."""
FOR_OTHER_MACHINES = {"node-tls", "gateway-tls"}
PROFILES = {"cluster", "console", "gateway", "observability", "spark", "tls"}
VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")
FOLDERS = ("/var/lib/amqp-streams", "/tls", "/secrets", "/nodes")


def cluster(kind: str) -> list[str]:
    return [
        name
        for name, each in SERVICES.items()
        if re.fullmatch(rf"(?:cluster-)?{kind}\d*", name) and each.get("profiles") == ["cluster"]
    ]


def commands() -> list[str]:
    """The services whose programs are ours, and serve."""
    return [name for name, each in SERVICES.items() if "build" in each and words(each)[0] in OURS]


def words(service: Mapping[str, Any]) -> list[str]:
    """The command line in the container: the entrypoint of the image, unless the service has one."""
    images = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    target = service["build"]["target"] if isinstance(service["build"], dict) else None
    (image,) = (
        [each for each in images if each.split("\n")[0].endswith(f" AS {target}")] if target else images[-1:]
    )
    found = re.search(r"^ENTRYPOINT \[(.*)\]$", image, re.MULTILINE)
    assert found is not None
    given: list[str] = re.findall(r'"([^"]*)"', found[1])
    line = [*service.get("entrypoint", given), *service["command"]]
    # Without variables of the user, Compose puts in the defaults.
    return [VARIABLE.sub(r"\1", word) for word in line]


def test_the_profiles_have_their_services() -> None:
    counts = {kind: len(cluster(kind)) for kind in ("kafka", "node", "gateway", "database")}
    assert counts == {"kafka": 3, "node": 3, "gateway": 2, "database": 1}
    assert [name for name, each in SERVICES.items() if "profiles" not in each] == ["node"]
    assert {profile for each in SERVICES.values() for profile in each.get("profiles", ())} == PROFILES


def test_the_compose_specification_knows_each_key_and_value() -> None:
    PyCompose.from_json(json.dumps(COMPOSE)).validate()
    for spoilt in ({"restrat": "always"}, {"depends_on": {"node": {"condition": "healthy"}}}):
        services = {**SERVICES, "console": {**SERVICES["console"], **spoilt}}
        with pytest.raises(ValueError, match=r"restrat|unknown variant"):
            PyCompose.from_json(json.dumps({**COMPOSE, "services": services})).validate()


def test_what_a_service_names_exists() -> None:
    used = set()
    for name, each in SERVICES.items():
        assert ("image" in each) != ("build" in each), name
        needed = set(each.get("depends_on", ()))
        assert needed <= SERVICES.keys(), name
        for other in needed:
            # Compose starts a service of a profile only together with the profile.
            own, others = set(each.get("profiles", ())), set(SERVICES[other].get("profiles", ()))
            assert not others or own <= others, (name, other)
        for volume in each.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).is_dir(), name
                assert volume.endswith(":ro"), name
            else:
                used.add(source)
        for key, value in each.get("environment", {}).items():
            assert re.fullmatch(r"[A-Z][A-Z0-9_]*", key)
            assert isinstance(value, str | int), "YAML reads true and false as something else than text"
    assert used == COMPOSE["volumes"].keys()


def test_each_service_restarts_is_checked_and_may_do_little() -> None:
    for name, each in SERVICES.items():
        assert (each.get("restart") == "unless-stopped") != (name in ONCE), name
        if "build" in each:
            assert each["cap_drop"] == ["ALL"], name
            assert each["security_opt"] == ["no-new-privileges:true"], name
            # The image has the check of nodes.
            is_node = words(each)[:2] == ["amqp-streams", "serve"]
            assert is_node or name == "job" or "healthcheck" in each, name
        elif name not in cluster("kafka"):
            assert each["healthcheck"]["test"][0] == "CMD", name
        for image in [each["image"]] if "image" in each else []:
            assert re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+", image), name


def test_no_secret_is_in_the_file() -> None:
    for name, each in SERVICES.items():
        for key, value in each.get("environment", {}).items():
            if re.search("PASS|SECRET|TOKEN", key):
                assert re.fullmatch(r"/(?:secrets|tls)/\w+", str(value)), (name, key)
        assert not re.search(r"//\w+:\w+@", " ".join(map(str, each.get("command", ())))), name


def test_each_published_port_is_on_loopback_or_uses_tls_and_something_listens_behind_it() -> None:
    taken = []
    outside = {"prometheus": "9090", "grafana": "3000"}
    for name, each in SERVICES.items():
        for published in each.get("ports", ()):
            *address, port, inside = published.split(":")
            if address != ["127.0.0.1"]:
                assert not address, name
                assert name in FOR_OTHER_MACHINES, name
                assert "--tls-key" in words(each), name
            taken.append(port)
            if name in outside:
                assert inside == outside[name]
            else:
                assert any(word.endswith(f":{inside}") for word in words(each)), name
    assert len(taken) == len(set(taken))


def test_each_console_that_listens_on_all_addresses_names_its_hosts() -> None:
    """The container sees no difference between the user's browser and a page whose name points to it."""
    consoles = [name for name in commands() if words(SERVICES[name])[:2] == ["amqp-streams", "console"]]
    assert consoles
    for name in consoles:
        line = words(SERVICES[name])
        hosts = {word.partition("=")[2] for word in line if word.startswith("--allow-host=")}
        assert hosts == {"localhost", "127.0.0.1"} or "0.0.0.0" not in " ".join(line), name


def test_each_host_in_a_command_is_a_service() -> None:
    for name in commands():
        each = SERVICES[name]
        text = " ".join([*words(each), *map(str, each.get("environment", {}).values())])
        lists = re.findall(r"(?:\w+://(?:\w+@)?|--kafka-servers )([^/\s]+)", text)
        hosts = {address.split(":")[0] for each in lists for address in each.split(",")}
        assert hosts - {"localhost", "127.0.0.1"} <= SERVICES.keys(), name


def test_prometheus_scrapes_services_at_the_ports_where_they_listen() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    found: dict[str, set[str]] = {}
    for job in config["scrape_configs"]:
        targets = {target for each in job["static_configs"] for target in each["targets"]}
        for each in job["dns_sd_configs"]:
            targets |= {f"{name}:{each['port']}" for name in each["names"]}
        found[job["job_name"]] = targets
        for target in targets:
            name, port = target.split(":")
            assert any(word.endswith(f":{port}") for word in words(SERVICES[name])), target
    # With TLS they need a scheme and an authority of their own (docs/monitoring.md).
    served = {name for name in commands() if name not in FOR_OTHER_MACHINES | {"console"}}
    assert {target.split(":")[0] for targets in found.values() for target in targets} == served
    assert found.keys() == {"amqp-streams", "knative-gateway"}


def test_each_list_of_the_cluster_is_whole() -> None:
    """The nodes have all brokers, and the gateway has all nodes: any of them may be away."""
    assert cluster("gateway")
    for kind, others in (("node", "kafka"), ("gateway", "node")):
        for name in cluster(kind):
            hosts = re.findall(rf"\b({others}\d+)(?=:\d)", " ".join(words(SERVICES[name])))
            assert sorted(hosts) == sorted(cluster(others)), name


def test_each_node_of_the_cluster_has_an_address_that_its_certificate_names() -> None:
    """Without this section, nodes on Kafka refuse groups, and two gateways need them."""
    names = SERVICES["node-certificates"]["command"][1].split(",")
    assert names == cluster("node")
    for name in cluster("node"):
        host, port = SERVICES[name]["environment"]["AMQP_STREAMS_NODE_ADVERTISE"].split(":")
        assert host == name
        line = words(SERVICES[name])
        assert line[line.index("--node-listen") + 1].endswith(f":{port}")
        assert not [each for each in SERVICES[name]["ports"] if each.endswith(f":{port}")]
        assert "node-certificates" in SERVICES[name]["depends_on"]


def test_the_gateways_of_the_cluster_share_a_database() -> None:
    lines = [words(SERVICES[name]) for name in cluster("gateway")]
    assert {line[line.index("--store") + 1] for line in lines} == {
        f"postgresql://gateway@{name}/gateway" for name in cluster("database")
    }
    assert len({line[line.index("--public-url") + 1] for line in lines}) == 1


@pytest.mark.parametrize(
    "name",
    [name for name in commands() if name not in FOR_OTHER_MACHINES | {"console"} | set(cluster("node"))],
)
def test_each_command_has_valid_settings(name: str, tmp_path: Path) -> None:
    """`tests/deploy/test_services.py` does the same for those with TLS, whose files must exist."""
    each = SERVICES[name]
    program, *arguments = words(each)
    environment = own_environment(each["environment"], tmp_path)
    done = subprocess.run(
        [PROGRAMS / program, *(placed(argument, tmp_path) for argument in arguments), "--check"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def placed(text: str, folder: Path) -> str:
    """The text with a place below `folder` for each folder of the container."""
    for place in FOLDERS:
        text = re.sub(rf"(?<![\w/]){place}\b", f"{folder}{place}", text)
    return text


def own_environment(given: Mapping[str, object], folder: Path) -> dict[str, str]:
    # With the variables of this interpreter the process can be a fork.
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AMQP_STREAMS_", "KNATIVE_GATEWAY_"))
    }
    return own | {key: placed(str(value), folder) for key, value in given.items()}
