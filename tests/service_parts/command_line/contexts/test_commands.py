"""`context add`, `use`, `list`, `show` and `remove`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service_parts.command_line.contexts.commands import context_commands
from service_parts.command_line.contexts.settings import Form, Kind, Setting, secret_settings

KIND = Kind(
    "sample",
    "SAMPLE_",
    "url",
    (
        Setting("url", "URL", "The node."),
        Setting("user", "NAME", "The user."),
        *secret_settings("password"),
        Setting("insecure", "", "No check.", Form.SWITCH),
    ),
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str | None]:
    path = str(tmp_path / "contexts.json")
    return {"AMQP_STREAMS_CONTEXTS": path, "SAMPLE_CONTEXT": None, "SAMPLE_URL": None}


class Runner:
    def __init__(self, environment: dict[str, str | None]) -> None:
        self.runner = CliRunner(env=environment)

    def __call__(self, *words: str) -> Result:
        return self.runner.invoke(context_commands(KIND, "--url amqp://h", "amqp://l"), words)


@pytest.fixture
def run(environment: dict[str, str | None]) -> Runner:
    return Runner(environment)


def test_a_context_is_added_used_shown_and_removed(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    words = ["--url", "amqp://h", "--user", "ann", "--password-file", str(tmp_path / "secret"), "--insecure"]
    assert run("add", "prod", *words).exit_code == 0
    assert run("show").stderr == "no context is used\n"
    assert json.loads(run("use", "prod", "--json").stdout) == {"current": "prod"}
    assert run("show").stdout.splitlines() == [
        "prod (chosen by 'context use')",
        "  url: amqp://h",
        "  user: ann",
        f"  password_file: {tmp_path / 'secret'}",
        "  insecure: yes",
    ]
    run("add", "test", "--url", "amqp://t")
    listed = [line.split() for line in run("list").stdout.splitlines()]
    assert listed == [["NAME", "URL"], ["*", "prod", "amqp://h"], ["test", "amqp://t"]]
    assert json.loads(run("list", "--json").stdout)["current"] == "prod"
    assert json.loads(run("show", "test", "--json").stdout)["settings"] == {"url": "amqp://t"}
    assert run("use", "--none").stderr == "no context is used\n"
    assert run("remove", "prod").stderr == "prod was removed\n"
    assert list(json.loads(run("list", "--json").stdout)["contexts"]) == ["test"]


def test_the_file_never_has_the_secret(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    run("add", "prod", "--url", "amqp://h", "--password-file", str(tmp_path / "secret"), "--use")
    shown = "".join(run(*words).output for words in (["show"], ["show", "--json"], ["list", "--json"]))
    assert "s3cret" not in shown + (tmp_path / "contexts.json").read_text()


def test_a_name_that_exists_is_replaced_only_if_the_flag_says_so(run: Runner) -> None:
    run("add", "prod", "--url", "amqp://h", "--use")
    assert "a context named 'prod' exists" in str(run("add", "prod", "--url", "amqp://i").exception)
    assert run("add", "prod", "--url", "amqp://i", "--replace").exit_code == 0
    assert json.loads(run("show", "--json").stdout)["settings"]["url"] == "amqp://i"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["add", "x", "--url", "amqp://ann:pw@h"], "the URL has a password"),
        (["add", "x", "--url", "amqp://h", "--password-file", "none"], "does not exist, or is not a file"),
        (["add", "x", "--url", "amqp://h", "--password-command", "'"], "is not a valid command"),
        (["add", "x", "--url", "amqp://h", "--password-command", ""], "the command is empty"),
        (["use", "prdo"], "no context named 'prdo'"),
        (["remove", "prdo"], "no context named 'prdo'"),
        (["show", "prdo"], "no context named 'prdo'"),
    ],
)
def test_what_is_not_valid_is_refused(run: Runner, words: list[str], sentence: str) -> None:
    assert sentence in str(run(*words).exception)


@pytest.mark.parametrize("words", [["add", "x"], ["use"], ["use", "x", "--none"]])
def test_what_is_missing_is_a_usage_error(run: Runner, words: list[str]) -> None:
    assert run(*words).exit_code == 2


def test_file_and_command_are_alternatives(run: Runner) -> None:
    answer = run(
        "add", "x", "--url", "u", "--password-file", str(Path(__file__)), "--password-command", "true"
    )
    assert "--password-file and --password-command are alternatives" in answer.stderr
