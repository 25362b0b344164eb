"""`serve` documents every flag with its variable, and checks settings without a start."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from knative_gateway import server
from knative_gateway.cli import main
from knative_gateway.cli.commands.serve import serve
from knative_gateway.cli.settings import settable, variable_of


def test_every_flag_of_a_setting_names_its_variable() -> None:
    known = {"__".join(name): name for name in settable()}
    options = {option.name: option for option in serve.params if isinstance(option, click.Option)}
    for key, option in options.items():
        if key in {"config", "check", "schema", "ready_file", "ready_fd"}:
            continue
        assert key is not None
        assert f"[{variable_of(known[key])}]" in (option.help or "")


def test_check_reads_everything_and_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server, "run", lambda *_, **__: pytest.fail("it started"))
    file = tmp_path / "gateway.toml"
    file.write_text('state_dir = "state"\nresources = "resources"\n')
    resources = tmp_path / "resources"
    resources.mkdir()
    (resources / "broker.yaml").write_text(
        "apiVersion: eventing.knative.dev/v1\nkind: Broker\nmetadata: {name: default}\n"
    )
    done = CliRunner().invoke(main, ["serve", "--config", str(file), "--check"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "the settings are valid\n")
    (resources / "broker.yaml").write_text(
        "apiVersion: eventing.knative.dev/v1\nkind: Broken\nmetadata: {name: default}\n"
    )
    done = CliRunner().invoke(main, ["serve", "--config", str(file), "--check"])
    assert done.exit_code == 2
    assert "Broken default: the gateway does not serve this kind of eventing.knative.dev/v1" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gateway.toml", "resources"]
