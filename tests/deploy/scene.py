"""A node and two gateways with traffic, and a Prometheus that scrapes them: all of them real processes."""

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml
from argon2 import PasswordHasher
from prometheus_client.parser import text_string_to_metric_families

from amqp_streams import names
from amqp_streams.client import Event, LinkRefusedError, RejectedError
from amqp_streams.client.blocking import Client, connect
from amqp_streams.server.identity.users import UsersFile
from examples.gateway import GatewayProcess, Sender
from examples.node import NodeProcess
from examples.subscriber import SubscriberServer
from tests.amqp_streams.server.peers import Authority

ROOT: Final = Path(__file__).parents[2]
PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
START_S_MAX: Final = 100.0
NODE: Final = """
[quotas.alice]
bytes_in = "4kB"
links = 20

[[access]]
users = ["alice"]
logs = ["temps"]
allow = ["send", "receive", "info"]
"""
RESOURCES: Final = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: shared, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: good, namespace: default}}
spec:
  broker: shared
  subscriber: {{uri: "{url}"}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: bad, namespace: default}}
spec:
  broker: shared
  filter: {{attributes: {{type: refused}}}}
  subscriber: {{uri: "{url}"}}
  delivery: {{retry: 1, backoffDelay: PT0.01S, backoffPolicy: linear}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata:
  name: paused
  namespace: default
  annotations: {{knative-gateway/paused: "true"}}
spec:
  broker: shared
  subscriber: {{uri: "{url}"}}
"""


def got(url: str, context: ssl.SSLContext | None = None) -> str:
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        return str(answer.read().decode())


class Traffic:
    """Clients that stay connected, so that their links have metrics, and events of every kind."""

    def __init__(self, stack: ExitStack, node: NodeProcess, gateway: GatewayProcess) -> None:
        self._stack = stack
        self._alice = self._client(node)
        self._producer = stack.enter_context(self._alice.producer("temps"))
        self._consumer = stack.enter_context(self._client(node).group_consumer("temps", "dashboards"))
        self._sender = Sender(gateway.http, "/broker/default/shared")
        stack.callback(self._sender.close)
        self._count = 0

    def _client(self, node: NodeProcess) -> Client:
        return self._stack.enter_context(connect(node.url, user="alice", password="s3cret"))

    def go_on(self) -> None:
        """Send and receive a few more events; some are refused."""
        self._count += 1
        for _ in range(3):
            self._producer.send(Event(b"x" * 400, key=str(self._count)))
        self._consumer.receive(max_events=1, timeout=5.0)
        # The key of an event is a text, and alice has no right on the other log.
        with suppress(RejectedError):
            self._producer.send(Event(annotations={names.GROUP_KEY: 7}))
        with suppress(LinkRefusedError):
            self._alice.info("secret")
        for kind in ("taken", "refused"):
            attributes = {"id": f"{kind}-{self._count}", "source": "/scene", "type": kind}
            assert self._sender.send(attributes, b"{}") == 202


class Scene:
    """The processes. `targets`: the addresses with metrics, by the name of the job."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        subscriber = stack.enter_context(SubscriberServer())
        subscriber.decide = lambda attributes: 400 if attributes["type"] == "refused" else 202
        authority = Authority(folder / "authority")
        node = stack.enter_context(self._node(authority))
        self.gateway = stack.enter_context(GatewayProcess(folder / "gateway", "--workers", "2"))
        self.gateway.apply(RESOURCES.format(url=subscriber.url), wait=False)
        served = authority.issue("gateway")
        tls = ("--tls-certificate", str(served.certificate), "--tls-key", str(served.key))
        plain = f"amqp://{self.gateway.addresses['amqp'][0]}"
        secure = stack.enter_context(GatewayProcess(folder / "secure", "--amqp", plain, *tls))
        self.ca = authority.ca
        self.secure = secure.http
        self.targets: Mapping[str, Sequence[str]] = {
            "amqp-streams": [node.addresses["admin"][0]],
            "knative-gateway": [self.gateway.http],
        }
        self.traffic = Traffic(stack, node, self.gateway)

    def _node(self, authority: Authority) -> NodeProcess:
        folder = self._folder / "node"
        folder.mkdir(parents=True)
        users = UsersFile.load(
            folder / "users",
            hasher=PasswordHasher(time_cost=1, memory_cost=8, parallelism=1),
            scram_iterations=4096,
        )
        users.add("alice", "s3cret")
        served = authority.issue("node")
        config = folder / "node.toml"
        files = f'certificate = "{served.certificate}"\nkey = "{served.key}"\n'
        config.write_text(f'users = "{folder / "users"}"\n{NODE}\n[tls]\n{files}')
        options = ("--config", str(config), "--listen-tls", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
        return NodeProcess(folder, *options, "--anonymous", "never", log="temps:2")

    def pages(self) -> Sequence[str]:
        """Return the answers of `/metrics` of all processes."""
        addresses = [address for job in self.targets.values() for address in job]
        context = ssl.create_default_context(cafile=self.ca)
        return [
            *(got(f"http://{address}/metrics") for address in addresses),
            got(f"https://{self.secure}/metrics", context),
        ]


def labels_of(pages: Sequence[str]) -> dict[str, set[str]]:
    """Return the labels of each series of pages of `/metrics`, also of metrics without a sample."""
    found: dict[str, set[str]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


class Prometheus:
    """A Prometheus with the configuration of the repository; only addresses and intervals are the test's."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: str) -> None:
        self._process = process
        self._address = address

    def ask(self, path: str, **arguments: str) -> Any:
        """Return the data of an answer of the HTTP API."""
        query = urllib.parse.urlencode(arguments)
        answer = json.loads(got(f"http://{self._address}/api/v1/{path}?{query}"))
        assert answer["status"] == "success", answer
        return answer["data"]


def configuration(targets: Mapping[str, Sequence[str]], ca: Path, secure: str) -> dict[str, Any]:
    """Return the repository's configuration for other addresses, with short intervals."""
    config: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    # On a machine with other load an answer can take more than a second.
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"}
    config["rule_files"] = [str(PROMETHEUS / pattern) for pattern in config["rule_files"]]
    for job in config["scrape_configs"]:
        job.pop("dns_sd_configs", None)
        job["static_configs"] = [{"targets": targets[job["job_name"]]}]
        if job["job_name"] == "knative-gateway":
            job["tls_config"] = {"ca_file": str(ca)}
            job["static_configs"].append({"targets": [secure], "labels": {"__scheme__": "https"}})
    return config


@contextmanager
def prometheus(folder: Path, config: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Run a Prometheus on a free port until the block ends."""
    program = shutil.which("prometheus")
    assert program is not None
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        made = Prometheus(process, address)
        wait_for(lambda: _answers(made), lambda: (folder / "prometheus.log").read_text()[-2000:])
        yield made
    finally:
        process.terminate()
        process.wait(60)


def _answers(made: Prometheus) -> bool:
    with suppress(OSError):
        made.ask("status/buildinfo")
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(met: Callable[[], bool], words: Callable[[], object]) -> None:
    """Wait until a condition is met. `words`: what to report if it is not."""
    deadline = time.monotonic() + START_S_MAX
    while not met():
        assert time.monotonic() < deadline, words()
        time.sleep(0.1)
