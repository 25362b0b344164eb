"""docker-compose.yml is whole: services, volumes and ports fit each other, and the settings are valid.

`tests/acceptance/test_compose.py` runs its commands.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
PROGRAMS = Path(sys.executable).parent
KEYS = {
    "build",
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "healthcheck",
    "image",
    "ports",
    "profiles",
    "restart",
    "stop_grace_period",
    "ulimits",
    "volumes",
}
"""What a service may have, by the Compose Specification; only what this file uses."""


def cluster(kind: str) -> list[str]:
    return [
        name
        for name, each in SERVICES.items()
        if re.fullmatch(rf"{kind}\d*", name) and each.get("profiles") == ["cluster"]
    ]


def commands() -> list[str]:
    """The services whose programs are ours."""
    return [name for name, each in SERVICES.items() if "build" in each]


def words(service: Mapping[str, Any]) -> list[str]:
    """The command line in the container: the entrypoint of the image, unless the service has one."""
    image = re.search(r"^ENTRYPOINT \[(.*)\]$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert image is not None
    given: list[str] = re.findall(r'"([^"]*)"', image[1])
    return [*service.get("entrypoint", given), *service["command"]]


def test_the_profile_has_brokers_nodes_and_a_gateway() -> None:
    counts = {kind: len(cluster(kind)) for kind in ("kafka", "node", "gateway")}
    assert counts == {"kafka": 3, "node": 3, "gateway": 1}
    assert [name for name, each in SERVICES.items() if "profiles" not in each] == ["node"]


def test_services_have_only_keys_of_the_specification_and_what_they_name_exists() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "volumes"}
    used = set()
    for name, each in SERVICES.items():
        assert each.keys() <= KEYS, name
        assert ("image" in each) != ("build" in each), name
        assert set(each.get("depends_on", ())) <= SERVICES.keys(), name
        used |= {volume.split(":")[0] for volume in each.get("volumes", ())}
        for key, value in each.get("environment", {}).items():
            assert re.fullmatch(r"[A-Z][A-Z0-9_]*", key)
            assert isinstance(value, str | int), "YAML reads true and false as something else than text"
    assert used == COMPOSE["volumes"].keys()


def test_each_published_port_is_on_loopback_and_something_listens_behind_it() -> None:
    taken = []
    for name, each in SERVICES.items():
        for published in each.get("ports", ()):
            address, port, inside = published.split(":")
            assert address == "127.0.0.1", name
            taken.append(port)
            assert any(word.endswith(f":{inside}") for word in words(each)), name
    assert len(taken) == len(set(taken))


def test_each_host_in_a_command_is_a_service() -> None:
    for name in commands():
        each = SERVICES[name]
        text = " ".join([*words(each), *map(str, each["environment"].values())])
        hosts = re.findall(r"\b((?:kafka|node)\d*)(?=:\d|/)", text)
        assert set(hosts) <= SERVICES.keys(), name


def test_each_list_of_the_cluster_is_whole() -> None:
    """The nodes have all brokers, and the gateway has all nodes: any of them may be away."""
    assert cluster("gateway")
    for kind, others in (("node", "kafka"), ("gateway", "node")):
        for name in cluster(kind):
            hosts = re.findall(rf"\b({others}\d+)(?=:\d)", " ".join(words(SERVICES[name])))
            assert sorted(hosts) == sorted(cluster(others)), name


@pytest.mark.parametrize("name", commands())
def test_each_command_has_valid_settings(name: str, tmp_path: Path) -> None:
    each = SERVICES[name]
    program, *arguments = words(each)
    # Their places in the container do not exist here.
    arguments = [argument.replace("/var/lib/amqp-streams", str(tmp_path)) for argument in arguments]
    environment = {
        key: str(value).replace("/var/lib/amqp-streams", str(tmp_path))
        for key, value in each["environment"].items()
    }
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AMQP_STREAMS_", "KNATIVE_GATEWAY_"))
    }
    done = subprocess.run(
        [PROGRAMS / program, *arguments, "--check"],
        # With the variables of this interpreter the process can be a fork.
        env=own | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_image_has_the_extras_that_the_commands_need() -> None:
    installed = re.search(r"'\.\[([a-z,]+)\]'", (ROOT / "Dockerfile").read_text())
    assert installed is not None
    assert {"node", "kafka", "gateway"} <= set(installed[1].split(","))
