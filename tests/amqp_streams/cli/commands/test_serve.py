"""`serve` passes its settings to the server, reports when it is ready, and ends with the server."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_streams import server
from amqp_streams.config import Listener, LogSettings, NodeSettings
from amqp_streams.errors import ConfigError, DirectoryLockedError
from service_parts import logging_setup
from service_parts.settings.choices import LogLevel
from service_parts.settings.in_force import Shown
from tests.amqp_streams.cli.conftest import Run

Ready = Callable[[dict[str, list[str]]], None]
Reread = Callable[[], NodeSettings]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[NodeSettings]:
    """The arguments with which the server was started. The server is ready at once and ends with status 0."""
    started: list[NodeSettings] = []

    def run(settings: NodeSettings, *, ready: Ready, reread: Reread, shown: Shown) -> int:
        assert reread() == settings
        assert {row.source for row in shown() if row.name == "container_id"} <= {"--container-id", "default"}
        started.append(settings)
        ready({"amqp": ["127.0.0.1:40000"]})
        return 0

    monkeypatch.setattr(server, "run", run)
    monkeypatch.setattr(logging_setup, "configure", lambda *_: None)
    return started


def test_flags_become_the_nodes_settings(served: list[NodeSettings], run: Run, tmp_path: Path) -> None:
    answer = run(
        "serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--log",
        "temps:4", "--log-level", "debug",
        "--auto-create", "2", "--plain-without-tls", "--container-id", "here",
    )  # fmt: skip
    assert (answer.exit_code, answer.stdout) == (0, "")
    assert served == [
        NodeSettings(
            data_dir=tmp_path,
            listen=(Listener(host="127.0.0.1", port=0), Listener(host="::1", port=0)),
            logs={"temps": LogSettings(partitions=4)},
            log_level=LogLevel.DEBUG,
            auto_create_partitions=2,
            plain_without_tls=True,
            container_id="here",
        )
    ]


def test_the_file_is_named_by_a_flag_or_a_variable(
    served: list[NodeSettings], run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data_dir = "d"\nauto_create = 3\n')
    run("serve", "--config", str(file))
    run("serve", environment={"AMQP_STREAMS_CONFIG": str(file), "AMQP_STREAMS_AUTO_CREATE": "4"})
    assert [settings.auto_create_partitions for settings in served] == [3, 4]


def test_sighup_reads_the_file_again_under_the_same_flags(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data_dir = "d"\nsync = "never"\ncontainer_id = "before"\n')
    read: list[NodeSettings] = []

    def serve(_: NodeSettings, *, ready: Ready, reread: Reread, shown: Shown) -> int:
        file.write_text('data_dir = "d"\nsync = "always"\ncontainer_id = "after"\n')
        read.append(reread())
        file.write_text("container_id =\n")
        with pytest.raises(ConfigError, match=r"node\.toml is not valid TOML"):
            reread()
        return 0

    monkeypatch.setattr(server, "run", serve)
    monkeypatch.setattr(logging_setup, "configure", lambda *_: None)
    assert run("serve", "--config", str(file), "--sync", "interval:5").exit_code == 0
    assert [(settings.container_id, str(settings.sync)) for settings in read] == [("after", "interval:5")]


def test_a_waiting_process_learns_where_the_service_listens(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "ready.json"
    seen: list[object] = []

    def serve(_: NodeSettings, *, ready: Ready, reread: Reread, shown: Shown) -> int:
        ready({"amqp": ["127.0.0.1:40000"]})
        seen.append(json.loads(file.read_text()))
        return 0

    monkeypatch.setattr(server, "run", serve)
    monkeypatch.setattr(logging_setup, "configure", lambda *_: None)
    run("serve", "--data-dir", str(tmp_path), "--ready-file", str(file))
    assert seen == [{"amqp": ["127.0.0.1:40000"]}]
    assert not file.exists()


def test_a_node_that_cannot_start_is_a_failure_in_words(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    def locked(*_: object, **__: object) -> int:
        message = "another process has it"
        raise DirectoryLockedError(message)

    monkeypatch.setattr(server, "run", locked)
    monkeypatch.setattr(logging_setup, "configure", lambda *_: None)
    answer = run("serve", "--data-dir", str(tmp_path))
    assert (answer.exit_code, answer.stderr) == (1, "amqp-streams: another process has it\n")


def test_settings_that_are_not_valid_are_a_usage_error_that_names_each_of_them(
    served: list[NodeSettings], run: Run
) -> None:
    answer = run(
        "serve", "--data-dir", "d", "--sync", "often", environment={"AMQP_STREAMS_LIMITS_CREDIT": "0"}
    )
    assert answer.exit_code == 2
    assert "sync (--sync): 'often' is not a valid sync mode" in answer.stderr
    assert "limits.credit (AMQP_STREAMS_LIMITS_CREDIT): must be at least 1" in answer.stderr
    assert not served


def test_every_variable_is_documented_in_the_help(run: Run) -> None:
    told = run("serve", "--help").stdout
    for name in (
        "DATA_DIR",
        "LISTEN",
        "LISTEN_TLS",
        "TLS_CERTIFICATE",
        "TLS_KEY",
        "TLS_CLIENT_CA",
        "ADMIN_LISTEN",
        "LOG",
        "SYNC",
        "USERS",
    ):
        assert f"AMQP_STREAMS_{name}]" in told
    for name in (
        "ANONYMOUS",
        "AUTO_CREATE",
        "CONTAINER_ID",
        "LOG_FORMAT",
        "LOG_LEVEL",
        "CONFIG",
        "PLAIN_WITHOUT_TLS",
    ):
        assert f"AMQP_STREAMS_{name}]" in told


def test_check_reads_everything_and_starts_nothing(
    served: list[NodeSettings], run: Run, tmp_path: Path
) -> None:
    assert (
        run(
            "serve", "--data-dir", str(tmp_path / "d"), "--users", str(tmp_path / "users"), "--check"
        ).exit_code
        == 0
    )
    broken = tmp_path / "users"
    broken.write_text("{")
    broken.chmod(0o600)
    answer = run("serve", "--data-dir", str(tmp_path / "d"), "--users", str(broken), "--check")
    assert answer.exit_code != 0
    assert "users" in answer.stderr
    assert run("serve", "--data-dir", str(tmp_path / "d"), "--sync", "often", "--check").exit_code != 0
    assert served == []
    assert not (tmp_path / "d").exists()
