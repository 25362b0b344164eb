"""A provider, a node and a gateway that accept its tokens, and a console for each: real processes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.gateway import GatewayProcess
from examples.node import NodeProcess
from tests.web_console.oidc.provider import CLIENT, NODE, SECRET, ProviderServer
from tests.web_console.processes import ConsoleProcess, GatewayConsoleProcess

BOB = """
[[access]]
users = ["bob"]
logs = ["temps"]
allow = ["receive", "info"]
"""
GATEWAY = """
[jwt]
issuer = "{issuer}"
audience = "{client}"
keys = "{keys}"
[[rules]]
users = ["alice"]
allow = ["read", "write", "send"]
[[rules]]
users = ["bob"]
allow = ["read"]
namespaces = ["weather"]
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderServer]:
    with ProviderServer() as server:
        yield server


@pytest.fixture(autouse=True)
def honest(provider: ProviderServer) -> Iterator[None]:
    """Each test begins with a provider that tells the truth."""
    yield
    provider.lies.clear()
    provider.claims.clear()
    provider.user, provider.life_s, provider.secret, provider.refuses_renewal = "alice", 300.0, SECRET, False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, provider: ProviderServer) -> Path:
    folder = tmp_path_factory.mktemp("oidc")
    (folder / "keys.json").write_text(json.dumps({"keys": provider.jwks()["keys"][1:]}))
    (folder / "secret").write_text(SECRET + "\n")
    (folder / "secret").chmod(0o600)
    return folder


def options(provider: ProviderServer, folder: Path, *more: str) -> list[str]:
    given = ["--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT]
    return [*given, "--oidc-client-secret", str(folder / "secret"), *more]


@pytest.fixture(scope="module")
def node(folder: Path, provider: ProviderServer) -> Iterator[NodeProcess]:
    text = (NODE + BOB).format(issuer=provider.issuer, client=CLIENT, keys=folder / "keys.json")
    (folder / "node.toml").write_text(text)
    settings = ("--config", str(folder / "node.toml"), "--anonymous", "never")
    with NodeProcess(folder / "node", *settings, log=["temps:1", "secret:1"]) as node:
        yield node
        assert "Traceback" not in node.words, node.words


@pytest.fixture(scope="module")
def console(folder: Path, node: NodeProcess, provider: ProviderServer) -> Iterator[ConsoleProcess]:
    (folder / "console").mkdir()
    with ConsoleProcess(folder / "console", node.url, *options(provider, folder)) as console:
        yield console
        assert SECRET not in console.words


@pytest.fixture(scope="module")
def gateway(folder: Path, provider: ProviderServer) -> Iterator[GatewayProcess]:
    text = GATEWAY.format(issuer=provider.issuer, client=CLIENT, keys=folder / "keys.json")
    (folder / "gateway.toml").write_text(text.replace("[jwt]", "[jwt]\nleeway = 0"))
    with GatewayProcess(folder / "gateway", "--config", str(folder / "gateway.toml")) as gateway:
        yield gateway
        assert "Traceback" not in gateway.words, gateway.words


@pytest.fixture(scope="module")
def gateway_console(
    folder: Path, gateway: GatewayProcess, provider: ProviderServer
) -> Iterator[GatewayConsoleProcess]:
    (folder / "gateway-console").mkdir()
    given = options(provider, folder, "--oidc-token", "id")
    with GatewayConsoleProcess(folder / "gateway-console", gateway.base_url, *given) as console:
        yield console
