"""Names are completed from the node, in time, and without a word when it does not answer."""

import socket
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from amqp_streams.cli import completion, main
from amqp_streams.client import CursorInfo, GroupInfo
from tests.amqp_streams.cli.conftest import Run
from tests.amqp_streams.cli.fakes import FakeNode


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    found = ShellComplete(main, {}, "amqp-streams", "_X").get_completions(before, incomplete)
    return [item.value for item in found]


@pytest.fixture
def named(node: FakeNode) -> FakeNode:
    node.logs |= {"tempest": [[]], "orders": [[]]}
    node.groups = [GroupInfo("temps", "billing"), GroupInfo("orders", "other")]
    node.cursors = [
        CursorInfo("temps", "9de4", link="nightly", container="a"),
        CursorInfo("temps", "f69d", link="shared", container="a"),
        CursorInfo("temps", "f70a", link="shared", container="b"),
    ]
    return node


@pytest.mark.parametrize(
    "words",
    [
        ["info"], ["receive"], ["send"], ["log", "describe"], ["log", "update"], ["log", "delete"],
        ["group", "list"], ["group", "reset"], ["cursor", "list"], ["bench", "consume"],
        ["bench", "latency"], ["bench", "produce"],
    ],
)  # fmt: skip
def test_logs_are_completed(named: FakeNode, words: list[str]) -> None:
    assert sorted(completed(*words, "te")) == ["tempest", "temps"]
    assert set(completed(*words, "")) == {"temps", "tempest", "orders"}


def test_groups_and_cursors_of_the_named_log_are_completed(named: FakeNode) -> None:
    assert completed("group", "describe", "temps", "") == ["billing"]
    assert completed("group", "remove", "orders", "o") == ["other"]
    assert completed("receive", "temps", "--group", "b") == ["billing"]
    assert completed("receive", "--group", "") == []
    assert completed("cursor", "reset", "temps", "") == ["nightly", "f69d", "f70a"]


def test_the_node_is_that_of_the_command_line(named: FakeNode) -> None:
    completed("info", "--url", "amqp://other", "t")
    completed("--url", "amqp://root", "info", "t")
    completed("group", "describe", "amqp://elsewhere/temps", "b")
    assert [each.url for each in named.endpoints] == ["amqp://other", "amqp://root", "amqp://elsewhere"]
    assert completed("info", "amqp://h/t") == []


def test_contexts_are_completed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQP_STREAMS_CONTEXTS", str(tmp_path / "contexts.json"))
    assert completed("info", "--context", "") == []
    for name in ("prod", "preview", "test"):
        run("context", "add", name, "--url", f"amqp://{name}")
    assert completed("info", "--context", "pr") == ["prod", "preview"]
    assert completed("context", "use", "t") == ["test"]
    assert completed("context", "remove", "p") == ["prod", "preview"]
    (tmp_path / "contexts.json").write_text("no")
    assert completed("context", "show", "") == []


def test_a_node_that_is_dead_or_silent_completes_nothing_in_time(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "TIME_LIMIT_S", 0.2)
    assert completed("info", "--url", "amqp://127.0.0.1:1", "t") == []
    assert completed("info", "--url", "nonsense", "t") == []
    assert completed("info", "--context", "none", "t") == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        assert completed("info", "--url", f"amqp://127.0.0.1:{silent.getsockname()[1]}", "t") == []
        # Less than the ten seconds in which a command gives up.
        assert time.monotonic() - started < 9
    assert capfd.readouterr() == ("", "")
