"""A gateway with tokens and rules, and a console for it: real processes."""

from collections.abc import Iterator

import pytest

from examples.gateway import GatewayProcess
from tests.web_console.http_client import Person
from tests.web_console.processes import GatewayConsoleProcess

SETTINGS = """
tokens = "{folder}/tokens.csv"
resources = "{folder}/resources"

[[rules]]
users = ["admin"]
allow = ["read", "write", "send"]

[[rules]]
users = ["reader"]
allow = ["read"]
namespaces = ["weather"]
"""
ADMIN, READER = "admin-token-0001", "reader-token-0001"
TOKENS = f"{ADMIN},admin,1\n{READER},reader,2\n"
RESOURCES = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: {name}, namespace: {namespace}}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: {name}-kept, namespace: {namespace}}}
spec:
  broker: {name}
  subscriber: {{uri: "http://127.0.0.1:9/{name}"}}
  filter: {{attributes: {{type: measured}}}}
  delivery: {{deadLetterSink: {{uri: "http://127.0.0.1:9/dead"}}}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: {name}-lost, namespace: {namespace}}}
spec:
  broker: nowhere
  subscriber: {{uri: "http://127.0.0.1:9/"}}
---
apiVersion: messaging.knative.dev/v1
kind: InMemoryChannel
metadata: {{name: {name}-channel, namespace: {namespace}}}
---
apiVersion: messaging.knative.dev/v1
kind: Subscription
metadata:
  name: {name}-subscription
  namespace: {namespace}
  annotations: {{knative-gateway/paused: "true"}}
spec:
  channel: {{apiVersion: messaging.knative.dev/v1, kind: InMemoryChannel, name: {name}-channel}}
  subscriber: {{uri: "http://127.0.0.1:9/{name}-subscriber"}}
"""


@pytest.fixture(scope="module")
def guarded_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with the tokens of admin and reader."""
    folder = tmp_path_factory.mktemp("guarded-gateway")
    (folder / "resources").mkdir()
    for name, namespace in (("temps", "weather"), ("secret", "vault")):
        (folder / "resources" / f"{name}.yaml").write_text(RESOURCES.format(name=name, namespace=namespace))
    (folder / "tokens.csv").write_text(TOKENS)
    (folder / "tokens.csv").chmod(0o600)
    (folder / "gateway.toml").write_text(SETTINGS.format(folder=folder))
    with GatewayProcess(folder / "gateway", "--config", str(folder / "gateway.toml")) as gateway:
        yield gateway
        assert "Traceback" not in gateway.words, gateway.words


@pytest.fixture(scope="module")
def guarded_console(
    guarded_gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayConsoleProcess]:
    folder = tmp_path_factory.mktemp("console")
    with GatewayConsoleProcess(folder, guarded_gateway.base_url) as console:
        yield console


@pytest.fixture
def person(guarded_console: GatewayConsoleProcess) -> Person:
    return Person(guarded_console.address)


@pytest.fixture
def reader(person: Person) -> Person:
    assert person.log_in(token=READER).status == 303
    return person


@pytest.fixture
def admin(person: Person) -> Person:
    assert person.log_in(token=ADMIN).status == 303
    return person
