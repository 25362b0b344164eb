"""A whole gateway with tokens, and kubectl with a token: events and objects, rules, and revoked tokens."""

import asyncio
import http.client
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from knative_gateway.cli.commands.kubeconfig import kubeconfig
from knative_gateway.cli.settings import gateway_settings
from knative_gateway.config import GatewaySettings
from knative_gateway.resources.documents.manifests import written_yaml
from knative_gateway.server import Gateway
from tests.amqp_streams.server.peers import Authority
from tests.knative_gateway.api.client import trigger
from tests.knative_gateway.asking import BINARY

ADMIN, SENSOR, READER = "admin-0123456789", "sensor-0123456789", "reader-0123456789"
LINES = f'{ADMIN},admin,1,"operators"\n{SENSOR},sensor-1\n{READER},reader\n'
RULES = [
    {"groups": ["operators"], "allow": ["read", "write", "send"]},
    {"users": ["sensor-*"], "allow": ["send"], "namespaces": ["default"]},
    {"users": ["reader"], "allow": ["read"]},
]
BROKER: dict[str, Any] = {
    "apiVersion": "eventing.knative.dev/v1",
    "kind": "Broker",
    "metadata": {"name": "b", "namespace": "default"},
}
BROKERS = "/apis/eventing.knative.dev/v1/namespaces/default/brokers"
KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")


def ask(gateway: Gateway, method: str, path: str, token: str | None, *more: Any) -> int:
    """The status; `more`: body, headers."""
    body, headers = more or (b"", ())
    connection = http.client.HTTPConnection(gateway.addresses["http"][0], timeout=60)
    try:
        connection.request(
            method, path, body, {**dict(headers), **({"authorization": f"Bearer {token}"} if token else {})}
        )
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def kubectl(environment: dict[str, str], *words: str, given: object = None) -> str:
    text = (
        ""
        if given is None
        else "\n---\n".join(map(written_yaml, given if isinstance(given, list) else [given]))
    )
    done = subprocess.run(
        [str(KUBECTL), *words],
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


async def test_objects_and_events_are_for_those_whose_token_counts(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(LINES)
    tokens.chmod(0o600)
    given = {"listen": ["127.0.0.1:0"], "state_dir": tmp_path / "state", "tokens": tokens, "rules": RULES}
    settings = GatewaySettings.model_validate(given)
    gateway = Gateway(settings, reread=lambda: settings)
    try:
        await gateway.start()
        assert gateway.controller is not None
        json = [("content-type", "application/json")]
        body = b'{"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": {"name": "b"}}'
        made = [
            await asyncio.to_thread(ask, gateway, "POST", BROKERS, token, body, json)
            for token in (None, "no", READER, SENSOR, ADMIN)
        ]
        assert made == [401, 401, 403, 403, 201]
        read = [
            await asyncio.to_thread(ask, gateway, "GET", BROKERS, token) for token in (None, SENSOR, READER)
        ]
        assert read == [401, 403, 200]
        async with asyncio.timeout(60):
            while (
                await asyncio.to_thread(ask, gateway, "POST", "/broker/default/b", SENSOR, b"{}", BINARY)
                != 202
            ):
                await gateway.controller.settled()
        sent = [
            await asyncio.to_thread(ask, gateway, "POST", "/broker/default/b", token, b"{}", BINARY)
            for token in (None, "no", READER, ADMIN)
        ]
        assert sent == [401, 401, 403, 202]
        for path in ("/healthz", "/readyz", "/metrics"):
            assert await asyncio.to_thread(ask, gateway, "GET", path, None) == 200
        tokens.write_text(LINES.replace(READER, "another-0123456789"))
        gateway.reload()
        assert await asyncio.to_thread(ask, gateway, "GET", BROKERS, READER) == 401
        tokens.write_text("broken")
        gateway.reload()
        assert await asyncio.to_thread(ask, gateway, "GET", BROKERS, ADMIN) == 200, (
            "a broken file changes nothing"
        )
    finally:
        await gateway.stop()


@pytest.mark.skipif(KUBECTL is None, reason="needs kubectl: apt-get install kubernetes-client")
async def test_kubectl_waits_until_the_controller_says_ready(tmp_path: Path) -> None:
    """The whole sequence: apply, wait, describe with Events, delete. It uses TLS, because kubectl sends no
    token without it.
    """
    authority = Authority(tmp_path / "authority")
    issued = authority.issue("localhost")
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(LINES)
    tokens.chmod(0o600)
    tls = {"certificate": issued.certificate, "key": issued.key}
    given = {"listen": ["127.0.0.1:0"], "state_dir": tmp_path / "state", "tokens": tokens, "tls": tls}
    gateway = Gateway(GatewaySettings.model_validate(given))
    try:
        await gateway.start()
        config = tmp_path / "kubeconfig"
        config.write_text(
            kubeconfig(
                f"https://{gateway.addresses['http'][0]}", token=ADMIN, authority=authority.ca.read_bytes()
            )
        )
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}

        async def run(*words: str, **more: Any) -> str:
            return await asyncio.to_thread(kubectl, environment, *words, **more)

        ours = trigger("mine", broker="b")
        assert (await run("apply", "-f", "-", given=[BROKER, ours])).count(" created") == 2
        assert "condition met" in await run(
            "wait", "--for=condition=Ready", "trigger/mine", "broker/b", "--timeout=60s"
        )
        table = await run("get", "triggers,brokers")
        assert re.search(r"mine +b +http://127.0.0.1/ +\S+ +True", table)
        assert f"https://{gateway.addresses['http'][0]}/broker/default/b" in table
        assert "Trigger is ready" in await run("describe", "trigger", "mine")
        assert "TriggerReady" in await run("get", "events")
        assert (await run("delete", "trigger/mine", "broker/b")).count(" deleted") == 2
    finally:
        await gateway.stop()


def test_the_settings_that_are_shown_are_read(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "knative.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "gateway.toml").write_text("\n".join(shown))  # the later ones add to the first
    settings = gateway_settings({}, {}, tmp_path / "gateway.toml")
    assert settings.jwt is not None
    assert (settings.tokens, settings.jwt.keys) == (tmp_path / "tokens.csv", tmp_path / "issuer-keys.json")
    assert [rule.allow for rule in settings.rules] == [("read", "write", "send"), ("send",), ("send",)]
