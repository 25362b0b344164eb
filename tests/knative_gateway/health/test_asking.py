"""A gateway that is asked how it is: rights, a shared answer, reloads, and a log node that is away."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from knative_gateway.cli.settings import PREFIX, checked_settings, file_contents, gateway_settings
from knative_gateway.health import asking, documents
from knative_gateway.server import Gateway
from service_parts.settings.showing import in_force
from tests.knative_gateway.api.client import BROKERS

GATEWAY = "/apis/gateway.knative.dev/v1/gateway"
ADMIN, READER, ONE = "admin-0123456789", "reader-0123456789", "namespace-0123456789"
SETTINGS = """
tokens = "tokens.csv"
[[rules]]
users = ["admin"]
allow = ["read", "write"]
[[rules]]
users = ["reader"]
allow = ["read"]
[[rules]]
users = ["one"]
allow = ["read", "write"]
namespaces = ["default"]
"""
BROKER = {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": {"name": "b"}}


class Asked:
    """A gateway with a settings file, and requests to it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "gateway.toml"
        self.tokens = folder / "tokens.csv"
        self.file.write_text(SETTINGS)
        self.tokens.write_text(f"{ADMIN},admin,1\n{READER},reader,2\n{ONE},one,3\n")
        self.tokens.chmod(0o600)
        self._environment = {PREFIX + "LISTEN": "127.0.0.1:0", PREFIX + "STATE_DIR": str(folder / "state")}
        no_flags: dict[tuple[str, ...], object] = {}
        given = (no_flags, self._environment, self.file)
        self.gateway = Gateway(
            gateway_settings(*given),
            reread=lambda: gateway_settings(*given),
            shown=lambda: in_force(file_contents(), checked_settings(*given)),
        )

    async def ask(self, token: str, path: str = GATEWAY, body: object = None) -> tuple[int, dict[str, Any]]:
        return await asyncio.to_thread(self._ask, token, path, body)

    def _ask(self, token: str, path: str, body: object) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"http://{self.gateway.addresses['http'][0]}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    async def fresh(self, token: str = ADMIN) -> dict[str, Any]:
        """An answer that was made after this call."""
        self.gateway.health._shared._until_s = 0.0
        return (await self.ask(token))[1]


async def test_it_is_for_those_who_may_read_everything(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    try:
        await asked.gateway.start()
        assert [(await asked.ask(token))[0] for token in (ADMIN, READER, ONE, "x")] == [200, 200, 403, 401]
        assert (await asked.ask(ADMIN, body={}))[0] == 405
        assert (await asked.ask(ONE, BROKERS, BROKER))[0] == 201
        found = await asked.fresh(READER)
        (change,) = found["changes"]
        assert (change["user"], change["what"], change["name"]) == ("one", "CREATE", "default/b")
        (worker,) = found["workers"]
        assert (worker["leads"], worker["ready"]) == (True, True)
        assert found["figures"]["memoryBytes"] > 1 << 20
        assert found["figures"]["uses"]["connections"]["used"] >= 1
        assert found["node"]["ready"] is True
        sources = {each["name"]: each["source"] for each in found["settings"]}
        assert sources["tokens"] == str(asked.file)
        assert sources["listen"] == PREFIX + "LISTEN"
        assert sources["workers"] == "default"
        assert not any(token in json.dumps(found) for token in (ADMIN, READER, ONE))
    finally:
        await asked.gateway.stop()


async def test_a_reload_is_seen_with_what_it_did_not_change(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    try:
        await asked.gateway.start()
        asked.tokens.write_text("broken")
        asked.gateway.reload()
        (warning,) = (await asked.fresh())["warnings"]
        assert warning["code"] == "reload"
        assert "tokens" in warning["text"]
        asked.tokens.write_text(f"{ADMIN},admin,1\n")
        asked.file.write_text(f'log_level = "warning"\n{SETTINGS}')
        asked.gateway.reload()
        found = await asked.fresh()
        assert [each["code"] for each in found["warnings"]] == ["restart"]
        assert "log_level" in found["warnings"][0]["text"]
        assert [each["what"] for each in found["changes"]] == ["RELOAD"]
        shown = {each["name"]: each["value"] for each in found["settings"]}
        assert shown["log_level"] == "info"
    finally:
        await asked.gateway.stop()


async def test_all_who_ask_share_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    describe = documents.document

    def counting(*args: Any) -> Any:
        nonlocal made
        made += 1
        return describe(*args)

    monkeypatch.setattr(asking, "KEPT_S", 3600.0)
    monkeypatch.setattr(asking, "document", counting)
    asked = Asked(tmp_path)
    try:
        await asked.gateway.start()
        answers = await asyncio.gather(*(asked.gateway.health.document() for _ in range(20)))
        assert all(answer is answers[0] for answer in answers)
        assert (await asked.ask(READER))[0] == 200
        assert made == 1
    finally:
        await asked.gateway.stop()


async def test_a_log_node_that_is_away_or_silent_costs_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "NODE_S_MAX", 0.05)
    asked = Asked(tmp_path)
    try:
        await asked.gateway.start()
        assert asked.gateway.node is not None

        async def silent(_client: object) -> str:
            await asyncio.Event().wait()
            return ""

        with monkeypatch.context() as patch:
            patch.setattr(asking, "_described", silent)
            assert (await asked.fresh())["node"] == {"unknown": "the log node did not answer in time"}
        await asked.gateway.node.__aexit__(None, None, None)
        async with asyncio.timeout(60):
            while asked.gateway.connected:  # noqa: ASYNC110  a client has no event for this
                await asyncio.sleep(0.01)
        found = await asked.fresh()
        assert found["node"] == {"unknown": "the log node is not connected"}
        assert found["warnings"][0]["code"] == "not-ready"
        assert found["ready"] is False
    finally:
        await asked.gateway.stop()
