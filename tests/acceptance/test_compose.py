"""The services of the profile `cluster` in docker-compose.yml run as processes, on brokers and a database."""

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from bench.products.kafka_cluster import Cluster
from examples.gateway import GatewayProcess, Sender
from examples.node import NodeProcess
from examples.subscriber import SubscriberServer
from tests.acceptance.shared import BROKER, RESOURCES
from tests.acceptance.test_access import wait_for
from tests.test_compose import PROGRAMS, SERVICES, cluster, words

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


def test_what_the_gateway_of_the_cluster_accepts_is_delivered(kafka: Cluster, tmp_path: Path) -> None:
    """Also with one of the three nodes left, whichever the gateway began with."""
    brokers = ",".join(f"{name}:9092" for name in cluster("kafka"))
    places = {brokers: kafka.servers, "0.0.0.0:5672": "127.0.0.1:0", "0.0.0.0:8672": "127.0.0.1:0"}
    with ExitStack() as stack:
        subscriber = stack.enter_context(SubscriberServer())
        prefix = f"t{uuid.uuid4().hex[:12]}"
        nodes = {}
        for name in cluster("node"):
            node = Service(tmp_path / name, name, places, "--kafka-prefix", prefix)
            nodes[name] = stack.enter_context(node)
        (name,) = cluster("gateway")
        own = {
            **{f"{node}:5672": process.url.removeprefix("amqp://") for node, process in nodes.items()},
            "0.0.0.0:8080": "127.0.0.1:0",
            "/var/lib/amqp-streams": str(tmp_path / name),
        }
        gateway = stack.enter_context(GatewayService(tmp_path / name, name, own))
        gateway.apply(RESOURCES.format(url=subscriber.url))
        sender = Sender(gateway.http, BROKER)
        left = list(nodes.values())
        for number in range(len(nodes)):
            if number:
                left.pop().kill()
            attributes = {"id": str(number), "source": "/compose", "type": "t"}
            # The gateway may not have noticed that its node is gone.
            wait_for(partial(accepts, sender, attributes))
            assert subscriber.wait(partial(took, number), 60), gateway.words
        sender.close()
        for process in (gateway, *left):
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
