"""Every `serve` has a flag for each setting, and five flags that are not settings."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import structlog
from click.testing import CliRunner

from service_parts.command_line.serving import (
    console_options,
    given_flags,
    print_schema,
    service_options,
    setting_option,
    started,
)
from service_parts.settings.choices import LogFormat, LogLevel
from service_parts.settings.consoles import ConsoleSettings
from service_parts.settings.fields import Settings
from service_parts.settings.reference import contents

_setting = setting_option("SAMPLE_")


class Sample(Settings):
    size: int = 1


@click.command()
@_setting("tls", "key", metavar="FILE", help="The key.")
@_setting("listen", multiple=True, help="Listen here.")
@service_options("SAMPLE_", check="Check, then exit.")
def serve(
    config: Path | None,
    ready_file: Path | None,
    ready_fd: int | None,
    *,
    check: bool,
    schema: bool,
    **flags: object,
) -> None:
    """Print the arguments."""
    if schema:
        print_schema(contents(Sample), "Sample")
        return
    given = {".".join(name): value for name, value in given_flags(flags).items()}
    click.echo(json.dumps([given, str(config), str(ready_file), ready_fd, check]))


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_flags_are_given_by_the_names_of_their_settings() -> None:
    done = CliRunner().invoke(
        serve,
        ["--listen", "a", "--listen", "b", "--check", "--ready-fd", "3"],
        env={"SAMPLE_CONFIG": "s.toml"},
    )
    assert json.loads(done.stdout) == [{"tls.key": None, "listen": ["a", "b"]}, "s.toml", "None", 3, True]


def test_the_help_names_each_variable_and_the_flags_that_are_not_settings_come_last() -> None:
    words = CliRunner().invoke(serve, ["--help"]).stdout
    assert "[SAMPLE_TLS_KEY]" in words
    places = [
        words.index(flag)
        for flag in ("--tls-key", "--listen", "--config", "--check", "--schema", "--ready-file", "--ready-fd")
    ]
    assert places == sorted(places)


def test_a_service_with_a_console_has_flags_for_all_its_settings() -> None:
    @click.command()
    @console_options("SAMPLE_", service="kettle")
    def with_console(**flags: object) -> None:
        given = {name[1] for name in given_flags(flags) if name[0] == "console"}
        assert given == ConsoleSettings.model_fields.keys()

    assert CliRunner().invoke(with_console, ["--console-hosts", "a", "--console-hosts", "b"]).exit_code == 0
    assert "to the kettle, if only with TLS. [SAMPLE_CONSOLE_URL]" in " ".join(
        CliRunner().invoke(with_console, ["--help"]).stdout.split()
    )


def test_the_schema_is_one_document() -> None:
    made = json.loads(CliRunner().invoke(serve, ["--schema"]).stdout)
    assert (made["title"], set(made["properties"])) == ("Sample", {"size"})


@pytest.mark.usefixtures("_logging_as_before")
def test_a_service_logs_and_reports_when_it_listens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ready.json"
    with started(LogFormat.JSON, LogLevel.INFO, ready_file=file, ready_fd=None) as ready:
        structlog.get_logger("sample").info("begun", token="secret")
        ready({"http": ["127.0.0.1:1"]})
        assert json.loads(file.read_text()) == {"http": ["127.0.0.1:1"]}
    assert not file.exists()
    assert json.loads(capsys.readouterr().err)["token"] == "***"
