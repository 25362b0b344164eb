"""Kinds and names are completed from the gateway, and nothing when it does not answer."""

import socket
from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from structlog.testing import capture_logs

from knative_gateway.cli import completion, main
from knative_gateway.resources.documents.manifests import written_yaml
from tests.knative_gateway.api.client import config_map, trigger
from tests.knative_gateway.api.served import served


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("state")) as made:
        given = "\n---\n".join(map(written_yaml, [trigger("measured"), trigger("other"), config_map("map")]))
        words = ["apply", "-f", "-", "--server", made]
        assert CliRunner().invoke(main, words, input=given).exit_code == 0
        broker = ["create", "broker", "weather", "--server", made]
        assert CliRunner().invoke(main, broker).exit_code == 0
        yield made


@pytest.fixture
def asked(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KNATIVE_GATEWAY_URL", url)
    # The machine may be busy.
    monkeypatch.setattr(completion, "TIME_LIMIT_S", 30)
    return url


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    found = ShellComplete(main, {}, "knative-gateway", "_X").get_completions(before, incomplete)
    return [item.value for item in found]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["get", "trig"], ["triggers"]),
        (["get", "brokers,trig"], ["brokers,triggers"]),
        (["get", "trigger/"], ["trigger/measured", "trigger/other"]),
        (["get", "trigger", "m"], ["measured"]),
        (["get", "trigger", "-n", "elsewhere", "m"], []),
        (["describe", "cm", "m"], ["map"]),
        (["delete", "triggers", "o"], ["other"]),
        (["wait", "trigger/o"], ["trigger/other"]),
        (["replay", ""], ["trigger/measured", "trigger/other"]),
        (["history", "trigger/m"], ["trigger/measured"]),
        (["send", "b"], ["broker/weather"]),
        (["create", "trigger", "x", "--broker", ""], ["weather"]),
        (["get", "trigger/measured", ""], []),
        (["get", "nonsense", ""], []),
    ],
)
def test_names_are_completed(asked: str, words: list[str], names: list[str]) -> None:
    assert completed(*words) == names


def test_a_gateway_that_is_dead_or_silent_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "TIME_LIMIT_S", 1)
    # The gateway of this module logs what strangers send it: clients of earlier tests look for a former port.
    with capture_logs(), socket.create_server(("127.0.0.1", 0)) as silent:
        for server in ("http://127.0.0.1:1", "nonsense", f"http://127.0.0.1:{silent.getsockname()[1]}"):
            assert completed("get", "--server", server, "t") == []
    assert capfd.readouterr() == ("", "")
