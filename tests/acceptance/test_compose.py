"""The services of the profile `cluster` in docker-compose.yml run as processes, on brokers and a database."""

import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from bench.products import postgresql
from bench.products.kafka_cluster import Cluster
from bench.server import free_port
from examples.gateway import GatewayProcess, Sender
from examples.node import NodeProcess
from examples.subscriber import SubscriberServer
from tests.acceptance.shared import BROKER, RESOURCES
from tests.acceptance.test_access import wait_for
from tests.test_compose import PROGRAMS, ROOT, SERVICES, cluster, words

OF_THE_IMAGE = {"CLUSTER_ID"}


class Service(NodeProcess):
    """A service of the file. `places`: what takes the place of its hosts, ports and folders."""

    def __init__(self, folder: Path, name: str, places: Mapping[str, str], *more: str) -> None:
        super().__init__(folder, *more)
        self._service, self._places = SERVICES[name], places

    def command(self) -> list[str]:
        """See `NodeProcess.command`."""
        program, *arguments = map(self._placed, words(self._service))
        return [str(PROGRAMS / program), *arguments, "--ready-file", str(self._ready_file), *self.options]

    def environment(self) -> dict[str, str]:
        """See `NodeProcess.environment`."""
        own = {key: self._placed(str(value)) for key, value in self._service["environment"].items()}
        return {**super().environment(), **own}

    def _placed(self, text: str) -> str:
        for old, new in self._places.items():
            text = text.replace(old, new)
        return text


class GatewayService(Service, GatewayProcess):
    """A gateway of the file."""


def accepts(sender: Sender, attributes: Mapping[str, str]) -> bool:
    return sender.send(attributes, b"{}") == 202


def took(number: int, server: SubscriberServer) -> bool:
    return any(one.id == str(number) for one in server.taken)


def certificates(folder: Path) -> Path:
    """The volume after the service `node-certificates` has ended. It also names localhost."""
    volume = folder / "nodes"
    volume.mkdir()
    (_, names, kind), script = (
        SERVICES["node-certificates"]["command"],
        ROOT / "deploy/compose/certificates.sh",
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    subprocess.run(["sh", script, volume, names, kind], check=True, capture_output=True, env={"PATH": path})
    return volume


def test_what_one_gateway_of_the_cluster_accepts_is_delivered(kafka: Cluster, tmp_path: Path) -> None:
    """Also with one of the three nodes left, and one of the two gateways."""
    if postgresql.binaries() is None:
        pytest.skip(postgresql.MISSING)
    brokers, secrets = ",".join(f"{name}:9092" for name in cluster("kafka")), certificates(tmp_path)
    with ExitStack() as stack:
        subscriber = stack.enter_context(SubscriberServer())
        prefix = f"t{uuid.uuid4().hex[:12]}"
        nodes = {}
        for name in cluster("node"):
            port = free_port()
            places = {
                brokers: kafka.servers,
                "0.0.0.0:5672": "127.0.0.1:0",
                "0.0.0.0:8672": "127.0.0.1:0",
                "0.0.0.0:5680": f"127.0.0.1:{port}",
                f"{name}:5680": f"localhost:{port}",
                "/nodes/": f"{secrets}/",
            }
            node = Service(tmp_path / name, name, places, "--kafka-prefix", prefix)
            nodes[name] = stack.enter_context(node)
        database = postgresql.url_of(stack.enter_context(postgresql.server({"listen_addresses": ""})))
        gateways = []
        for name in cluster("gateway"):
            own = {
                **{f"{node}:5672": process.url.removeprefix("amqp://") for node, process in nodes.items()},
                "0.0.0.0:8080": "127.0.0.1:0",
                "postgresql://gateway@cluster-database/gateway": database,
                "/var/lib/amqp-streams": str(tmp_path / name),
                "/secrets": str(tmp_path),
            }
            gateways.append(stack.enter_context(GatewayService(tmp_path / name, name, own)))
        gateways[0].apply(RESOURCES.format(url=subscriber.url))
        senders = [Sender(gateway.http, BROKER) for gateway in gateways]
        left = list(nodes.values())
        for number in range(len(nodes)):
            if number:
                left.pop().kill()
            sender = senders[number % len(senders)]
            attributes = {"id": str(number), "source": "/compose", "type": "t"}
            # The gateway may not have noticed that its node is gone.
            wait_for(partial(accepts, sender, attributes))
            assert subscriber.wait(partial(took, number), 60), [each.words for each in gateways]
        for sender in senders:
            sender.close()
        for process in (*gateways, *left):
            assert process.stop() == 0, process.words
            assert "Traceback" not in process.words, process.words


def test_kafka_knows_each_setting_of_the_brokers(kafka: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    resource = ConfigResource(ResourceType.BROKER, "1")
    known = admin.describe_configs([resource])[resource].result(60).keys()
    for name in cluster("kafka"):
        environment = SERVICES[name]["environment"].keys() - OF_THE_IMAGE
        settings = {key.removeprefix("KAFKA_").lower().replace("_", ".") for key in environment}
        assert settings <= known
