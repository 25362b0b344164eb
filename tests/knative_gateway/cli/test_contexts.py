"""`--context`: a command asks the gateway of a stored context, with its token and namespace."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from knative_gateway.cli import main
from knative_gateway.cli.client import Client, Resource

TRIGGER = Resource("eventing.knative.dev/v1", "Trigger", "triggers", "trigger", True, (), ())


def test_server_token_and_namespace_are_those_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None, str]] = []

    def ask(
        client: Client, method: str, path: str, *_: object, **__: object
    ) -> tuple[int, dict[str, object]]:
        asked.append((client.server, client._token, path))
        return 200, {}

    monkeypatch.setattr(Client, "ask", ask)
    environment = {
        "AMQP_STREAMS_CONTEXTS": str(tmp_path / "contexts.json"),
        "KNATIVE_GATEWAY_URL": "http://variable",
        "KNATIVE_GATEWAY_TOKEN": "of-variable",
        "KNATIVE_GATEWAY_CONTEXT": None,
    }
    runner = CliRunner(env=environment)
    words = ["--server", "https://prod", "--token-command", "printf abc", "--namespace", "events"]
    assert runner.invoke(main, ["context", "add", "prod", *words]).exit_code == 0
    monkeypatch.setattr(Client, "named", lambda *_: [TRIGGER])
    for more in (["--context", "prod"], ["--context", "prod", "-n", "other"], [], ["--server", "http://x"]):
        assert runner.invoke(main, ["delete", "trigger", "t", *more]).exit_code == 0
    path = "/apis/eventing.knative.dev/v1/namespaces/{}/triggers/t"
    assert asked == [
        ("https://prod", "abc", path.format("events")),
        ("https://prod", "abc", path.format("other")),
        ("http://variable", "of-variable", path.format("default")),
        ("http://x", "of-variable", path.format("default")),
    ]
    asked.clear()
    runner.invoke(main, ["create", "trigger", "t", "--subscriber", "http://x", "--context", "prod"])
    assert asked == [("https://prod", "abc", path.format("events").removesuffix("/t"))]
    kubeconfig = runner.invoke(main, ["kubeconfig", "--context", "prod"]).stdout
    assert "server: https://prod\n" in kubeconfig
    assert "namespace: events\n" in kubeconfig
    assert "namespace: default\n" in runner.invoke(main, ["kubeconfig"]).stdout


def test_a_context_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    environment = {"AMQP_STREAMS_CONTEXTS": str(tmp_path / "contexts.json")}
    answer = CliRunner(env=environment).invoke(main, ["get", "triggers", "--context", "prod"])
    assert answer.exit_code == 2
    assert "no context named 'prod'" in answer.stderr
